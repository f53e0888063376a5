//! Rules that must hold in every simulated session; the error names the rule that is broken.

use std::collections::{BTreeMap, BTreeSet};

use itg_session::{ErrorKind, ReceiverOutput, SenderOutput, Timeouts};

use super::{Output, Plan, SECOND, Trace, log_summary};

/// Checks what must hold for every session; the error names the rule that is broken.
pub fn check(plan: &Plan, trace: &Trace) -> Result<(), String> {
    if let Some(broken) = trace.broken.first() {
        return Err(broken.clone());
    }
    let sender: Vec<_> = trace
        .outputs
        .iter()
        .filter_map(|(at, o)| match o {
            Output::Sender(o) => Some((*at, o)),
            Output::Receiver(_) => None,
        })
        .collect();
    let receiver: Vec<_> = trace
        .outputs
        .iter()
        .filter_map(|(_, o)| match o {
            Output::Receiver(o) => Some(o),
            Output::Sender(_) => None,
        })
        .collect();
    check_end(plan, trace, &sender, &receiver)?;
    let words: Vec<_> = sender.iter().map(|(_, o)| *o).collect();
    check_sender(plan, &words)?;
    check_receiver(&receiver)?;
    if !trace.left_open.is_empty() {
        return Err(format!("flows {:?} are left open at the receiver", trace.left_open));
    }
    check_success(plan, &sender, &receiver)
}

