//! The systems that are compared. Each takes its graph from the sender's shape to a root that can be
//! used at the receiver, and tells the three parts of the time.

use std::hint::black_box;
use std::io::{IoSlice, Read};
use std::time::Instant;

use itg_papers::clusters::{
    Buffer, Cluster, ClusterIso, ClusterReloc, Fixed, FixedAddress, HEADER_LEN, Iso, Kind, Memory,
    Received, Reloc, Root, Schema,
};
use rkyv::util::AlignedVec;

use crate::link::Link;
use crate::load::Load;

/// Nanoseconds to encode, transfer, decode.
pub(crate) type Times = [u64; 3];

pub(crate) trait System {
    fn name(&self) -> &'static str;
    /// Once through; in the process when there is no link.
    fn run(&mut self, link: Option<&mut Link>) -> Times;
    /// Bytes of a message.
    fn wire_len(&self) -> usize;
    /// Bytes that the program itself writes between the sender's objects and the receiver's.
    fn copied(&self) -> usize;
}

fn times(start: Instant, encoded: Instant, came: Instant) -> Times {
    let end = Instant::now();
    [encoded - start, came - encoded, end - came].map(|took| took.as_nanos() as u64)
}

const LIMIT: usize = 1 << 30;
const PLACE: FixedAddress = FixedAddress { base: 0x2000_0000_0000, origin: 1, rank: 1 };

/// A cluster of either kind, and where the receiver has memory for it.
struct Clusters<L: Load, K: Kind, M, R> {
    name: &'static str,
    place: FixedAddress,
    /// Always there between two runs.
    cluster: Option<Cluster<L::Types, K, M>>,
    /// The receiver's memory, which is used again as that of the raw transfer is.
    memory: Option<M>,
    fresh: fn() -> M,
    root: std::marker::PhantomData<R>,
}

impl<L: Load, K: Kind, M: Memory, R> System for Clusters<L, K, M, R>
where
    L::Types: Schema<K>,
    R: Root<L::Types, K>,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, link: Option<&mut Link>) -> Times {
        let start = Instant::now();
        let Some(link) = link else {
            // The cluster is made ready for others, moves, and is checked as if it were not trusted.
            let mut cluster = self.cluster.take().expect("there between two runs");
            cluster.seal();
            let encoded = Instant::now();
            let memory = cluster.into_memory();
            let came = Instant::now();
            let cluster = Cluster::in_place(memory, self.place, LIMIT).expect("valid");
            black_box(cluster.root::<R>().expect("a root"));
            let times = times(start, encoded, came);
            self.cluster = Some(cluster);
            return times;
        };
        let cluster = self.cluster.as_ref().expect("there between two runs");
        let header = cluster.header().emit();
        let mut slices = [IoSlice::new(&header), IoSlice::new(cluster.body())];
        let encoded = Instant::now();
        let mut transfer = link.send(&mut slices);
        let mut header = [0; HEADER_LEN];
        transfer.read_exact(&mut header).expect("a header");
        let memory = self.memory.take().unwrap_or_else(self.fresh);
        let mut received =
            Received::<L::Types, K, M>::accept(&header, memory, self.place, LIMIT).expect("good");
        transfer.read_exact(received.body_mut()).expect("a body");
        let came = Instant::now();
        let there = received.validate().expect("valid");
        black_box(there.root::<R>().expect("a root"));
        let times = times(start, encoded, came);
        self.memory = Some(there.into_memory());
        times
    }

    fn wire_len(&self) -> usize {
        self.cluster.as_ref().map_or(0, Cluster::total_len)
    }

    fn copied(&self) -> usize {
        2 * HEADER_LEN
    }
}

/// The floor: as many bytes, from one buffer to another that is there already.
struct Raw {
    name: &'static str,
    bytes: Vec<u8>,
    there: Vec<u8>,
}

impl System for Raw {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, link: Option<&mut Link>) -> Times {
        let start = Instant::now();
        if let Some(link) = link {
            let mut slices = [IoSlice::new(&self.bytes)];
            link.send(&mut slices).read_exact(&mut self.there).expect("bytes");
        }
        times(start, start, Instant::now())
    }

    fn wire_len(&self) -> usize {
        self.bytes.len()
    }

    fn copied(&self) -> usize {
        0
    }
}

/// Sends a message behind its length and gives it to `read`, which makes room for it.
fn message<B: AsMut<[u8]>>(link: &mut Link, bytes: &[u8], room: impl Fn(usize) -> B) -> B {
    let len = (bytes.len() as u64).to_le_bytes();
    let mut slices = [IoSlice::new(&len), IoSlice::new(bytes)];
    let mut transfer = link.send(&mut slices);
    let mut len = [0; 8];
    transfer.read_exact(&mut len).expect("a length");
    let mut there = room(u64::from_le_bytes(len) as usize);
    transfer.read_exact(there.as_mut()).expect("a message");
    there
}

/// serde with some format: flatten and encode, decode and link.
struct Serde<L: Load> {
    name: &'static str,
    /// True if sender and receiver have the graph linked; false if indices are enough for them.
    linked: bool,
    here: L::Linked,
    flat: L::Flat,
    encode: fn(&L::Flat) -> Vec<u8>,
    decode: fn(&[u8]) -> L::Flat,
}

