//! The acceptance scenarios of clusters that need no other process, and what
//! setters promise. X-2 is in `cluster_graphs.rs`, X-3 and X-4 in `cluster_hostile.rs`, X-6 in
//! `iso.rs`, X-7 in `benches/expresso/`.
#![allow(missing_docs, unreachable_pub, reason = "a test")]

mod common;

use std::io::{self, IoSlice, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;

use common::*;
use itg_papers::clusters::{
    Buffer, Cluster, ClusterIso, ClusterReloc, HEADER_LEN, Iso, Kind, Memory, RecvError, Ref,
    Refusal, Reloc, Schema, StoreError, TABLE_LEN_MAX, compare_tables, object, schema, schema_hash,
};

fn is_the_car<K: Kind, M: Memory>(c: &Cluster<Cars, K, M>) {
    let car: &Car<K> = c.root().expect("a car");
    let engine = c.get(car.engine).expect("an engine");
    assert_eq!((car.year, engine.power, engine.fuel, engine.turbo), (2000, 50, Fuel::Diesel, true));
    assert_eq!(c.get(car.name), Some("Mégane"));
    assert_eq!(c.objects(), 3);
}

#[test]
fn x_1_a_car_and_its_engine_arrive_in_both_kinds() {
    let mut sent = reloc::<Cars>();
    build_car(&mut sent).unwrap();
    let mut wire = Vec::new();
    sent.send(&mut wire).unwrap();
    let came = ClusterReloc::<Cars>::recv(&mut wire.as_slice(), LIMIT).unwrap();
    is_the_car(&came.validate().unwrap());

    let mut sent = iso::<Cars>();
    build_car(&mut sent).unwrap();
    sent.set_tag(8);
    let mut wire = Vec::new();
    sent.send(&mut wire).unwrap();
    let mut there = iso::<Cars>();
    there.recv(&mut wire.as_slice(), LIMIT).unwrap();
    is_the_car(&there);
    assert_eq!((there.tag(), there.place()), (8, ISO));
    let car = there.root_ref::<Car<Iso>>();
    assert_eq!(car.number(), ISO.base + 64 + 16 + 24, "an address");
}

#[test]
fn contents_that_are_refused_leave_no_trace_in_a_fixed_cluster() {
    let mut sent = iso::<Cars>();
    build_car(&mut sent).unwrap();
    let mut wire = Vec::new();
    sent.send(&mut wire).unwrap();
    let mut there = iso::<Cars>();
    there.recv(&mut wire.as_slice(), LIMIT).unwrap();
    wire[24] ^= 1; // another origin: the header is refused, the contents stay
    let error = there.recv(&mut wire.as_slice(), LIMIT).unwrap_err().to_string();
    assert_eq!(error, "the cluster was refused: cluster field `origin` is 0x2: expected 0x3");
    is_the_car(&there);
    wire[24] ^= 1;
    let error = there.recv(&mut &wire[..100], LIMIT).unwrap_err();
    assert!(matches!(error, RecvError::Io(_)), "{error}");
    assert_eq!((there.objects(), there.total_len()), (0, HEADER_LEN), "empty");
    assert!(there.root::<Car<Iso>>().is_none());
    build_car(&mut there).unwrap();
    is_the_car(&there);
}

/// A socket that notes which memory the kernel reads from and writes to.
struct Watched {
    socket: UnixStream,
    touched: Vec<Range<usize>>,
}

impl Watched {
    fn touch(&mut self, bytes: &[u8], len: usize) {
        let start = bytes.as_ptr() as usize;
        self.touched.push(start..start + len.min(bytes.len()));
    }

    /// Bytes that went through memory outside of `place`: copied, or still to be copied.
    fn elsewhere(&self, place: &[u8]) -> usize {
        let place = place.as_ptr_range();
        let place = place.start as usize..place.end as usize;
        let outside = |r: &&Range<usize>| r.start < place.start || r.end > place.end;
        self.touched.iter().filter(outside).map(ExactSizeIterator::len).sum()
    }
}

impl Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let written = self.socket.write_vectored(slices)?;
        let mut left = written;
        for slice in slices {
            self.touch(slice, left);
            left -= left.min(slice.len());
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Watched {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.socket.read(bytes)?;
        self.touch(bytes, len);
        Ok(len)
    }
}

fn watched_pair() -> (Watched, Watched) {
    let (a, b) = UnixStream::pair().expect("a pair of sockets");
    (Watched { socket: a, touched: vec![] }, Watched { socket: b, touched: vec![] })
}

#[test]
fn x_5_no_byte_of_a_body_is_copied_in_user_space() {
    // Sockets: the kernel reads the sender's cluster and writes the receiver's, nothing else.
    let mut sent = reloc::<Graph>();
    for _ in 0..20 {
        build_graph(&mut sent).unwrap();
    }
    let (mut tx, mut rx) = watched_pair();
    sent.send(&mut tx).unwrap();
    assert_eq!(tx.elsewhere(sent.body()), HEADER_LEN, "only the header is made to be sent");
    let came = ClusterReloc::<Graph>::recv(&mut rx, LIMIT).unwrap().validate().unwrap();
    assert_eq!(rx.elsewhere(came.body()), HEADER_LEN, "only the header is read elsewhere");
    assert_eq!(came.body(), sent.body());

    let mut sent = iso::<Graph>();
    build_graph(&mut sent).unwrap();
    let mut there = iso::<Graph>();
    let (mut tx, mut rx) = watched_pair();
    sent.send(&mut tx).unwrap();
    there.recv(&mut rx, LIMIT).unwrap();
    assert_eq!(tx.elsewhere(sent.body()) + rx.elsewhere(there.body()), 2 * HEADER_LEN);
    assert_eq!(there.body(), sent.body());

    // In the process: ownership moves, the bytes stay.
    let (to, from) = std::sync::mpsc::channel();
    let place = came.body().as_ptr();
    to.send(came).unwrap();
    let moved = from.recv().unwrap();
    assert_eq!(moved.body().as_ptr(), place);
}

#[test]
fn x_9_equal_values_give_equal_bytes_whatever_the_memory_held() {
    fn sealed(dirt: u8) -> Vec<u8> {
        let mut memory = Buffer::with_capacity(1 << 14);
        memory.as_mut().fill(dirt);
        let mut c = ClusterIso::<Graph, _>::new(memory, ISO);
        build_graph(&mut c).unwrap();
        c.seal().to_vec()
    }
    assert_eq!(sealed(0xaa), sealed(0x55));

    let mut c = reloc::<Graph>();
    build_graph(&mut c).unwrap();
    let first = c.seal().to_vec();
    c.clear();
    for _ in 0..100 {
        c.alloc(u64::MAX).unwrap(); // dirt for the next one to lie on
    }
    c.clear();
    build_graph(&mut c).unwrap();
    assert_eq!(c.seal(), first);

    // The gaps themselves: 1 byte behind `small`, 4 behind `delta`, 2 behind `open`.
    let node = &first[HEADER_LEN + 8..];
    assert_eq!((node[9], &node[12..16], &node[26..28]), (0, &[0; 4][..], &[0; 2][..]));
}

mod later {
    use itg_papers::clusters::{Ref, object, schema};

    use super::common::Engine;

    object! {
        pub struct Car<K> {
            pub year: u32,
            pub engine: Ref<Engine, K>,
            pub name: Ref<str, K>,
            pub doors: u32,
        }
    }
    schema! {
        pub struct Cars = "test.cars.1";
        roots: Car<K>;
        others: Engine, str;
    }
}

#[test]
fn x_10_a_schema_that_has_changed_is_refused_by_the_name_of_the_type() {
    let mut sent = reloc::<later::Cars>();
    let car = later::Car { year: 2000, engine: Ref::null(), name: Ref::null(), doors: 3 };
    let car = sent.alloc(car).unwrap();
    sent.set_root(car);
    let mut wire = Vec::new();
    sent.send(&mut wire).unwrap();
    let refused = ClusterReloc::<Cars>::recv(&mut wire.as_slice(), LIMIT).unwrap_err();
    assert!(matches!(&refused, RecvError::Refused(Refusal::Schema { .. })), "{refused}");
    assert!(refused.to_string().ends_with("`test.cars.1`"), "{refused}");

    let here = <Cars as Schema<Reloc>>::table();
    let there = <later::Cars as Schema<Reloc>>::table();
    let mismatch = compare_tables(here, there).unwrap_err().to_string();
    let want = "type `Car` differs: \
        `0 root Car 12/4 { year@0:u32, engine@4:&Engine, name@8:&str }` here, \
        `0 root Car 16/4 { year@0:u32, engine@4:&Engine, name@8:&str, doors@12:u32 }` there; \
        both sides need one version";
    assert_eq!(mismatch, want);
}

#[test]
fn tables_that_differ_name_the_difference() {
    let rows = [
        ("s k\n0 A", "s k\n0 A", Ok(())),
        (
            "s k\n0 A",
            "t k\n0 A",
            Err("schema `s k` here, `t k` there: the two sides do not use the same objects"),
        ),
        (
            "s k\n0 A\n1 [u8]",
            "s k\n0 A",
            Err("type `1 [u8]` is known only here: both sides need one version of the schema"),
        ),
        (
            "s k\n0 root A",
            "s k\n0 root A\n1 B 1/1",
            Err("type `B` is known only there: both sides need one version of the schema"),
        ),
        (
            "s k\n0 A",
            "s k\n0 A\tx",
            Err("type `A` differs: `0 A` here, `0 A\\tx` there; both sides need one version"),
        ),
        ("", "", Ok(())),
    ];
    for (here, there, want) in rows {
        let got = compare_tables(here, there).map_err(|mismatch| mismatch.to_string());
        assert_eq!(got, want.map_err(str::to_owned), "{there:?}");
    }
    let long = format!("s k\n0 A {}", "x".repeat(300));
    let mismatch = compare_tables("s k\n0 A", &long).unwrap_err().to_string();
    assert!(mismatch.len() < 400 && mismatch.contains('…'), "{mismatch}");
}

#[test]
fn type_tables_are_as_documented_and_their_hash_is_that_of_the_text() {
    let want = "test.cars.1 fixed-address\n\
        0 root Car 24/8 { year@0:u32, engine@8:&Engine, name@16:&str }\n\
        1 Engine 8/4 { power@0:u32 in 1..=2000, fuel@4:Fuel=u8(Petrol=0 Diesel=1 Current=2), \
        turbo@5:bool }\n\
        2 str";
    assert_eq!(<Cars as Schema<Iso>>::table(), want);
    assert_eq!(<Cars as Schema<Iso>>::HASH, schema_hash(want));
    let graph = <Graph as Schema<Reloc>>::table();
    assert!(graph.len() < TABLE_LEN_MAX);
    assert!(graph.contains("delta@10:i16 in -300..=300, share@16:f64 in 0x0..=0x3ff0000000000000"));
    assert!(graph.contains("next@36:[&Node; 2], name@44:&str, others@48:&[&Node]"), "{graph}");
}

fn refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    result.expect_err("must be refused").to_string()
}

