//! random graphs with cycles, sharing, nulls, arrays and strings are the same graphs after a
//! transfer, in both kinds.
#![allow(missing_docs, clippy::float_cmp, reason = "a test; numbers have to come back bit for bit")]

mod common;

use std::collections::BTreeMap;

use common::*;
use itg_papers::clusters::{Cluster, ClusterReloc, Iso, Kind, Memory, Ref, Reloc, StoreError};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A node as it should be: references are indices, shared strings and arrays too.
#[derive(Clone, Debug)]
struct Model {
    label: u64,
    delta: i16,
    share: f64,
    open: bool,
    next: [Option<usize>; 2],
    name: Option<usize>,
    others: Option<Vec<Option<usize>>>,
    values: Option<Vec<u16>>,
}

fn graphs() -> impl Strategy<Value = (Vec<Model>, Vec<String>)> {
    (1_usize..12, 1_usize..4).prop_flat_map(|(nodes, names)| {
        let node = (
            any::<u64>(),
            -300..=300_i16,
            0.0..=1.0,
            any::<bool>(),
            [option::of(0..nodes), option::of(0..nodes)],
            option::of(0..names),
            option::of(vec(option::of(0..nodes), 0..4)),
            option::of(vec(any::<u16>(), 0..9)),
        );
        let node = node.prop_map(|(label, delta, share, open, next, name, others, values)| Model {
            label,
            delta,
            share,
            open,
            next,
            name,
            others,
            values,
        });
        (vec(node, nodes), vec("[a-zä]{0,12}", names))
    })
}

fn build<K: Kind, M: Memory>(
    c: &mut Cluster<Graph, K, M>,
    (nodes, names): &(Vec<Model>, Vec<String>),
) -> Result<(), StoreError> {
    let names = names.iter().map(|name| c.alloc_str(name)).collect::<Result<Vec<_>, _>>()?;
    let places =
        nodes.iter().map(|node| c.alloc(lone(node.label))).collect::<Result<Vec<_>, _>>()?;
    let to = |index: Option<usize>| index.map_or_else(Ref::null, |index| places[index]);
    for (&place, node) in places.iter().zip(nodes) {
        let others = match &node.others {
            Some(others) => {
                c.alloc_array(&others.iter().map(|&other| to(other)).collect::<Vec<_>>())?
            }
            None => Ref::null(),
        };
        let values = match &node.values {
            Some(values) => c.alloc_array(values)?,
            None => Ref::null(),
        };
        let name = node.name.map_or_else(Ref::null, |name| names[name]);
        let next = node.next.map(to);
        c.update(place, |n| {
            *n = Node { delta: node.delta, share: node.share, open: node.open, ..*n };
            *n = Node { next, name, others, values, ..*n };
        })?;
    }
    c.set_root(places[0]);
    Ok(())
}

/// Walks cluster and model side by side from the root: the pairing has to be one to one.
fn is_isomorphic<K: Kind, M: Memory>(
    c: &Cluster<Graph, K, M>,
    (nodes, names): &(Vec<Model>, Vec<String>),
) {
    let mut node_of: BTreeMap<Ref<Node<K>, K>, usize> = BTreeMap::new();
    let mut place_of: BTreeMap<usize, Ref<Node<K>, K>> = BTreeMap::new();
    let mut name_of: BTreeMap<Ref<str, K>, usize> = BTreeMap::new();
    let mut to_do = vec![(c.root_ref::<Node<K>>(), Some(0))];
    while let Some((reference, index)) = to_do.pop() {
        let Some(index) = index else {
            assert!(reference.is_null());
            continue;
        };
        let there = c.get(reference).expect("not null");
        if let Some(&known) = node_of.get(&reference) {
            assert_eq!(known, index, "two nodes of the model are one");
            continue;
        }
        node_of.insert(reference, index);
        assert_eq!(place_of.insert(index, reference), None, "one node of the model is two");
        let node = &nodes[index];
        assert_eq!((there.label, there.delta, there.open), (node.label, node.delta, node.open));
        assert_eq!(there.share, node.share);
        assert_eq!(c.get(there.values), node.values.as_deref());
        match node.name {
            None => assert!(there.name.is_null()),
            Some(name) => {
                assert_eq!(c.get(there.name), Some(names[name].as_str()));
                assert_eq!(*name_of.entry(there.name).or_insert(name), name, "sharing is kept");
            }
        }
        to_do.extend(there.next.into_iter().zip(node.next));
        let others = c.get(there.others);
        assert_eq!(others.map(<[_]>::len), node.others.as_ref().map(Vec::len));
        if let (Some(there), Some(here)) = (others, &node.others) {
            to_do.extend(there.iter().copied().zip(here.iter().copied()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn x_2_random_graphs_are_the_same_after_a_transfer(graph in graphs()) {
        let mut wire = Vec::new();
        let mut sent = reloc::<Graph>();
        build::<Reloc, _>(&mut sent, &graph).unwrap();
        sent.send(&mut wire).unwrap();
        let came = ClusterReloc::<Graph>::recv(&mut wire.as_slice(), LIMIT).unwrap();
        is_isomorphic(&came.validate().unwrap(), &graph);

        wire.clear();
        let mut sent = iso::<Graph>();
        build::<Iso, _>(&mut sent, &graph).unwrap();
        sent.send(&mut wire).unwrap();
        let mut there = iso::<Graph>();
        there.recv(&mut wire.as_slice(), LIMIT).unwrap();
        is_isomorphic(&there, &graph);
    }
}
