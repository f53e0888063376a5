//! The oracles of `itg_group::check` by hand: each property can fail; the names of the events that they read.

mod views {
    use itg_group::cast::CastEvent;
    use itg_group::check::Views;
    use itg_group::membership::MembershipEvent;
    use itg_group::{Changes, Member, Rules, View};
    use itg_members::observers::observers;
    use itg_process::{Event, LayerEvent, Level, Slot};

    /// Gives the oracle these events of processes; what it objects to.
    fn objection<E: LayerEvent + Copy>(views: &mut Views, events: &[(u32, E)]) -> Option<String> {
        let mut see = |slot, event| views.see(Slot(slot), &Event::new(Level::Info, event));
        events.iter().find_map(|&(slot, event)| see(slot, event).err())
    }

    /// The events of process 0 when it removes process 3 of these.
    fn removal(first: &View) -> Vec<(u32, MembershipEvent)> {
        let gone = Member::new(Slot(3), 1);
        let changes = Changes::removal([gone]);
        let view = first.at_no(2, &changes, None, Some(first.root())).expect("a view");
        let (no, incarnation) = (2, 1);
        vec![
            (0, MembershipEvent::ViewMade { no, base: 1, root: Slot(0) }),
            (0, MembershipEvent::ViewGone { no, slot: Slot(3), incarnation }),
            (0, MembershipEvent::Installed { no, digest: view.digest(), incarnation }),
        ]
    }

    #[test]
    fn v6_counts_the_votes_of_the_core() {
        for (voters, want) in [(&[0_u32, 1, 2][..], true), (&[0, 1], false), (&[0, 1, 7], false)] {
            let mut views = Views::new(View::first(10, Rules::default()));
            let adopted =
                |slot, round, digest| (slot, CastEvent::Adopted { instance: 4, round, digest });
            let mut events: Vec<_> = voters.iter().map(|slot| adopted(*slot, 1, 99)).collect();
            // Of another round, and of another value.
            events.extend([adopted(3, 0, 99), adopted(4, 1, 98)]);
            events.push((0, CastEvent::Majority { instance: 4, round: 1, digest: 99 }));
            let found = objection(&mut views, &events);
            assert_eq!(found.is_none(), want, "{voters:?}: {found:?}");
            assert!(want || found.is_some_and(|text| text.starts_with("V6")));
        }
    }

    /// A member may store a view that it makes, and crash before it can tell: when it comes back it has a view that
    /// nobody has made yet. It must be the one that others make.
    #[test]
    fn v6_waits_for_a_view_whose_maker_crashed_before_it_told() {
        let first = View::first(10, Rules::default());
        let mut made = removal(&first);
        let Some((_, MembershipEvent::Installed { digest, .. })) = made.last().copied() else {
            panic!("the last event")
        };
        made.iter_mut().for_each(|(slot, _)| *slot = 1);
        let back = |slot: u32| {
            let (member, instance) = (u64::from(slot) << 32 | 1, 0);
            let install = CastEvent::Install { position: 1, view: 2, instance };
            [(slot, CastEvent::Back { member, counts: true }), (slot, install)]
        };
        let installed = |slot: u32, digest| {
            (slot, MembershipEvent::Installed { no: 2, digest, incarnation: 1 })
        };
        let objection_to = |comes_back: bool, slot: u32, digest: u64| {
            let mut views = Views::new(first.clone());
            let found = if comes_back { objection(&mut views, &back(slot)) } else { None };
            found
                .or_else(|| objection(&mut views, &[installed(slot, digest)]))
                .or_else(|| objection(&mut views, &made))
        };
        assert_eq!(objection_to(true, 0, digest), None);
        for (comes_back, slot, digest, want) in [
            (false, 0, digest, "V6"),
            (true, 0, digest ^ 1, "V5"),
            // It is not in that view.
            (true, 3, digest, "V1"),
        ] {
            let found = objection_to(comes_back, slot, digest);
            assert!(found.as_ref().is_some_and(|text| text.starts_with(want)), "{want}: {found:?}");
        }
    }

    #[test]
    fn v11_asks_who_is_faulty() {
        let first = View::first(40, Rules::default());
        let watchers = observers(&first, Slot(3), 3);
        for (faulty, want) in
            [(vec![Slot(3)], true), (vec![Slot(9)], false), (watchers.into_iter().collect(), true)]
        {
            let mut views = Views::new(first.clone());
            views.only_faulty(faulty.iter().copied(), 3);
            let found = objection(&mut views, &removal(&first));
            assert_eq!(found.is_none(), want, "{faulty:?}: {found:?}");
            assert!(want || found.is_some_and(|text| text.starts_with("V11")));
        }
    }