#[test]
fn setters_keep_what_the_types_declare() {
    let mut c = reloc::<Graph>();
    build_graph(&mut c).unwrap();
    let root = c.root_ref::<Node<Reloc>>();
    let track = c.get(root).unwrap().track;
    let before = c.seal().to_vec();
    assert_eq!(
        refusal(c.update(root, |node| node.share = 1.5)),
        "`Node` cannot be stored: field `share`: the number is outside its declared bounds"
    );
    assert!(refusal(c.update(root, |node| node.share = f64::NAN)).contains("field `share`"));
    assert!(refusal(c.update(root, |node| node.at.x = 2.0)).contains("field `x`"));
    assert!(refusal(c.set_element(track, 0, Point { x: 0.0, y: 7.0 })).contains("field `y`"));
    assert_eq!(
        refusal(c.set_element(track, 1, Point { x: 0.0, y: 0.0 })),
        "element 1 of an array of 1: there is none"
    );
    let none = Ref::<Node<Reloc>>::null();
    let want = "a null reference leads to no `Node` that could be changed";
    assert_eq!(refusal(c.set(none, lone(1))), want);

    let mut other = reloc::<Graph>();
    let foreign = (0..100).map(|_| other.alloc(lone(9)).unwrap()).last().unwrap();
    let want = "`Node` cannot be stored: field `next`: reference 0x383 leads out of the cluster";
    assert_eq!(refusal(c.update(root, |node| node.next[1] = foreign)), want);
    assert_eq!(refusal(c.alloc(Node { next: [foreign; 2], ..lone(1) })), want);
    assert_eq!(c.seal(), before, "nothing has changed");

    c.set_element(track, 0, Point { x: 0.5, y: -0.5 }).unwrap();
    c.update(root, |node| node.next = [Ref::null(), root]).unwrap();
    let again = look_at::<Reloc>(c.seal());
    assert!(again.is_ok(), "{again:?}");
}

