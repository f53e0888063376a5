//! Types, schemas and examples that the tests of clusters share.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "each test uses its part; the bits of numbers are looked at"
)]

pub mod twin;

use itg_papers::clusters::{
    Buffer, Cluster, ClusterIso, ClusterReloc, FixedAddress, Iso, Kind, Memory, Ref, Reloc, Schema,
    StoreError, object, schema,
};

object! {
    pub enum Fuel: u8 { Petrol = 0, Diesel = 1, Current = 2 }
}
object! {
    pub struct Engine { pub power: u32 where 1..=2000, pub fuel: Fuel, pub turbo: bool }
}
object! {
    pub struct Car<K> { pub year: u32, pub engine: Ref<Engine, K>, pub name: Ref<str, K> }
}
schema! {
    /// Expresso's example.
    pub struct Cars = "test.cars.1";
    roots: Car<K>;
    others: Engine, str;
}

object! {
    /// A point on a map.
    pub struct Point { pub x: f32 where -1.0..=1.0, pub y: f32 where -1.0..=1.0 }
}
object! {
    /// Everything a field can be, with gaps.
    pub struct Node<K> {
        pub label: u64,
        pub small: u8,
        pub delta: i16 where -300..=300,
        pub share: f64 where 0.0..=1.0,
        pub fuel: Fuel,
        pub open: bool,
        pub at: Point,
        pub next: [Ref<Node<K>, K>; 2],
        pub name: Ref<str, K>,
        pub others: Ref<[Ref<Node<K>, K>], K>,
        pub values: Ref<[u16], K>,
        pub flags: Ref<[bool], K>,
        pub track: Ref<[Point], K>,
    }
}
schema! {
    pub struct Graph = "test.graph.1";
    roots: Node<K>;
    others: str, [Ref<Node<K>, K>], [u16], [bool], [Point], u64;
}

/// A node that refers to nothing.
pub fn lone<K: Kind>(label: u64) -> Node<K> {
    Node {
        label,
        small: 5,
        delta: -300,
        share: 0.5,
        fuel: Fuel::Current,
        open: true,
        at: Point { x: -1.0, y: 1.0 },
        next: [Ref::null(); 2],
        name: Ref::null(),
        others: Ref::null(),
        values: Ref::null(),
        flags: Ref::null(),
        track: Ref::null(),
    }
}

/// Address that tests have agreed upon. Nothing is mapped there: `itg-socket` does that.
pub const ISO: FixedAddress = FixedAddress { base: 0x2000_0000_0000, origin: 3, rank: 7 };
pub const LIMIT: usize = 1 << 24;

pub fn reloc<S: Schema<Reloc>>() -> ClusterReloc<S> {
    ClusterReloc::with_capacity(0)
}

pub fn iso<S: Schema<Iso>>() -> ClusterIso<S, Buffer> {
    ClusterIso::new(Buffer::with_capacity(1 << 14), ISO)
}

/// The place of test clusters of a kind.
pub fn place<K: Kind>() -> FixedAddress {
    if K::NUMBER == Reloc::NUMBER { FixedAddress::default() } else { ISO }
}

/// Expresso's car, the same lines for both kinds.
pub fn build_car<K: Kind, M: Memory>(c: &mut Cluster<Cars, K, M>) -> Result<(), StoreError> {
    let engine = c.alloc(Engine { power: 50, fuel: Fuel::Diesel, turbo: true })?;
    let name = c.alloc_str("Mégane")?;
    let car = c.alloc(Car { year: 2000, engine, name })?;
    c.set_root(car);
    Ok(())
}

/// Two nodes in a circle, and one of everything.
pub fn build_graph<K: Kind, M: Memory>(c: &mut Cluster<Graph, K, M>) -> Result<(), StoreError> {
    let first = c.alloc(lone(1))?;
    let second = c.alloc(Node { next: [first, Ref::null()], ..lone(2) })?;
    let name = c.alloc_str("circle")?;
    let others = c.alloc_array(&[first, Ref::null(), second])?;
    let values = c.alloc_array(&[1_u16, 2, 3])?;
    let flags = c.alloc_array(&[true, false, true])?;
    let track = c.alloc_array(&[Point { x: 0.0, y: 0.25 }])?;
    c.alloc(77_u64)?;
    let next = [second, first];
    c.update(first, |node| *node = Node { next, name, others, values, flags, track, ..*node })?;
    c.set_root(first);
    Ok(())
}

/// The bytes where a transport or a file would have them: at a multiple of 8.
pub fn aligned(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::with_capacity(bytes.len());
    buffer.as_mut()[..bytes.len()].copy_from_slice(bytes);
    buffer
}

/// Checks bytes as a cluster, holds the verdict against that of the plain validator, and looks at
/// everything in it when it is one. The number depends on all of it.
pub fn look_at<K: Kind>(bytes: &[u8]) -> Result<u64, String> {
    let buffer = aligned(bytes);
    let bytes = &buffer.as_ref()[..bytes.len()];
    let checked = Cluster::<Graph, K, _>::check_at(bytes, place::<K>(), LIMIT);
    let verdict = checked.as_ref().err();
    assert_eq!(verdict.is_none(), twin::is_cluster::<K>(bytes), "verdict {verdict:?}");
    let c = checked.map_err(|refusal| refusal.to_string())?;
    let mut sum = c.root::<Node<K>>().map_or(0, |node| node.label);
    let mut seen = 0;
    for (reference, node) in c.iter::<Node<K>>() {
        assert_eq!(c.get(reference).map(|node| node.label), Some(node.label));
        assert!((0.0..=1.0).contains(&node.share) && (-300..=300).contains(&node.delta));
        node.next.iter().for_each(|&next| sum ^= c.get(next).map_or(0, |node| node.label));
        sum ^= c.get(node.name).map_or(0, |text| text.chars().count() as u64);
        for &other in c.get(node.others).unwrap_or(&[]) {
            sum ^= c.get(other).map_or(0, |node| node.label);
        }
        sum ^= c.get(node.values).map_or(0, |values| values.iter().map(|&v| u64::from(v)).sum());
        sum ^= c.get(node.flags).map_or(0, |flags| flags.iter().filter(|&&f| f).count() as u64);
        let track = c.get(node.track).unwrap_or(&[]);
        assert!(track.iter().all(|p| (-1.0..=1.0).contains(&p.x) && (-1.0..=1.0).contains(&p.y)));
        seen += 1;
    }
    seen += c.iter::<str>().count() + c.iter::<[Ref<Node<K>, K>]>().count();
    seen += c.iter::<[u16]>().count() + c.iter::<[bool]>().count() + c.iter::<[Point]>().count();
    seen += c.iter::<u64>().count();
    assert_eq!(seen, c.objects() as usize, "every object has a type");
    Ok(sum)
}