impl<L: Load> System for Serde<L> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, link: Option<&mut Link>) -> Times {
        let start = Instant::now();
        let bytes = if self.linked {
            (self.encode)(&L::flatten(&self.here))
        } else {
            (self.encode)(&self.flat)
        };
        let encoded = Instant::now();
        let bytes = match link {
            Some(link) => message(link, &bytes, |len| vec![0; len]),
            None => bytes,
        };
        let came = Instant::now();
        let flat = (self.decode)(&bytes);
        let linked = self.linked.then(|| L::link(&flat));
        black_box((&flat, &linked));
        times(start, encoded, came)
    }

    fn wire_len(&self) -> usize {
        (self.encode)(&self.flat).len()
    }

    fn copied(&self) -> usize {
        let (flat, linked) = L::sizes(&self.flat);
        self.wire_len() + flat + if self.linked { flat + linked } else { 0 }
    }
}

/// rkyv: the shape by index is archived and used in place.
struct Rkyv<L: Load> {
    name: &'static str,
    flat: L::Flat,
    access: Option<bool>,
}

impl<L: Load> System for Rkyv<L> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn run(&mut self, link: Option<&mut Link>) -> Times {
        let start = Instant::now();
        let bytes = L::archive(&self.flat);
        let encoded = Instant::now();
        let bytes = match link {
            Some(link) => message(link, &bytes, |len| {
                let mut there = AlignedVec::new();
                there.resize(len, 0);
                Aligned(there)
            }),
            None => Aligned(bytes),
        };
        let came = Instant::now();
        if let Some(indices) = self.access {
            assert!(black_box(L::access(&bytes.0, indices)), "indices are good");
        }
        times(start, encoded, came)
    }

    fn wire_len(&self) -> usize {
        L::archive(&self.flat).len()
    }

    fn copied(&self) -> usize {
        self.wire_len()
    }
}

struct Aligned(AlignedVec);

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// All systems for one graph.
pub(crate) fn systems<L: Load + 'static>(graph: &dyn Fn() -> L::Flat) -> Vec<Box<dyn System>> {
    let flat = graph();
    let mut reloc = ClusterReloc::<L::Types>::with_capacity(0);
    L::build(&flat, &mut reloc).expect("built");
    let room = Buffer::with_capacity(1 << 20);
    let mut iso = ClusterIso::<L::Types, _>::new(room, PLACE);
    L::build(&flat, &mut iso).expect("built");
    let raw = |name, bytes: &[u8]| Raw { name, bytes: bytes.to_vec(), there: vec![0; bytes.len()] };
    let serde = |name, linked, encode, decode| {
        let (here, flat) = (L::link(&flat), graph());
        Box::new(Serde::<L> { name, linked, here, flat, encode, decode })
    };
    let rkyv = |name, access| Box::new(Rkyv::<L> { name, flat: graph(), access });
    vec![
        Box::new(raw("raw RELOC bytes", reloc.seal())),
        Box::new(raw("raw ISO bytes", iso.seal())),
        Box::new(Clusters::<L, Reloc, _, L::RelocRoot> {
            name: "cluster RELOC",
            place: FixedAddress::default(),
            cluster: Some(reloc),
            memory: None,
            fresh: Buffer::default,
            root: std::marker::PhantomData,
        }),
        Box::new(Clusters::<L, Iso, _, L::IsoRoot> {
            name: "cluster ISO",
            place: PLACE,
            cluster: Some(iso),
            memory: None,
            fresh: || Fixed(Buffer::with_capacity(1 << 20)),
            root: std::marker::PhantomData,
        }),
        rkyv("rkyv", Some(false)),
        rkyv("rkyv, checked indices", Some(true)),
        rkyv("rkyv, not checked", None),
        serde("postcard", true, to_postcard::<L>, from_postcard::<L>),
        serde("bincode", true, to_bincode::<L>, from_bincode::<L>),
        serde("bincode, not linked", false, to_bincode::<L>, from_bincode::<L>),
        serde("serde_json", true, to_json::<L>, from_json::<L>),
    ]
}

fn to_json<L: Load>(flat: &L::Flat) -> Vec<u8> {
    serde_json::to_vec(flat).expect("encoded")
}

fn from_json<L: Load>(bytes: &[u8]) -> L::Flat {
    serde_json::from_slice(bytes).expect("decoded")
}

fn to_bincode<L: Load>(flat: &L::Flat) -> Vec<u8> {
    bincode::serde::encode_to_vec(flat, bincode::config::standard()).expect("encoded")
}

fn from_bincode<L: Load>(bytes: &[u8]) -> L::Flat {
    bincode::serde::decode_from_slice(bytes, bincode::config::standard()).expect("decoded").0
}

fn to_postcard<L: Load>(flat: &L::Flat) -> Vec<u8> {
    postcard::to_allocvec(flat).expect("encoded")
}

fn from_postcard<L: Load>(bytes: &[u8]) -> L::Flat {
    postcard::from_bytes(bytes).expect("decoded")
}
