//! Assertion (iii) as a user would see it: sender and receiver are two threads with blocking TCP
//! sockets, and a transfer lasts from the sender's call until the receiver can use the root.

use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use itg_papers::clusters::{Buffer, ClusterIso, ClusterReloc, FixedAddress, Iso, Reloc};

use crate::load::{Load, Map, MapTypes, Town};

const LIMIT: usize = 1 << 30;
const PLACE: FixedAddress = FixedAddress { base: 0x2000_0000_0000, origin: 1, rank: 1 };
/// Number of messages that are sent in turn: raw bytes and clusters, of both kinds.
const TURNS: usize = 4;

/// Medians in nanoseconds: raw bytes and cluster, relocatable; raw bytes and cluster, fixed address.
pub(crate) fn over_tcp(towns: u32, objects: u32, rounds: usize) -> io::Result<[f64; TURNS]> {
    let flat = super::load::map(towns, objects);
    let mut reloc = ClusterReloc::<MapTypes>::with_capacity(0);
    let mut iso = ClusterIso::<MapTypes, _>::new(Buffer::with_capacity(1 << 20), PLACE);
    Map::build(&flat, &mut reloc).expect("built");
    Map::build(&flat, &mut iso).expect("built");
    let raw = [reloc.seal().to_vec(), iso.seal().to_vec()];

    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut tx = TcpStream::connect(listener.local_addr()?)?;
    tx.set_nodelay(true)?;
    let (mut rx, _) = listener.accept()?;
    let (done, ended) = mpsc::channel::<Instant>();
    let mut there = raw.clone();
    let total = rounds + rounds / 10;
    let receiver = thread::spawn(move || {
        let mut fixed = ClusterIso::<MapTypes, _>::new(Buffer::with_capacity(1 << 20), PLACE);
        let mut memory = Buffer::default();
        for _ in 0..total {
            rx.read_exact(&mut there[0]).expect("bytes");
            done.send(Instant::now()).expect("the sender waits");
            let received = ClusterReloc::<MapTypes>::recv_in(memory, &mut rx, LIMIT).expect("good");
            let cluster = received.validate().expect("valid");
            black_box(cluster.root::<Town<Reloc>>().expect("a root"));
            done.send(Instant::now()).expect("the sender waits");
            memory = cluster.into_memory();
            rx.read_exact(&mut there[1]).expect("bytes");
            done.send(Instant::now()).expect("the sender waits");
            fixed.recv(&mut rx, LIMIT).expect("valid");
            black_box(fixed.root::<Town<Iso>>().expect("a root"));
            done.send(Instant::now()).expect("the sender waits");
        }
    });
    let mut times = [const { Vec::new() }; TURNS];
    for round in 0..total {
        for (turn, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            match turn {
                1 => reloc.send(&mut tx)?,
                3 => iso.send(&mut tx)?,
                raw_turn => tx.write_all(&raw[raw_turn / 2])?,
            }
            let end = ended.recv().expect("the receiver answers");
            if round >= rounds / 10 {
                times.push((end - start).as_nanos() as u64);
            }
        }
    }
    receiver.join().expect("the receiver ends well");
    Ok(times.map(|mut times| super::median(&mut times)))
}
