//! Starts under a name, without a world: which one is let in, and who knows it.

use itg_group::membership::{
    Agreed, AgreedInput, AgreedOutput, AgreedRequest, AgreedSettings, AgreedTimer,
    MembershipMessage,
};
use itg_group::{Member, Rules, View, cast};
use itg_process::{Action, Dest, Input, Machine as _, SECOND, Slot, Time};

const fn member(slot: u32, incarnation: u64) -> Member {
    Member::new(Slot(slot), incarnation)
}

/// The answers to a start that is known, to another one, and to a late answer.
#[test]
fn only_the_start_that_was_let_in_is_welcome_again() {
    let first = View::first(3, Rules::default());
    let new = member(1, 65_537);
    let changes = itg_group::Changes::new([member(1, 1)], [new]);
    let change = itg_group::ViewChange { base: 1, changes, shape: None };
    let view = first.next(&change, None).expect("a view");
    let mut root = Agreed::new(member(0, 1), first.clone(), AgreedSettings::default());
    let mut out = Vec::new();
    let mut handle = |machine: &mut Agreed, input| {
        out.clear();
        machine.handle(Time(SECOND), input, &mut out);
        std::mem::take(&mut out)
    };
    let join = |nonce| {
        Input::Message(Slot(1), AgreedInput::Say(MembershipMessage::Join { member: new, nonce }))
    };
    drop(handle(&mut root, join(7)));
    let said = handle(&mut root, Input::Timer(AgreedTimer::Window));
    let with = said.iter().find_map(|action| match action {
        Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Change(_, with))) => {
            Some(with.clone())
        }
        _ => None,
    });
    let tell =
        cast::CastDelivery::View { position: 0, view: view.clone(), with: with.expect("proposed") };
    let answers = |said: &[Action<Agreed>]| -> Vec<MembershipMessage> {
        let says = said.iter().filter_map(|action| match action {
            Action::Send(to, AgreedInput::Say(say)) if *to == Dest::One(Slot(1)) => Some(say),
            _ => None,
        });
        let join = |say: &&MembershipMessage| {
            matches!(say, MembershipMessage::Welcome { .. } | MembershipMessage::Excluded { .. })
        };
        says.filter(join).cloned().collect()
    };
    let welcome = [MembershipMessage::Welcome { view: view.parts(), nonce: 7 }];
    let said = handle(&mut root, Input::Message(Slot(0), AgreedInput::Log(tell)));
    assert_eq!(answers(&said), welcome, "it is in");
    assert_eq!(answers(&handle(&mut root, join(7))), welcome, "the answer was lost");
    let excluded = MembershipMessage::Excluded { view: 2, member: new };
    assert_eq!(answers(&handle(&mut root, join(8))), [excluded], "another start");
    // The other start does not take the answer to the first one for its own.
    let mut joiner = Agreed::new(new, first, AgreedSettings::default());
    drop(handle(&mut joiner, Input::Start));
    let asks = |said: &[Action<Agreed>]| {
        said.iter().any(|action| {
            matches!(action, Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Join(_))))
        })
    };
    let said = handle(&mut joiner, Input::Message(Slot(0), AgreedInput::Say(welcome[0].clone())));
    assert!(!asks(&said));
    let own = MembershipMessage::Welcome { view: view.parts(), nonce: SECOND };
    assert!(asks(&handle(&mut joiner, Input::Message(Slot(0), AgreedInput::Say(own)))));
}

/// A member that has taken over a state, or has come back with one in its journal, knows which start was let in before
/// it, by the state. What it knows is that of the checkpoint, whatever the log has said since.
#[test]
fn the_start_that_was_let_in_is_welcome_to_those_that_took_over_a_state() {
    let first = View::first(4, Rules::default());
    let next = |view: &View, old, new| {
        let changes = itg_group::Changes::new([old], [new]);
        let change = itg_group::ViewChange { base: view.no(), changes, shape: None };
        view.next(&change, None).expect("a view")
    };
    let (one, later) = (member(1, 2), member(1, 3));
    let second = next(&first, member(1, 1), one);
    let third = next(&second, one, later);
    let handle = |machine: &mut Agreed, input| {
        let mut out = Vec::new();
        machine.handle(Time(SECOND), input, &mut out);
        out
    };
    let log = |tell| Input::Message(Slot(0), AgreedInput::Log(tell));
    let join = |member: Member, nonce| {
        let say = MembershipMessage::Join { member, nonce };
        Input::Message(member.slot, AgreedInput::Say(say))
    };
    let agreed = || Agreed::new(member(0, 1), first.clone(), AgreedSettings::default());
    let mut root = agreed();
    let mut position = 0;
    // Each is let in with the number of its start, as it is proposed; between them lies a checkpoint.
    for (joiner, nonce, view) in [(one, 7, &second), (later, 8, &third)] {
        drop(handle(&mut root, join(joiner, nonce)));
        let said = handle(&mut root, Input::Timer(AgreedTimer::Window));
        let with = said.iter().find_map(|action| match action {
            Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Change(_, with))) => {
                Some(with.clone())
            }
            _ => None,
        });
        let with = with.expect("proposed");
        let tell = cast::CastDelivery::View { position, view: view.clone(), with };
        position += 1;
        drop(handle(&mut root, log(tell)));
        if position == 1 {
            drop(handle(&mut root, log(cast::CastDelivery::Checkpoint { position })));
        }
    }
    // The layer above answers late.
    let above = bytes::Bytes::from_static(b"of the layer above");
    let ask = AgreedRequest::State(1, above.clone());
    let asked =
        handle(&mut root, Input::Request(ask)).into_iter().find_map(|action| match action {
            Action::Deliver(AgreedOutput::Ask(cast::CastRequest::State(1, state))) => Some(state),
            _ => None,
        });
    let state = asked.expect("the state of the first checkpoint");
    // Another one takes it over, in the place of the root.
    let mut other = agreed();
    let install = cast::CastDelivery::Install { position: 1, view: second.clone(), state };
    let passed = handle(&mut other, log(install)).into_iter().find_map(|action| match action {
        Action::Deliver(AgreedOutput::Pass(cast::CastDelivery::Install { state, .. })) => {
            Some(state)
        }
        _ => None,
    });
    assert_eq!(passed, Some(above), "the layer above has its own state");
    let answer = |said: Vec<Action<Agreed>>| {
        said.into_iter().find_map(|action| match action {
            Action::Send(Dest::One(Slot(1)), AgreedInput::Say(say)) => Some(say),
            _ => None,
        })
    };
    let welcome = MembershipMessage::Welcome { view: second.parts(), nonce: 7 };
    assert_eq!(answer(handle(&mut other, join(one, 7))), Some(welcome));
    let excluded = MembershipMessage::Excluded { view: second.no(), member: one };
    assert_eq!(answer(handle(&mut other, join(one, 9))), Some(excluded), "another start");
}

