//! The graph of an experiment as agents get it: flows between nodes, each node with the list
//! of the flows that it sends.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use itg_papers::clusters::{Cluster, Iso, Kind, Memory, Ref, Reloc, StoreError, object, schema};
use rkyv::rancor;
use rkyv::util::AlignedVec;

use crate::load::{Load, Random, indices, to, weak};

object! {
    pub(crate) struct Node<K> {
        pub(crate) address: u32,
        pub(crate) port: u32,
        pub(crate) sends: [Ref<Flow<K>, K>; 1],
    }
}
object! {
    pub(crate) struct Flow<K> {
        pub(crate) start_ns: u64,
        pub(crate) duration_ns: u64,
        pub(crate) gap_ns: u64,
        pub(crate) seed: u64,
        pub(crate) number: u32,
        pub(crate) size: u32,
        pub(crate) ends: [Ref<Node<K>, K>; 2],
        pub(crate) next: [Ref<Flow<K>, K>; 1],
    }
}
schema! {
    pub(crate) struct FlowTypes = "bench.flows.1";
    roots: Node<K>;
    others: Flow<K>;
}

#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatNode {
    address: u32,
    port: u32,
    sends: [Option<u32>; 1],
}
#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatFlow {
    start_ns: u64,
    duration_ns: u64,
    gap_ns: u64,
    seed: u64,
    number: u32,
    size: u32,
    ends: [Option<u32>; 2],
    next: [Option<u32>; 1],
}
#[derive(serde::Serialize, serde::Deserialize, rkyv::Archive, rkyv::Serialize)]
pub(crate) struct FlatFlows {
    nodes: Vec<FlatNode>,
    flows: Vec<FlatFlow>,
}

pub(crate) struct LinkedNode {
    index: Cell<u32>,
    address: u32,
    port: u32,
    sends: RefCell<[Option<Weak<LinkedFlow>>; 1]>,
}
pub(crate) struct LinkedFlow {
    index: Cell<u32>,
    start_ns: u64,
    duration_ns: u64,
    gap_ns: u64,
    seed: u64,
    number: u32,
    size: u32,
    ends: RefCell<[Option<Weak<LinkedNode>>; 2]>,
    next: RefCell<[Option<Weak<Self>>; 1]>,
}
/// The graph as a program has it, and the owners of its objects.
pub(crate) struct LinkedFlows {
    nodes: Vec<Rc<LinkedNode>>,
    flows: Vec<Rc<LinkedFlow>>,
}

/// An experiment of `flows` flows between `nodes` nodes.
pub(crate) fn experiment(nodes: u32, flows: u32) -> FlatFlows {
    let mut random = Random(u64::from(flows));
    let node = |n: u32| FlatNode { address: 0x0a00_0000 + n, port: 9000, sends: [None] };
    let mut nodes: Vec<_> = (0..nodes).map(node).collect();
    let count = nodes.len() as u32;
    let mut list = Vec::new();
    for number in 0..flows {
        let (from, to) = (random.below(count), random.below(count));
        let next = nodes[from as usize].sends;
        nodes[from as usize].sends = [Some(number)];
        list.push(FlatFlow {
            start_ns: u64::from(random.below(1 << 30)),
            duration_ns: 20_000_000_000,
            gap_ns: 1000 * u64::from(1 + random.below(10_000)),
            seed: u64::from(random.below(1 << 31)),
            number,
            size: 64 + random.below(1400),
            ends: [Some(from), Some(to)],
            next,
        });
    }
    FlatFlows { nodes, flows: list }
}

/// The experiment of 10 000 flows.
pub(crate) struct Experiment;

impl Load for Experiment {
    type Flat = FlatFlows;
    type Linked = LinkedFlows;
    type Types = FlowTypes;
    type RelocRoot = Node<Reloc>;
    type IsoRoot = Node<Iso>;