fn require(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

/// Both sides end, in time, once.
fn check_end(
    plan: &Plan,
    trace: &Trace,
    sender: &[(u64, &SenderOutput)],
    receiver: &[&ReceiverOutput],
) -> Result<(), String> {
    let sender_end = trace.sender_over_at.ok_or("the sender never ends")?;
    let receiver_end = trace.receiver_over_at.ok_or("the receiver never ends")?;
    require(sender_end <= plan.horizon(), "the sender ends after all its deadlines")?;
    let grace = Timeouts::default().silence_ns + plan.delay_ns;
    require(receiver_end <= sender_end + grace, "the receiver ends too long after the sender")?;
    let last = |o: &SenderOutput| matches!(o, SenderOutput::Done | SenderOutput::Failed(_));
    require(
        sender.iter().filter(|(_, o)| last(o)).count() == 1
            && sender.last().is_some_and(|(_, o)| last(o)),
        "the sender's last word is not its only one",
    )?;
    let last = |o: &ReceiverOutput| matches!(o, ReceiverOutput::Disconnect { .. });
    require(
        receiver.iter().filter(|o| last(o)).count() == 1
            && receiver.last().is_some_and(|o| last(o)),
        "the receiver's last word is not its only one",
    )
}

/// Checks the outputs of a sender's machine, and their order.
pub fn check_sender_order(flows: usize, outputs: &[&SenderOutput]) -> Result<(), String> {
    use SenderOutput as O;
    let mut open = BTreeSet::new();
    let (mut ready, mut begun) = (false, false);
    let mut counted = BTreeMap::new();
    for output in outputs {
        match output {
            O::Ready { flows: opened, refused } => {
                require(!ready && !opened.is_empty(), "Ready comes twice or without a flow")?;
                require(opened.len() + refused.len() == flows, "Ready omits flows")?;
                open.extend(opened.iter().map(|f| f.flow));
                ready = true;
            }
            O::Begin => {
                require(!begun && ready, "Begin comes twice or before Ready")?;
                begun = true;
            }
            O::StopFlows { .. } => require(begun, "StopFlows before Begin")?,
            O::Counted { totals, counts } => {
                require(begun, "Counted before Begin")?;
                require(open.contains(&totals.flow), "Counted of an unknown flow")?;
                let other = counts.as_ref().is_some_and(|c| c.flow != totals.flow);
                require(!other, "Counted mixes flows")?;
                let twice = counted.insert(totals.flow, counts.is_some()).is_some();
                require(!twice, "a flow is Counted twice")?;
            }
            O::Measured(measure) => {
                require(begun && open.contains(&measure.flow), "Measured of an unknown flow")?;
                require(!counted.contains_key(&measure.flow), "Measured after Counted")?;
            }
            O::Done => {
                require(begun, "Done without Begin")?;
                require(
                    open.iter().all(|flow| counted.get(flow) == Some(&true)),
                    "Done though a flow is not Counted on both sides",
                )?;
            }
            O::Failed(error) => {
                require(error.phase.has_begun() == begun, "the phase contradicts Begin")?;
                require(!error.text.is_empty(), "a failure without a reason")?;
            }
            O::Send(_) | O::Clock { .. } | O::LogStored(_) => {}
        }
    }
    Ok(())
}

/// Checks that accounts are passed on unchanged, and that partial results are kept: each flow whose
/// end the driver reports soon enough is Counted.
fn check_sender(plan: &Plan, outputs: &[&SenderOutput]) -> Result<(), String> {
    use SenderOutput as O;
    check_sender_order(plan.flows.len(), outputs)?;
    let mut open = Vec::new();
    let mut counted = BTreeSet::new();
    let (mut begun, mut stopped) = (false, false);
    for output in outputs {
        match output {
            O::Ready { flows, .. } => open.extend(flows.iter().map(|f| f.flow)),
            O::Begin => begun = true,
            O::StopFlows { .. } => stopped = true,
            O::Counted { totals, counts } => {
                require(totals == &plan.totals(totals.flow), "totals were changed")?;
                let right = counts.as_ref().is_none_or(|c| c == &plan.counts(totals.flow));
                require(right, "counts were changed")?;
                counted.insert(totals.flow);
            }
            O::Done | O::Failed(_) if begun => {
                let in_time = |flow: &u32| {
                    let answer = plan.flows[*flow as usize - 1].stop_answer;
                    !stopped || answer.is_some_and(|ns| ns < Timeouts::default().stop_ns)
                };
                let kept = open.iter().filter(|flow| in_time(flow)).all(|f| counted.contains(f));
                require(kept, "a flow's totals were thrown away")?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks the outputs of a receiver's machine, and their order.
pub fn check_receiver(outputs: &[&ReceiverOutput]) -> Result<(), String> {
    use ReceiverOutput as O;
    let (mut accepted, mut started, mut closed) = (false, false, false);
    let (mut asked, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for output in outputs {
        match output {
            O::Accept { .. } => {
                require(!accepted, "Accept comes twice")?;
                accepted = true;
            }
            O::Open(spec) => {
                require(accepted && !started && !closed, "Open out of turn")?;
                require(asked.insert(spec.id), "Open comes twice for a flow")?;
            }
            O::Start { .. } => {
                require(!asked.is_empty() && !started && !closed, "Start out of turn")?;
                started = true;
            }
            O::End { totals } => {
                require(started && !closed, "End out of turn")?;
                require(asked.contains(&totals.flow), "End of an unknown flow")?;
                require(ended.insert(totals.flow), "End comes twice for a flow")?;
            }
            O::Abandon { .. } => require(accepted && !closed, "Abandon out of turn")?,
            O::CloseLog => {
                require(accepted && !closed, "CloseLog out of turn")?;
                closed = true;
            }
            O::Disconnect { .. } => require(closed == accepted, "a log is left open")?,
            O::Turn { .. } => {
                require(accepted && asked.is_empty() && !closed, "Turn out of turn")?;
            }
            O::Prove { .. } => require(accepted && asked.is_empty(), "Prove out of turn")?,
            O::Send(_) => {}
        }
    }
    Ok(())
}

/// Checks that a run without faults succeeds, and that one that cannot begin fails as interrupted
/// by the user, or as refused.
fn check_success(
    plan: &Plan,
    sender: &[(u64, &SenderOutput)],
    receiver: &[&ReceiverOutput],
) -> Result<(), String> {
    if !plan.is_clean() {
        return Ok(());
    }
    let begun_at = sender.iter().find(|(_, o)| matches!(o, SenderOutput::Begin)).map(|(at, _)| *at);
    let last = sender.last().map(|(_, o)| *o);
    let kind = match last {
        Some(SenderOutput::Failed(error)) => Some(error.kind),
        _ => None,
    };
    let Some(begun_at) = begun_at else {
        let want = if plan.opens_any() { ErrorKind::Interrupted } else { ErrorKind::Refused };
        let right =
            kind == Some(want) || (plan.stop_at.is_some() && kind == Some(ErrorKind::Interrupted));
        return require(right, format!("a harmless session fails: {last:?}"));
    };
    require(last == Some(&SenderOutput::Done), format!("a harmless session fails: {last:?}"))?;
    let stored = sender.iter().any(|(_, o)| **o == SenderOutput::LogStored(log_summary()));
    require(stored == plan.keeps_log, "the log's summary is lost or made up")?;
    require(
        !receiver.iter().any(|o| matches!(o, ReceiverOutput::Abandon { .. })),
        "the receiver abandons a harmless session",
    )?;
    let clocks = sender.iter().filter(|(_, o)| matches!(o, SenderOutput::Clock { .. })).count();
    let lasted = sender.last().map_or(0, |(at, _)| at - begun_at);
    require(clocks as u64 + 3 >= lasted / SECOND, "pings are missing")
}