    #[test]
    fn v13_counts_views() {
        let first = View::first(10, Rules::default());
        for allowed in [0, 1] {
            let mut views = Views::new(first.clone());
            views.allow(allowed);
            let found = objection(&mut views, &removal(&first));
            assert_eq!(found.is_some_and(|text| text.starts_with("V13")), allowed == 0);
        }
    }
}

mod linear {
    use itg_group::check::{Call, Sequential, linearize};

    /// A register: writes answer nothing.
    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Register(u32);

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Write(u32),
        Read,
    }

    impl Sequential for Register {
        type Operation = Op;
        type Answer = u32;

        fn step(&self, operation: &Op, answer: Option<&u32>) -> Option<Self> {
            match operation {
                Op::Write(value) => Some(Self(*value)),
                Op::Read => answer.is_none_or(|found| *found == self.0).then(|| self.clone()),
            }
        }
    }

    fn write(called: u64, returned: u64, value: u32) -> Call<Op, u32> {
        let operation = Op::Write(value);
        Call { client: 1, called, operation, returned: Some(returned), answer: None }
    }

    fn read(called: u64, returned: u64, value: u32) -> Call<Op, u32> {
        let (operation, answer) = (Op::Read, Some(value));
        Call { client: 2, called, operation, returned: Some(returned), answer }
    }

    fn lost(call: Call<Op, u32>) -> Call<Op, u32> {
        Call { returned: None, answer: None, ..call }
    }

    #[test]
    fn histories_by_hand() {
        let explained = |history: &[Call<Op, u32>]| linearize(&Register(0), history);
        assert_eq!(explained(&[]), Ok(Vec::new()));
        assert_eq!(explained(&[write(0, 10, 1), read(20, 30, 1)]), Ok(vec![0, 1]));
        // During a write both values may be read, but not the new one before the old one.
        assert_eq!(explained(&[write(0, 50, 1), read(10, 20, 0)]), Ok(vec![1, 0]));
        assert!(explained(&[write(0, 50, 1), read(10, 20, 0), read(30, 40, 1)]).is_ok());
        let back = explained(&[write(0, 50, 1), read(10, 20, 1), read(30, 40, 0)]);
        assert!(back.is_err_and(|text| text.contains("behind 2 of 3 operations")));
        // A stale read: the write had returned.
        assert!(explained(&[write(0, 10, 1), read(20, 30, 0)]).is_err());
        // Twice: the second time after another write.
        let twice = [write(0, 10, 1), write(20, 30, 2), read(40, 50, 2), read(60, 70, 1)];
        assert!(explained(&twice).is_err());
    }

    #[test]
    fn what_has_not_returned_may_take_effect_or_not() {
        let open = lost(write(0, 0, 1));
        let explained = |reads: &[Call<Op, u32>]| {
            linearize(&Register(0), &[std::slice::from_ref(&open), reads].concat()).is_ok()
        };
        assert!(explained(&[read(10, 20, 0), read(30, 40, 0)]));
        assert!(explained(&[read(10, 20, 0), read(30, 40, 1)]));
        assert!(!explained(&[read(10, 20, 1), read(30, 40, 0)]));
        assert!(!explained(&[lost(read(0, 0, 0)), read(30, 40, 2)]));
    }

    /// All orders, tried one by one: the verdict is the same.
    #[test]
    fn every_small_history_is_judged_as_by_trying_all_orders() {
        fn tried(state: &Register, left: &[Call<Op, u32>]) -> bool {
            left.iter().all(|call| call.returned.is_none())
                || (0..left.len()).any(|at| {
                    let mut rest = left.to_vec();
                    let call = rest.remove(at);
                    let may =
                        rest.iter().all(|other| call.called <= other.returned.unwrap_or(u64::MAX));
                    let next = state.step(&call.operation, call.answer.as_ref());
                    may && next.is_some_and(|next| tried(&next, &rest))
                })
        }
        let (mut good, mut bad) = (0, 0);
        let mut draw = 1_u64;
        let mut pick = |most: u64| {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (draw >> 33) % most
        };
        for _ in 0..3000 {
            let history: Vec<_> = (0..5)
                .map(|_| {
                    let (called, lasts, value) = (pick(12), pick(8), pick(3));
                    let reads = pick(2) == 0;
                    let value = u32::try_from(value).expect("small");
                    let call = if reads { read } else { write }(called, called + lasts, value);
                    if pick(6) == 0 { lost(call) } else { call }
                })
                .collect();
            let want = tried(&Register(0), &history);
            assert_eq!(linearize(&Register(0), &history).is_ok(), want, "{history:?}");
            *if want { &mut good } else { &mut bad } += 1;
        }
        assert!(good > 300 && bad > 300, "{good} good, {bad} bad");
    }
}