    fn link(flat: &FlatFlows) -> LinkedFlows {
        let node = |n: &FlatNode| LinkedNode {
            index: Cell::new(0),
            address: n.address,
            port: n.port,
            sends: RefCell::default(),
        };
        let flow = |f: &FlatFlow| LinkedFlow {
            index: Cell::new(0),
            start_ns: f.start_ns,
            duration_ns: f.duration_ns,
            gap_ns: f.gap_ns,
            seed: f.seed,
            number: f.number,
            size: f.size,
            ends: RefCell::default(),
            next: RefCell::default(),
        };
        let nodes: Vec<_> = flat.nodes.iter().map(|n| Rc::new(node(n))).collect();
        let flows: Vec<_> = flat.flows.iter().map(|f| Rc::new(flow(f))).collect();
        for (node, flat) in nodes.iter().zip(&flat.nodes) {
            *node.sends.borrow_mut() = weak(&flat.sends, &flows);
        }
        for (flow, flat) in flows.iter().zip(&flat.flows) {
            *flow.ends.borrow_mut() = weak(&flat.ends, &nodes);
            *flow.next.borrow_mut() = weak(&flat.next, &flows);
        }
        LinkedFlows { nodes, flows }
    }

    fn flatten(linked: &LinkedFlows) -> FlatFlows {
        (0..).zip(&linked.nodes).for_each(|(index, node)| node.index.set(index));
        (0..).zip(&linked.flows).for_each(|(index, flow)| flow.index.set(index));
        let nodes = linked.nodes.iter().map(|n| FlatNode {
            address: n.address,
            port: n.port,
            sends: indices(&n.sends, |flow| flow.index.get()),
        });
        let flows = linked.flows.iter().map(|f| FlatFlow {
            start_ns: f.start_ns,
            duration_ns: f.duration_ns,
            gap_ns: f.gap_ns,
            seed: f.seed,
            number: f.number,
            size: f.size,
            ends: indices(&f.ends, |node| node.index.get()),
            next: indices(&f.next, |flow| flow.index.get()),
        });
        FlatFlows { nodes: nodes.collect(), flows: flows.collect() }
    }

    fn objects(flat: &FlatFlows) -> usize {
        flat.nodes.len() + flat.flows.len()
    }

    fn sizes(flat: &FlatFlows) -> (usize, usize) {
        let (nodes, flows) = (flat.nodes.len(), flat.flows.len());
        (
            nodes * size_of::<FlatNode>() + flows * size_of::<FlatFlow>(),
            nodes * size_of::<LinkedNode>() + flows * size_of::<LinkedFlow>(),
        )
    }

    fn build<K: Kind, M: Memory>(
        flat: &FlatFlows,
        c: &mut Cluster<FlowTypes, K, M>,
    ) -> Result<(), StoreError> {
        let (mut nodes, mut flows) = (Vec::new(), Vec::new());
        for n in &flat.nodes {
            let sends = [Ref::null(); 1];
            nodes.push(c.alloc(Node { address: n.address, port: n.port, sends })?);
        }
        for f in &flat.flows {
            flows.push(c.alloc(Flow {
                start_ns: f.start_ns,
                duration_ns: f.duration_ns,
                gap_ns: f.gap_ns,
                seed: f.seed,
                number: f.number,
                size: f.size,
                ends: to(&f.ends, &nodes),
                next: [Ref::null(); 1],
            })?);
        }
        for (&node, flat) in nodes.iter().zip(&flat.nodes) {
            c.update(node, |node| node.sends = to(&flat.sends, &flows))?;
        }
        for (&flow, flat) in flows.iter().zip(&flat.flows) {
            c.update(flow, |flow| flow.next = to(&flat.next, &flows))?;
        }
        c.set_root(nodes[0]);
        Ok(())
    }

    fn archive(flat: &FlatFlows) -> AlignedVec {
        rkyv::to_bytes::<rancor::Error>(flat).expect("archived")
    }

    fn access(bytes: &[u8], indices: bool) -> bool {
        let graph = rkyv::access::<ArchivedFlatFlows, rancor::Error>(bytes).expect("valid");
        let (nodes, flows) = (graph.nodes.len(), graph.flows.len());
        let fits = |link: &rkyv::option::ArchivedOption<rkyv::rend::u32_le>, count: usize| {
            link.as_ref().is_none_or(|index| (index.to_native() as usize) < count)
        };
        !indices
            || graph.nodes.iter().all(|node| node.sends.iter().all(|link| fits(link, flows)))
                && graph.flows.iter().all(|flow| {
                    flow.ends.iter().all(|link| fits(link, nodes))
                        && flow.next.iter().all(|link| fits(link, flows))
                })
    }
}
