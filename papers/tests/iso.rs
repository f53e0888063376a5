//! clusters at fixed addresses, in two processes.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test; its other process answers on standard output"
)]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};

use itg_papers::clusters::{
    Cluster, ClusterIso, ClusterReloc, Fixed, FixedAddress, Iso, Kind, Memory, Ref, StoreError,
    object, schema,
};
use itg_papers::iso::{Agreement, CANDIDATES, GRANULE, IsoError, Layout, Offer, Space};

object! {
    pub struct Engine { pub power: u32 where 1..=2000 }
}
object! {
    pub struct Car<K> { pub year: u32, pub engine: Ref<Engine, K>, pub other: Ref<Car<K>, K> }
}
schema! {
    pub struct Cars = "test.cars.1";
    roots: Car<K>;
    others: Engine;
}

/// Two cars that refer to each other: written once for both kinds.
fn build<K: Kind, M: Memory>(c: &mut Cluster<Cars, K, M>) -> Result<(), StoreError> {
    let engine = c.alloc(Engine { power: 50 })?;
    let first = c.alloc(Car { year: 2000, engine, other: Ref::null() })?;
    let second = c.alloc(Car { year: 2001, engine: Ref::null(), other: first })?;
    c.update(first, |car| car.other = second)?;
    c.set_root(first);
    Ok(())
}

const LIMIT: usize = 1 << 20;
const ORIGIN: u32 = 2;
const RANK: u32 = 5;

fn layout() -> Layout {
    Layout::new(4, 16, 1 << 20).expect("a layout")
}

/// A reference as a pointer: the object starts with its header of 8 bytes.
fn pointer<T>(reference: Ref<T, Iso>) -> *const T {
    std::ptr::with_exposed_provenance(reference.number() as usize + 8)
}

/// Reads the frozen cluster and tells the addresses of root and engine; every reference is the
/// address of what it refers to.
fn look(space: &Space, file: OwnedFd) -> String {
    let frozen = space.open(ORIGIN, RANK, file).expect("sealed, and the slot is free");
    let place = FixedAddress { base: frozen.address(), origin: ORIGIN, rank: RANK };
    let c = ClusterIso::<Cars, _>::in_place(Fixed(frozen), place, LIMIT).expect("valid");
    let root = c.root_ref::<Car<Iso>>();
    let car = c.get(root).expect("a car");
    let (other, engine) = (c.get(car.other).expect("another"), c.get(car.engine).expect("engine"));
    assert_eq!((car.year, engine.power, other.year), (2000, 50, 2001));
    assert_eq!(pointer(root), &raw const *car, "a reference is a pointer");
    assert_eq!(pointer(car.engine), &raw const *engine);
    assert_eq!(pointer(car.other), &raw const *other);
    assert_eq!(other.other, root, "round in a circle");
    format!("{:#x} {:#x}", root.number(), car.engine.number())
}

/// The other process of the next test: this test itself, started with the variable below.
const OTHER: &str = "ITG_TEST_ISO_OTHER";

#[test]
fn x_6_two_processes_have_one_cluster_at_one_address() {
    let offer = Offer::reserve(layout(), &CANDIDATES);
    if std::env::var_os(OTHER).is_some() {
        other_process(offer);
        return;
    }
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "x_6_two_processes_have_one_cluster_at_one_address", "--nocapture"])
        .env(OTHER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut say = other.stdin.take().unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    let mut hear = || {
        let line = lines.find_map(|line| line.unwrap().strip_prefix("iso: ").map(str::to_owned));
        line.expect("the other process answers")
    };

    // Bootstrap: each tells the other which bases it holds.
    writeln!(say, "{}", words(&offer.bases())).unwrap();
    let theirs = numbers(&hear());
    let Agreement::Fixed(space) = offer.settle(&[theirs]) else { panic!("no common base") };

    let region = space.shared_region(ORIGIN, RANK).unwrap();
    assert_eq!(region.address(), space.base() + (2 * 16 + 5) * (1 << 20));
    let place = FixedAddress { base: region.address(), origin: ORIGIN, rank: RANK };
    let mut c = ClusterIso::<Cars, _>::new(region, place);
    build(&mut c).unwrap();
    c.seal();
    let frozen = c.into_memory().0.freeze().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), frozen.file().as_raw_fd());
    writeln!(say, "{path}").unwrap();
    let there = hear();
    let file = frozen.file().try_clone_to_owned().unwrap();
    drop(frozen); // the slot is free again, and the file is opened as the other process does
    assert_eq!(look(&space, file), there, "the same addresses in both processes");
    assert!(other.wait().unwrap().success());
}

fn other_process(offer: Offer) {
    let mut lines = std::io::stdin().lines().map(Result::unwrap);
    println!("\niso: {}", words(&offer.bases()));
    let theirs = numbers(&lines.next().unwrap());
    let Agreement::Fixed(space) = offer.settle(&[theirs]) else { panic!("no common base") };
    let file = File::open(lines.next().unwrap()).unwrap();
    println!("\niso: {}", look(&space, file.into()));
}