mod deliveries {
    use itg_group::cast::CastEvent;
    use itg_group::check::Deliveries;
    use itg_process::{Event, Level, Slot};

    #[test]
    fn each_property_can_fail() {
        let event = |event: CastEvent| Event::new(Level::Info, event);
        let (origin, seq, position) = (7, 0, 0);
        let cast = (0, event(CastEvent::Cast { origin, seq }));
        let deliver = |slot| (slot, event(CastEvent::Deliver { origin, seq, position }));
        let view = |slot| (slot, event(CastEvent::View { no: 2, digest: 0, position }));
        let install = (1, event(CastEvent::Install { position: 1, view: 3, instance: 0 }));
        for (events, want) in [
            (vec![cast, deliver(0), deliver(1)], None),
            (vec![cast, view(0), deliver(0), view(1), deliver(1)], None),
            (vec![deliver(0), cast], Some("V2")),
            (vec![cast, deliver(0), deliver(0)], Some("V3")),
            (vec![cast, deliver(0), view(1), deliver(1)], Some("V4")),
            (vec![cast, deliver(0), install, deliver(1)], Some("V4")),
        ] {
            let mut oracle = Deliveries::default();
            let found = events.iter().find_map(|(slot, e)| oracle.see(Slot(*slot), e).err());
            assert_eq!(found.as_deref().map(|text| &text[..2]), want, "{events:?}");
        }
    }
}

mod quality {
    use itg_group::check::{Quality, Times};
    use itg_group::detector::DetectorEvent;
    use itg_process::{Event, Level, Slot};

    #[test]
    fn times_by_hand() {
        let mut quality = Quality::default();
        let (one, slot) = (Slot(1), Slot(2));
        let suspected = Event::new(Level::Info, DetectorEvent::Suspected { slot, silent_ns: 0 });
        let trusted =
            |suspected_ns| Event::new(Level::Info, DetectorEvent::Trusted { slot, suspected_ns });
        quality.see(100, one, &suspected);
        quality.see(130, one, &trusted(30));
        quality.see(600, one, &suspected);
        quality.see(610, one, &trusted(10));
        quality.gone(700, slot);
        quality.see(750, one, &suspected);
        quality.see(790, Slot(3), &suspected);
        assert_eq!(quality.detection, Times { count: 2, sum_ns: 140, most_ns: 90 });
        assert_eq!(quality.detection.mean_ns(), 70);
        assert_eq!((quality.recurrence.count, quality.recurrence.mean_ns()), (1, 500));
        assert_eq!((quality.duration.count, quality.duration.mean_ns()), (2, 20));
    }
}

mod events {
    use std::collections::BTreeSet;

    use itg_process::{LayerEvent, RuntimeEvent};

    use itg_group::cast::{CastEvent, ReplicaEvent, ServiceEvent};
    use itg_group::detector::DetectorEvent;
    use itg_group::membership::MembershipEvent;
    use itg_members::link::LinkEvent;
    use itg_members::overlay::OverlayEvent;

    #[test]
    fn events_of_one_stack_have_names_of_their_own() {
        let sets = [
            RuntimeEvent::NAMES,
            LinkEvent::NAMES,
            DetectorEvent::NAMES,
            CastEvent::NAMES,
            ReplicaEvent::NAMES,
            ServiceEvent::NAMES,
            MembershipEvent::NAMES,
            OverlayEvent::NAMES,
        ];
        let mut seen = BTreeSet::new();
        let shared: Vec<_> = sets.concat().into_iter().filter(|name| !seen.insert(*name)).collect();
        // The log and the membership above it mean the same by it.
        assert_eq!(shared, ["excluded"]);
    }
}
