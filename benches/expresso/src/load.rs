//! The transferred graphs: S1's (Expresso's) random road maps (table 2) and its binary tree of integers (table 1), in
//! the three shapes that a program can keep them in: linked, by index, and in a cluster.
//!
//! serde cannot express cycles, so the baselines send the shape by index. A program whose graph is
//! linked has to flatten it before and to link it again behind; both are part of their times.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use itg_papers::clusters::{
    Cluster, Iso, Kind, Memory, Ref, Reloc, Root, Schema, StoreError, object, schema,
};
use rkyv::rancor;
use rkyv::util::AlignedVec;

/// A kind of graph in all its shapes.
pub(crate) trait Load {
    /// By index.
    type Flat: serde::Serialize + serde::de::DeserializeOwned;
    /// Objects that point at each other.
    type Linked;
    /// The schema of the cluster.
    type Types: Schema<Reloc> + Schema<Iso>;
    /// The root of a relocatable cluster.
    type RelocRoot: Root<Self::Types, Reloc>;
    /// The root of a cluster of fixed address.
    type IsoRoot: Root<Self::Types, Iso>;

    fn link(flat: &Self::Flat) -> Self::Linked;
    fn flatten(linked: &Self::Linked) -> Self::Flat;
    fn objects(flat: &Self::Flat) -> usize;
    /// Bytes of the objects of the shape by index, and of the linked shape.
    fn sizes(flat: &Self::Flat) -> (usize, usize);
    fn build<K: Kind, M: Memory>(
        flat: &Self::Flat,
        into: &mut Cluster<Self::Types, K, M>,
    ) -> Result<(), StoreError>
    where
        Self::Types: Schema<K>;
    fn archive(flat: &Self::Flat) -> AlignedVec;
    /// rkyv's checked access, alone or followed by a check of every index: rkyv looks at tags and
    /// lengths, a cluster also at where references lead.
    fn access(bytes: &[u8], indices: bool) -> bool;
}

object! {
    pub(crate) struct Town<K> {
        pub(crate) id: u32,
        pub(crate) people: u32,
        pub(crate) x: f32,
        pub(crate) y: f32,
        pub(crate) roads: [Ref<Road<K>, K>; 4],
    }
}
object! {
    pub(crate) struct Road<K> {
        pub(crate) metres: u32,
        pub(crate) speed: u16,
        pub(crate) lanes: u8,
        pub(crate) toll: bool,
        pub(crate) ends: [Ref<Town<K>, K>; 2],
        pub(crate) next: [Ref<Road<K>, K>; 2],
    }
}
schema! {
    pub(crate) struct MapTypes = "bench.map.1";
    roots: Town<K>;
    others: Road<K>;
}
object! {
    pub(crate) struct Leaf<K> {
        pub(crate) value: i32,
        pub(crate) children: [Ref<Leaf<K>, K>; 2],
    }
}
schema! {
    pub(crate) struct TreeTypes = "bench.tree.1";
    roots: Leaf<K>;
}

#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatTown {
    id: u32,
    people: u32,
    x: f32,
    y: f32,
    roads: [Option<u32>; 4],
}
#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatRoad {
    metres: u32,
    speed: u16,
    lanes: u8,
    toll: bool,
    ends: [Option<u32>; 2],
    next: [Option<u32>; 2],
}
#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatMap {
    towns: Vec<FlatTown>,
    roads: Vec<FlatRoad>,
}

pub(crate) struct LinkedTown {
    index: Cell<u32>,
    id: u32,
    people: u32,
    x: f32,
    y: f32,
    roads: RefCell<[Option<Weak<LinkedRoad>>; 4]>,
}
pub(crate) struct LinkedRoad {
    index: Cell<u32>,
    metres: u32,
    speed: u16,
    lanes: u8,
    toll: bool,
    ends: RefCell<[Option<Weak<LinkedTown>>; 2]>,
    next: RefCell<[Option<Weak<Self>>; 2]>,
}
/// The graph as a program has it, and the owners of its objects.
pub(crate) struct LinkedMap {
    towns: Vec<Rc<LinkedTown>>,
    roads: Vec<Rc<LinkedRoad>>,
}

/// A generator that gives the same maps on every run (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 33) as u32 % bound
    }
}

/// A road map: objects with four references, about 2.5 of them not null.
pub(crate) fn map(towns: u32, objects: u32) -> FlatMap {
    let mut random = Random(u64::from(objects));
    let roads = objects - towns;
    let mut map = FlatMap { towns: Vec::new(), roads: Vec::new() };
    for id in 0..towns {
        let (people, x, y) =
            (random.below(2_000_000), random.below(1000) as f32, random.below(1000) as f32);
        map.towns.push(FlatTown { id, people, x, y, roads: [None; 4] });
    }
    for road in 0..roads {
        let (from, to) = (random.below(towns), random.below(towns));
        let slots = &mut map.towns[from as usize].roads;
        if let Some(slot) = slots.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(road);
        }
        let mut next = [None; 2];
        for next in &mut next {
            *next = (random.below(100) < 30).then(|| random.below(roads));
        }
        map.roads.push(FlatRoad {
            metres: random.below(90_000),
            speed: 50 + 10 * random.below(9) as u16,
            lanes: 1 + random.below(4) as u8,
            toll: random.below(4) == 0,
            ends: [Some(from), Some(to)],
            next,
        });
    }
    map
}