#[test]
#[should_panic(expected = "a reference of another cluster was used: reference 0x8 leads out")]
fn reading_with_a_reference_of_another_cluster_is_a_bug() {
    let mut c = reloc::<Graph>();
    let node = c.alloc(lone(1)).unwrap();
    assert!(reloc::<Graph>().get(node).is_none(), "not reached");
}

#[test]
fn fixed_memory_is_full_some_day_and_says_so() {
    let mut c = ClusterIso::<Graph, _>::new(Buffer::with_capacity(128), ISO);
    c.alloc(1_u64).unwrap();
    let want = "no room for an object of 56 bytes in a cluster of 80 bytes: at most 128";
    assert_eq!(refusal(c.alloc_str(&"x".repeat(40))), want);
    c.alloc_str(&"x".repeat(32)).unwrap();
    assert_eq!((c.objects(), c.total_len()), (2, 128));
}

#[test]
fn a_checksum_is_carried_and_checked_when_asked_for() {
    let mut c = reloc::<Graph>();
    build_graph(&mut c).unwrap();
    c.set_checksum(true);
    let mut bytes = c.seal().to_vec();
    look_at::<Reloc>(&bytes).expect("good");
    *bytes.last_mut().unwrap() ^= 1;
    let refused = look_at::<Reloc>(&bytes).unwrap_err();
    assert!(refused.starts_with("cluster checksum: the header says 0x"), "{refused}");
}

object! {
    struct Tiny { value: u8 }
}
schema! {
    struct Small = "test.small.1";
    roots: Tiny;
}

#[test]
fn a_schema_may_be_private_and_have_one_type() {
    let mut c = ClusterIso::<Small, _>::new(Buffer::with_capacity(100), ISO);
    let root = c.alloc(Tiny { value: 3 }).unwrap();
    c.set_root(root);
    c.seal();
    let again = ClusterIso::<Small, _>::in_place(c.into_memory(), ISO, LIMIT).unwrap();
    assert_eq!(again.root::<Tiny>().map(|tiny| tiny.value), Some(3));
}
