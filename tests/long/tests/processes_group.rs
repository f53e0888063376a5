//! Groups of real processes under the checkers of the simulator (M-23): killed, put to sleep, returned.
#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use itg_group::membership::MembershipEvent;
use itg_process::Event;
use itg_tests::Group;
use nix::sys::signal::Signal;

const ALL: [u32; 6] = [0, 1, 2, 3, 4, 5];

fn is_born_again(event: &Event) -> bool {
    matches!(event.decode(), Some(MembershipEvent::BornAgain { .. }))
}

#[test]
fn m_23_one_that_is_killed_is_left_out_and_returns() {
    let mut group = Group::local(6);
    // One of the core and one outside it; root and coordinator in the next test.
    for slot in [3, 5] {
        group.signal(slot, Signal::SIGKILL);
        let others: Vec<_> = ALL.into_iter().filter(|other| *other != slot).collect();
        group.until_view(&others);
        group.come_back(slot);
        group.until_view(&ALL);
    }
    let judged = group.finish();
    // One change for each going, one for each return.
    assert!(judged.views.changes() >= 4, "{} changes", judged.views.changes());
}

#[test]
fn m_23_the_root_is_killed_and_returns() {
    let mut group = Group::local(6);
    group.signal(0, Signal::SIGKILL);
    group.until_view(&ALL[1..]);
    group.come_back(0);
    group.until_view(&ALL);
    assert!(group.finish().views.changes() >= 2);
}

#[test]
fn m_23_a_nap_of_200_ms_excludes_nobody() {
    let mut group = Group::patient(6);
    for slot in [0, 2, 5] {
        group.signal(slot, Signal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(200));
        group.signal(slot, Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(500));
    }
    group.until_view(&ALL);
    assert_eq!(group.finish().views.changes(), 0);
}

#[test]
fn m_23_who_sleeps_for_10_s_is_excluded_and_comes_in_again_by_itself() {
    let mut group = Group::patient(6);
    group.signal(2, Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(10));
    group.until("the others go on without it", |_, judged| judged.views.changes() >= 1);
    group.signal(2, Signal::SIGCONT);
    group.until_said(2, is_born_again, 1);
    group.until_view(&ALL);
    let judged = group.finish();
    let view = judged.views.agreed().expect("agreed");
    let incarnations: Vec<_> = view.roster().members().map(|member| member.incarnation).collect();
    assert_eq!(incarnations, [1, 1, 2, 1, 1, 1]);
}