/// Non-null references an object, on average.
pub(crate) fn mean_references(map: &FlatMap) -> f64 {
    let towns: usize = map.towns.iter().map(|town| town.roads.iter().flatten().count()).sum();
    let roads = map.roads.iter().map(|road| (road.ends, road.next));
    let roads: usize =
        roads.map(|(a, b)| a.iter().flatten().count() + b.iter().flatten().count()).sum();
    (towns + roads) as f64 / (map.towns.len() + map.roads.len()) as f64
}

pub(crate) fn weak<T, const N: usize>(to: &[Option<u32>; N], of: &[Rc<T>]) -> [Option<Weak<T>>; N] {
    to.map(|index| index.and_then(|index| of.get(index as usize)).map(Rc::downgrade))
}

pub(crate) fn indices<T, const N: usize>(
    links: &RefCell<[Option<Weak<T>>; N]>,
    index: impl Fn(&T) -> u32,
) -> [Option<u32>; N] {
    let links = links.borrow();
    std::array::from_fn(|i| links[i].as_ref().and_then(Weak::upgrade).map(|to| index(&to)))
}

pub(crate) fn to<T, K: Kind, const N: usize>(
    links: &[Option<u32>; N],
    of: &[Ref<T, K>],
) -> [Ref<T, K>; N] {
    links.map(|link| link.map_or_else(Ref::null, |link| of[link as usize]))
}

/// S1, table 2.
pub(crate) struct Map;

impl Load for Map {
    type Flat = FlatMap;
    type Linked = LinkedMap;
    type Types = MapTypes;
    type RelocRoot = Town<Reloc>;
    type IsoRoot = Town<Iso>;

    fn link(flat: &FlatMap) -> LinkedMap {
        let town = |t: &FlatTown| LinkedTown {
            index: Cell::new(0),
            id: t.id,
            people: t.people,
            x: t.x,
            y: t.y,
            roads: RefCell::default(),
        };
        let road = |r: &FlatRoad| LinkedRoad {
            index: Cell::new(0),
            metres: r.metres,
            speed: r.speed,
            lanes: r.lanes,
            toll: r.toll,
            ends: RefCell::default(),
            next: RefCell::default(),
        };
        let towns: Vec<_> = flat.towns.iter().map(|t| Rc::new(town(t))).collect();
        let roads: Vec<_> = flat.roads.iter().map(|r| Rc::new(road(r))).collect();
        for (town, flat) in towns.iter().zip(&flat.towns) {
            *town.roads.borrow_mut() = weak(&flat.roads, &roads);
        }
        for (road, flat) in roads.iter().zip(&flat.roads) {
            *road.ends.borrow_mut() = weak(&flat.ends, &towns);
            *road.next.borrow_mut() = weak(&flat.next, &roads);
        }
        LinkedMap { towns, roads }
    }

    fn flatten(linked: &LinkedMap) -> FlatMap {
        (0..).zip(&linked.towns).for_each(|(index, town)| town.index.set(index));
        (0..).zip(&linked.roads).for_each(|(index, road)| road.index.set(index));
        let towns = linked.towns.iter().map(|t| FlatTown {
            id: t.id,
            people: t.people,
            x: t.x,
            y: t.y,
            roads: indices(&t.roads, |road| road.index.get()),
        });
        let roads = linked.roads.iter().map(|r| FlatRoad {
            metres: r.metres,
            speed: r.speed,
            lanes: r.lanes,
            toll: r.toll,
            ends: indices(&r.ends, |town| town.index.get()),
            next: indices(&r.next, |road| road.index.get()),
        });
        FlatMap { towns: towns.collect(), roads: roads.collect() }
    }

    fn objects(flat: &FlatMap) -> usize {
        flat.towns.len() + flat.roads.len()
    }

    fn sizes(flat: &FlatMap) -> (usize, usize) {
        let (towns, roads) = (flat.towns.len(), flat.roads.len());
        (
            towns * size_of::<FlatTown>() + roads * size_of::<FlatRoad>(),
            towns * size_of::<LinkedTown>() + roads * size_of::<LinkedRoad>(),
        )
    }

