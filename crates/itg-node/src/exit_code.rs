//! The exit code of a run.

use itg_session::{Difference, ErrorKind, Phase};

use crate::sender::{FlowOutcome, SendOutcome};

/// The exit code of a run (see the command-line contract): 0 done, 1 failed, 3 a receiver was not
/// reachable or refused, 4 a receiver vanished or nothing of a flow came to it, 130 interrupted. Packets that all arrived, but not with the bytes
/// they were sent with, are a failed run.
#[must_use]
pub fn exit_code(outcome: &SendOutcome) -> u8 {
    if outcome.interrupted.is_some() {
        return 130;
    }
    let failures = outcome.failures.iter().map(|(_, error)| error);
    let worst = failures.map(|error| match error.kind {
        _ if error.phase < Phase::Run => 3,
        ErrorKind::Interrupted => 130,
        _ => 4,
    });
    if let Some(code) = worst.max() {
        return code;
    }
    if outcome.flows.iter().any(|flow| flow.refused.is_some()) {
        return 3;
    }
    let totals = || outcome.flows.iter().filter_map(|flow| flow.totals.as_ref());
    let unreached = outcome.flows.iter().any(FlowOutcome::is_unreached);
    if unreached || totals().any(|totals| totals.reason.is_cut_off()) {
        return 4;
    }
    if totals().any(|totals| totals.failed > 0) {
        return 1;
    }
    let logs = outcome.log.iter().map(|log| &log.error);
    let remote = outcome.remote_logs.iter().map(|(_, log)| &log.error);
    let corrupt = |flow: &FlowOutcome| {
        let theirs = [&flow.counts, &flow.replies].into_iter().flatten();
        let mut differences = flow
            .totals
            .iter()
            .flat_map(|totals| theirs.clone().map(|counts| Difference::between(totals, counts)));
        differences.any(|difference| difference.is_corrupt())
    };
    u8::from(logs.chain(remote).any(Option::is_some) || outcome.flows.iter().any(corrupt))
}