fn words(bases: &[u64]) -> String {
    bases.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

// Every test has bases of its own: tests run side by side in one process.

#[test]
fn x_6_an_occupied_range_means_relocatable_clusters_and_a_notice() {
    let candidates = [0x2200_0000_0000, 0x2300_0000_0000];
    let occupant = Offer::reserve(layout(), &candidates);
    assert_eq!(occupant.bases(), candidates);
    let offer = Offer::reserve(layout(), &candidates);
    assert!(offer.bases().is_empty());
    let Agreement::Relocatable { notice } = offer.settle(&[candidates.to_vec()]) else {
        panic!("both ranges are occupied")
    };
    let want = "no range of addresses for clusters at fixed addresses (none is free here, the first \
        one because: no memory of 67108864 bytes at address 0x220000000000: File exists (os error \
        17)): relocatable clusters are used";
    assert_eq!(notice, want);
    // The program goes on with the other kind, with the same lines.
    let mut c = ClusterReloc::<Cars>::with_capacity(0);
    build(&mut c).unwrap();
    assert_eq!(c.root::<Car<_>>().map(|car| car.year), Some(2000));

    // What has been there is still there, and is free when its owner leaves.
    let Agreement::Fixed(space) = occupant.settle(&[]) else { panic!("held") };
    let mut region = space.region(0, 0).unwrap();
    region.as_mut()[0] = 1;
    assert_eq!(region.as_ref()[0], 1);
    assert_eq!(Offer::reserve(layout(), &candidates).bases(), candidates[1..]);
    drop((space, region));
    assert_eq!(Offer::reserve(layout(), &candidates).bases(), candidates);
}

#[test]
fn x_6_nodes_without_a_common_base_use_relocatable_clusters() {
    let offer = Offer::reserve(layout(), &[0x2400_0000_0000, 0x2500_0000_0000]);
    let Agreement::Relocatable { notice } = offer.settle(&[vec![0x2500_0000_0000], vec![7]]) else {
        panic!("nothing in common")
    };
    let want = "no range of addresses for clusters at fixed addresses (2 are free here, none of \
        them on all other nodes): relocatable clusters are used";
    assert_eq!(notice, want);

    let offer = Offer::reserve(layout(), &[0x2400_0000_0000, 0x2500_0000_0000]);
    let Agreement::Fixed(space) = offer.settle(&[vec![0x2500_0000_0000]]) else {
        panic!("one in common")
    };
    assert_eq!(space.base(), 0x2500_0000_0000);
}

#[test]
fn a_slot_has_one_owner_and_is_zero_for_the_next() {
    let space = Space::reserve(0x2600_0000_0000, layout()).unwrap();
    let mut region = space.region(3, 15).unwrap();
    region.as_mut().fill(7);
    let taken = space.shared_region(3, 15).unwrap_err().to_string();
    assert_eq!(taken, "cluster 15 of node 3: its memory is in use already");
    drop(region);
    let region = space.shared_region(3, 15).unwrap();
    assert!(region.as_ref().iter().all(|&byte| byte == 0));
    drop(region);
    let region = space.region(3, 15).unwrap();
    assert!(region.as_ref().iter().all(|&byte| byte == 0));
    let none = space.region(0, 16).unwrap_err().to_string();
    assert_eq!(none, "cluster 16 of node 0: the layout has no such slot");
    assert!(space.region(4, 0).is_err());
}

#[test]
fn frozen_clusters_cannot_be_changed_and_others_are_not_opened() {
    let space = Space::reserve(0x2700_0000_0000, layout()).unwrap();
    assert!(matches!(space.region(0, 0).unwrap().freeze(), Err(IsoError::Share(_))), "private");
    let frozen = space.shared_region(0, 1).unwrap().freeze().unwrap();
    let mut file = File::from(frozen.file().try_clone_to_owned().unwrap());
    assert!(file.write_all(b"x").is_err(), "sealed against writing");
    assert!(file.set_len(10).is_err(), "sealed against shortening");

    let open = File::options().read(true).open("/proc/self/exe").unwrap();
    assert!(space.open(0, 2, open.into()).is_err(), "no memory file");
    let small = Layout::new(1, 1, GRANULE).unwrap();
    let elsewhere = Space::reserve(0x2780_0000_0000, small).unwrap();
    let frozen = elsewhere.shared_region(0, 0).unwrap().freeze().unwrap();
    let error = space.open(0, 2, frozen.file().try_clone_to_owned().unwrap()).unwrap_err();
    let want = "shared memory of 65536 bytes with seals 0xf: expected 1048576 bytes, sealed";
    assert_eq!(error.to_string(), want);
    assert!(space.region(0, 2).is_ok(), "the slot is free after a refusal");
}

#[test]
fn layouts_that_make_no_range_are_refused() {
    for (origins, ranks, size) in
        [(0, 1, GRANULE), (1, 0, GRANULE), (1, 1, 0), (1, 1, 4096), (u32::MAX, u32::MAX, GRANULE)]
    {
        let error = Layout::new(origins, ranks, size).unwrap_err().to_string();
        assert!(error.contains("multiple of 65536 bytes"), "{error}");
    }
    // More than a process has addresses for, or nonsense: refused by the kernel, not a crash.
    let huge = Layout::new(1 << 15, 1 << 14, GRANULE).unwrap();
    assert!(Space::reserve(0x7000_0000_0000, huge).is_err());
    assert!(Space::reserve(u64::MAX - 7, layout()).is_err());
    assert!(Space::reserve(8, layout()).is_err());
}