    fn build<K: Kind, M: Memory>(
        flat: &FlatMap,
        c: &mut Cluster<MapTypes, K, M>,
    ) -> Result<(), StoreError> {
        let (mut towns, mut roads) = (Vec::new(), Vec::new());
        for t in &flat.towns {
            let roads = [Ref::null(); 4];
            towns.push(c.alloc(Town { id: t.id, people: t.people, x: t.x, y: t.y, roads })?);
        }
        for r in &flat.roads {
            roads.push(c.alloc(Road {
                metres: r.metres,
                speed: r.speed,
                lanes: r.lanes,
                toll: r.toll,
                ends: to(&r.ends, &towns),
                next: [Ref::null(); 2],
            })?);
        }
        for (&town, flat) in towns.iter().zip(&flat.towns) {
            c.update(town, |town| town.roads = to(&flat.roads, &roads))?;
        }
        for (&road, flat) in roads.iter().zip(&flat.roads) {
            c.update(road, |road| road.next = to(&flat.next, &roads))?;
        }
        c.set_root(towns[0]);
        Ok(())
    }

    fn archive(flat: &FlatMap) -> AlignedVec {
        rkyv::to_bytes::<rancor::Error>(flat).expect("archived")
    }

    fn access(bytes: &[u8], indices: bool) -> bool {
        let map = rkyv::access::<ArchivedFlatMap, rancor::Error>(bytes).expect("valid");
        let (towns, roads) = (map.towns.len(), map.roads.len());
        let fits = |link: &rkyv::option::ArchivedOption<rkyv::rend::u32_le>, count: usize| {
            link.as_ref().is_none_or(|index| (index.to_native() as usize) < count)
        };
        !indices
            || map.towns.iter().all(|town| town.roads.iter().all(|link| fits(link, roads)))
                && map.roads.iter().all(|road| {
                    road.ends.iter().all(|link| fits(link, towns))
                        && road.next.iter().all(|link| fits(link, roads))
                })
    }
}

#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatLeaf {
    value: i32,
    children: [Option<u32>; 2],
}
#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatTree {
    leaves: Vec<FlatLeaf>,
}
pub(crate) struct LinkedLeaf {
    index: Cell<u32>,
    value: i32,
    children: RefCell<[Option<Weak<Self>>; 2]>,
}

/// A binary tree of `count` integers.
pub(crate) fn tree(count: u32) -> FlatTree {
    let mut random = Random(1);
    let leaf = |index: u32| FlatLeaf {
        value: random.below(1 << 30) as i32,
        children: [2 * index + 1, 2 * index + 2].map(|child| (child < count).then_some(child)),
    };
    FlatTree { leaves: (0..count).map(leaf).collect() }
}

/// S1, table 1.
pub(crate) struct Tree;

impl Load for Tree {
    type Flat = FlatTree;
    type Linked = Vec<Rc<LinkedLeaf>>;
    type Types = TreeTypes;
    type RelocRoot = Leaf<Reloc>;
    type IsoRoot = Leaf<Iso>;

    fn link(flat: &FlatTree) -> Self::Linked {
        let leaf = |leaf: &FlatLeaf| {
            let children = RefCell::default();
            Rc::new(LinkedLeaf { index: Cell::new(0), value: leaf.value, children })
        };
        let leaves: Vec<_> = flat.leaves.iter().map(leaf).collect();
        for (leaf, flat) in leaves.iter().zip(&flat.leaves) {
            *leaf.children.borrow_mut() = weak(&flat.children, &leaves);
        }
        leaves
    }

    fn flatten(linked: &Self::Linked) -> FlatTree {
        (0..).zip(linked).for_each(|(index, leaf)| leaf.index.set(index));
        let leaves = linked.iter().map(|leaf| FlatLeaf {
            value: leaf.value,
            children: indices(&leaf.children, |leaf| leaf.index.get()),
        });
        FlatTree { leaves: leaves.collect() }
    }

    fn objects(flat: &FlatTree) -> usize {
        flat.leaves.len()
    }

    fn sizes(flat: &FlatTree) -> (usize, usize) {
        let count = flat.leaves.len();
        (count * size_of::<FlatLeaf>(), count * size_of::<LinkedLeaf>())
    }

    fn build<K: Kind, M: Memory>(
        flat: &FlatTree,
        c: &mut Cluster<TreeTypes, K, M>,
    ) -> Result<(), StoreError> {
        let mut leaves = Vec::new();
        for leaf in &flat.leaves {
            leaves.push(c.alloc(Leaf { value: leaf.value, children: [Ref::null(); 2] })?);
        }
        for (&leaf, flat) in leaves.iter().zip(&flat.leaves) {
            c.update(leaf, |leaf| leaf.children = to(&flat.children, &leaves))?;
        }
        c.set_root(leaves[0]);
        Ok(())
    }

    fn archive(flat: &FlatTree) -> AlignedVec {
        rkyv::to_bytes::<rancor::Error>(flat).expect("archived")
    }

    fn access(bytes: &[u8], indices: bool) -> bool {
        let tree = rkyv::access::<ArchivedFlatTree, rancor::Error>(bytes).expect("valid");
        let count = tree.leaves.len();
        let fits = |link: &rkyv::option::ArchivedOption<rkyv::rend::u32_le>| {
            link.as_ref().is_none_or(|index| (index.to_native() as usize) < count)
        };
        !indices || tree.leaves.iter().all(|leaf| leaf.children.iter().all(fits))
    }
}
