//! The tree of a view against the paper's deletion, done step by step on an explicit tree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use itg_members::radix::Tree;
use itg_members::{Arity, Changes, Member, Roster, Rules, Shape, View, ViewChange};
use itg_process::Slot;
use proptest::prelude::*;

const ARITIES: [u32; 4] = [2, 4, 8, 16];

fn arity(a: u32) -> Arity {
    a.try_into().expect("a power of two")
}

fn without(n: u32, dead: impl IntoIterator<Item = u32>) -> Roster {
    Roster::first(n).with(&Changes::removal(dead.into_iter().map(|s| Member::new(Slot(s), 1))), 2)
}

/// The paper's tree: parents and children, changed by its four steps.
struct Paper {
    parent: BTreeMap<u32, Option<u32>>,
}

impl Paper {
    fn new(n: u32, a: u32) -> Self {
        Self { parent: (0..n).map(|i| (i, i.checked_sub(1).map(|before| before / a))).collect() }
    }

    fn root(&self) -> u32 {
        *self.parent.iter().find(|(_, parent)| parent.is_none()).expect("a root").0
    }

    fn delete(&mut self, dead: u32) {
        let heir = self.parent.remove(&dead).expect("alive");
        // The root is followed by the next live node of the list.
        let heir = heir.unwrap_or_else(|| *self.parent.keys().next().expect("somebody is left"));
        for (child, parent) in &mut self.parent {
            if *child == heir && *parent == Some(dead) {
                *parent = None;
            } else if *parent == Some(dead) {
                *parent = Some(heir);
            }
        }
    }
}

/// Parents of all members; `children` must say the same.
fn parents(tree: Tree<'_>, roster: &Roster) -> BTreeMap<u32, Option<u32>> {
    let mut from_children: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    for member in roster.members() {
        for child in tree.children(member.slot) {
            let old = from_children.insert(child.0, Some(member.slot.0));
            assert_eq!(old, None, "{child} is a child of two");
        }
    }
    let parents = |m: Member| (m.slot.0, tree.parent(m.slot).map(|p| p.0));
    let parents: BTreeMap<_, _> = roster.members().map(parents).collect();
    from_children.extend(parents.iter().filter(|(_, p)| p.is_none()).map(|(c, p)| (*c, *p)));
    assert_eq!(from_children, parents, "parents and children disagree");
    parents
}