/// A process that was excluded and killed while it asked to be let in again: what its log delivers once more is of the
/// name before this one, and makes it no member.
#[test]
fn a_state_of_a_former_name_lets_nobody_in() {
    let first = View::first(3, Rules::default());
    let (old, new) = (member(2, 2), member(2, 3));
    let changes = itg_group::Changes::new([member(2, 1)], [old]);
    let change = itg_group::ViewChange { base: 1, changes, shape: None };
    let view = first.next(&change, None).expect("a view");
    let agreed = Agreed::new(old, first, AgreedSettings::default());
    let mut joiner = agreed.restored((new, false), None);
    let mut out = Vec::new();
    let state = Default::default();
    let tell = cast::CastDelivery::Install { position: 9, view, state };
    for input in [
        Input::Start,
        Input::Message(Slot(2), AgreedInput::Log(tell)),
        // Its own turn among those that are asked may be one of these.
        Input::Timer(AgreedTimer::Retry),
        Input::Timer(AgreedTimer::Retry),
    ] {
        if matches!(input, Input::Timer(_)) {
            out.retain(|action| matches!(action, Action::Send(..)));
        } else {
            out.clear();
        }
        joiner.handle(Time(SECOND), input, &mut out);
    }
    let asks = out.iter().any(|action| {
        let Action::Send(_, AgreedInput::Say(say)) = action else { return false };
        matches!(say, MembershipMessage::Join { member, .. } if *member == new)
    });
    assert!(asks);
}

/// The next start of a process that was let in, and killed before it had the state, is the same one for the others:
/// nothing was promised under its name.
#[test]
fn a_start_that_promised_nothing_is_welcome_again() {
    let first = View::first(3, Rules::default());
    let new = member(1, 2);
    let changes = itg_group::Changes::new([member(1, 1)], [new]);
    let change = itg_group::ViewChange { base: 1, changes, shape: None };
    let view = first.next(&change, None).expect("a view").parts();
    let joiner = |stored: Option<&bytes::Bytes>| {
        let agreed = Agreed::new(member(1, 1), first.clone(), AgreedSettings::default());
        agreed.restored((new, false), stored)
    };
    let start = |joiner: &mut Agreed, at| {
        let mut out = Vec::new();
        joiner.handle(Time(at), Input::Start, &mut out);
        let nonce = out.iter().find_map(|action| match action {
            Action::Send(_, AgreedInput::Say(MembershipMessage::Join { nonce, .. })) => {
                Some(*nonce)
            }
            _ => None,
        });
        let record = out.iter().find_map(|action| match action {
            Action::Persist(itg_process::JournalWrite::Replace(records)) => {
                records.first().cloned()
            }
            _ => None,
        });
        (nonce.expect("it asks"), record.expect("its number is stored"))
    };
    let (nonce, record) = start(&mut joiner(None), SECOND);
    let mut again = joiner(Some(&record));
    assert_eq!(start(&mut again, 5 * SECOND).0, nonce);
    let mut out = Vec::new();
    let say = MembershipMessage::Welcome { view, nonce };
    again.handle(Time(6 * SECOND), Input::Message(Slot(0), AgreedInput::Say(say)), &mut out);
    assert!(out.iter().any(|action| matches!(
        action,
        Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Join(Slot(0))))
    )));
    // Under another name it is another start.
    let agreed = Agreed::new(member(1, 1), first.clone(), AgreedSettings::default());
    let mut later = agreed.restored((member(1, 3), false), Some(&record));
    assert_ne!(start(&mut later, 5 * SECOND).0, nonce);
}