/// Every member reaches the root, and there is no other root.
fn spans(parents: &BTreeMap<u32, Option<u32>>, root: u32) {
    for start in parents.keys() {
        let (mut at, mut steps) = (*start, 0);
        while let Some(above) = parents[&at] {
            at = above;
            steps += 1;
            assert!(steps <= parents.len(), "a circle at {start}");
        }
        assert_eq!(at, root);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// F1: any order of failures, root failures included, yields the function.
    #[test]
    fn m_1_any_order_of_deletions_yields_the_tree_of_the_survivors(
        a in prop::sample::select(&ARITIES[..]),
        n in prop_oneof![1u32..64, 1u32..4096],
        picks in prop::collection::vec(any::<u32>(), 0..40),
    ) {
        let mut paper = Paper::new(n, a);
        let mut dead = Vec::new();
        for pick in picks {
            if paper.parent.len() > 1 {
                let at = pick as usize % paper.parent.len();
                // Every fourth failure is one of the root.
                let node = if pick % 4 == 0 { paper.root() } else { *paper.parent.keys().nth(at).unwrap() };
                paper.delete(node);
                dead.push(node);
            }
        }
        let roster = without(n, dead);
        let root = roster.members().next().unwrap().slot;
        let tree = Tree::new(&roster, root, arity(a), Shape::Contract);
        prop_assert_eq!(parents(tree, &roster), paper.parent);
    }

    /// F2: a process that comes back stands where it stood; a new one is a leaf.
    #[test]
    fn m_1_rejoining_restores_the_tree(
        a in prop::sample::select(&ARITIES[..]),
        n in 2u32..300,
        dead in prop::collection::btree_set(0u32..300, 0..100),
        back in 0u32..300,
    ) {
        let (back, dead) = (back % n, dead.into_iter().filter(|s| *s < n && *s != back % n));
        let before = without(n, dead);
        let gone = before.with(&Changes::removal([Member::new(Slot(back), 1)]), 3);
        let again = gone.with(&Changes::addition([Member::new(Slot(back), 2)]), 4);
        let root = before.members().next().unwrap().slot;
        let tree = |roster| parents(Tree::new(roster, root, arity(a), Shape::Contract), roster);
        prop_assert_eq!(tree(&before), tree(&again));
        let new = before.with(&Changes::addition([Member::new(Slot(n), 1)]), 3);
        let grown = Tree::new(&new, root, arity(a), Shape::Contract);
        prop_assert!(grown.children(Slot(n)).is_empty());
        let mut want = tree(&before);
        want.insert(n, grown.parent(Slot(n)).map(|p| p.0));
        prop_assert_eq!(tree(&new), want);
    }

    /// F3: under any acting root, in both shapes, it is a tree that spans the members; reranked, no
    /// member has more children than the arity and it is as low as can be.
    #[test]
    fn m_1_any_member_can_be_the_root(
        a in prop::sample::select(&ARITIES[..]),
        n in 1u32..400,
        dead in prop::collection::btree_set(0u32..400, 0..200),
        pick in any::<u32>(),
    ) {
        let keep = pick % n;
        let roster = without(n, dead.into_iter().filter(|slot| *slot < n && *slot != keep));
        let root = roster.of_rank(pick.rotate_left(7) % roster.len()).unwrap();
        for shape in [Shape::Contract, Shape::Rerank] {
            let tree = Tree::new(&roster, root, arity(a), shape);
            spans(&parents(tree, &roster), root.0);
        }
        let reranked = Tree::new(&roster, root, arity(a), Shape::Rerank);
        prop_assert!(reranked.fan_out() <= a as usize);
        prop_assert_eq!(reranked.height(), arity(a).height(roster.len()));
    }

    /// F4: views that were reached on different ways and agree in members, root and arity have one tree.
    #[test]
    fn m_1_one_view_has_one_tree(n in 2u32..200, order in Just((0u32..30).collect::<Vec<_>>()).prop_shuffle()) {
        let gone: Vec<_> = order.into_iter().filter(|s| *s + 1 < n).map(|s| Member::new(Slot(s), 1)).collect();
        let (mut serial, all) = (Roster::first(n), Changes::removal(gone.clone()));
        for member in gone {
            serial = serial.with(&Changes::removal([member]), 2);
        }
        let at_once = Roster::first(n).with(&all, 2);
        prop_assert_eq!(&serial, &at_once);
        let root = serial.members().next().unwrap().slot;
        let tree = |roster| parents(Tree::new(roster, root, Arity::FOUR, Shape::Contract), roster);
        prop_assert_eq!(tree(&serial), tree(&at_once));
    }

    /// The shifts against loops.
    #[test]
    fn positions_agree_with_counting(a in prop::sample::select(&ARITIES[..]), i in 0u32..1_000_000) {
        let (mut level, mut start, mut width) = (0, 0, 1);
        while i >= start + width {
            (level, start, width) = (level + 1, start + width, width * a);
        }
        let at = arity(a);
        prop_assert_eq!((at.level(i), at.index(i), at.level_start(level)), (level, i - start, start));
        let walked = at.path(i).iter().fold(0, |node, digit| a * node + 1 + digit);
        prop_assert_eq!(walked, i);
        prop_assert_eq!(at.height(i + 1), level + 1);
        if i > 0 {
            prop_assert_eq!(at.parent(i), Some((i - 1) / a));
        }
    }
}

/// Fault 15: the grandparent in place of the nearest ancestor that is in.
#[cfg(debug_assertions)]
#[test]
fn mutant_15_is_caught() {
    let caught = (0u64..100).find(|seed| {
        let mut rng = itg_core::seed::RunSeed(*seed).named("dead");
        let mut paper = Paper::new(85, 4);
        let mut dead = Vec::new();
        for _ in 0..20 {
            let pick = usize::try_from(itg_core::streams::below(&mut rng, 1000)).expect("small");
            let node = *paper.parent.keys().nth(pick % paper.parent.len()).expect("alive");
            paper.delete(node);
            dead.push(node);
        }
        let roster = without(85, dead);
        let root = roster.members().next().expect("somebody is left").slot;
        let tree = Tree::new(&roster, root, Arity::FOUR, Shape::Grandparent);
        roster.members().any(|m| tree.parent(m.slot).map(|p| p.0) != paper.parent[&m.slot.0])
    });
    println!("mutant 15, tree: nearest ancestor replaced by grandparent: seed {caught:?}");
    assert!(caught.is_some());
}

/// Annex B.1 and the example of the paper (identifiers from 1: remove 4 of 21, then 14 to 17 are
/// children of 1).
#[test]
fn m_1_the_vectors_hold() {
    let parent = |dead: &[u32], root: u32, slot: u32| {
        let roster = without(21, dead.iter().copied());
        Tree::new(&roster, Slot(root), Arity::FOUR, Shape::Contract).parent(Slot(slot)).map(|p| p.0)
    };
    for slot in 13..=16 {
        assert_eq!(parent(&[], 0, slot), Some(3));
        assert_eq!(parent(&[3], 0, slot), Some(0), "the paper's example");
    }
    for slot in [2, 3, 4] {
        assert_eq!(parent(&[0], 1, slot), Some(1));
    }
    for slot in 6..21 {
        assert_eq!(parent(&[0, 1, 2, 3, 4], 5, slot), Some(5));
    }
    let others: Vec<u32> = (0..21).filter(|slot| ![0, 7, 20].contains(slot)).collect();
    assert_eq!(parent(&others, 7, 20), Some(0));
    assert_eq!(parent(&others, 7, 0), Some(7));
    assert_eq!(parent(&others, 7, 7), None);
    for (slot, path) in
        [(1, &[0][..]), (5, &[0, 0]), (17, &[3, 0]), (20, &[3, 3]), (21, &[0, 0, 0]), (0, &[])]
    {
        assert_eq!(Arity::FOUR.path(slot), path, "slot {slot}");
    }
}

/// Heights of the table of 3.12.
#[test]
fn heights_are_those_of_the_table() {
    for (n, two, four) in [
        (3, 2, 2),
        (7, 3, 3),
        (15, 4, 3),
        (31, 5, 4),
        (47, 6, 4),
        (64, 7, 4),
        (256, 9, 5),
        (512, 10, 6),
        (1024, 11, 6),
        (10_000, 14, 8),
        (100_000, 17, 10),
    ] {
        assert_eq!((arity(2).height(n), arity(4).height(n)), (two, four), "{n} nodes");
    }
}

/// M-2: the default view needs no message, and the view of 100 000 is small.
#[test]
#[allow(clippy::disallowed_methods, reason = "the limit is one of wall time")]
fn m_2_a_hundred_thousand_default_views() {
    let start = Instant::now();
    let views: Vec<View> = (0..100_000).map(|_| View::first(100_000, Rules::default())).collect();
    assert!(start.elapsed().as_secs_f64() < 20.0, "{:?}", start.elapsed());
    assert!(views.iter().all(|view| view.digest() == views[0].digest()));
    // Header of the shared part, numbers, root, rules, two boxes; one run, and the core of five.
    let (runs, core) = (views[0].roster().runs().len(), views[0].core().len());
    assert!(16 + 96 + runs * 24 + core * 16 <= 216, "{runs} runs, a core of {core}");
    // In one address space the default view is made once: a node holds a pointer to it.
    assert_eq!(size_of::<View>(), size_of::<usize>());
}

#[test]
fn views_follow_each_other() {
    let rules = Rules::default();
    let view = View::first(9, rules);
    let slots = |view: &View| view.core().iter().map(|m| m.slot.0).collect::<Vec<_>>();
    assert_eq!((view.no(), view.root().slot.0, slots(&view)), (1, 0, vec![0, 1, 2, 3, 4]));
    assert_eq!(view.majority(), 3);
    let change = |changes| ViewChange { base: 1, changes, shape: None };
    let gone = view.next(&change(Changes::removal([Member::new(Slot(0), 1)])), None).unwrap();
    assert_eq!((gone.no(), gone.root().slot.0, slots(&gone)), (2, 1, vec![1, 2, 3, 4, 5]));
    // A member that comes back goes to the end of the succession, and displaces none.
    let back = gone.next(&change(Changes::addition([Member::new(Slot(0), 2)])), None).unwrap();
    assert_eq!((back.root().slot.0, back.succession().last().unwrap().slot.0), (1, 0));
    assert_eq!(back.successor(&BTreeSet::from([back.root()])).unwrap().slot.0, 2);
    let again: View = back.parts().try_into().unwrap();
    assert_eq!(again, back);
    assert_ne!(gone.digest(), back.digest());
    // A view without members is none; a void removal changes only the number.
    let all = view.roster().members();
    assert_eq!(view.next(&change(Changes::removal(all)), None), None);
    let void = view.next(&change(Changes::removal([Member::new(Slot(1), 7)])), None).unwrap();
    assert_eq!((void.len(), void.no()), (9, 2));
    let mut parts = view.parts();
    parts.root = Slot(9);
    assert!(View::try_from(parts).is_err());
    let lowest = Rules { root_policy: itg_members::RootPolicy::Lowest, ..rules };
    let gone =
        View::first(3, lowest).next(&change(Changes::removal([Member::new(Slot(0), 1)])), None);
    let back =
        gone.unwrap().next(&change(Changes::addition([Member::new(Slot(0), 2)])), None).unwrap();
    assert_eq!(back.root(), Member::new(Slot(0), 2));
}
