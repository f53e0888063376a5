//! Commands of an experiment as events have them: their parts, and words for people.

use itg_control::Command;
use itg_core::units::format_duration_ns;
use itg_run::events::Action;

use crate::wire::times;

/// The parts of a command; `name` gives the name of the node in a slot.
pub(crate) fn parts(command: &Command, name: impl Fn(u32) -> String) -> Action {
    match command {
        Command::Load { routes, .. } => Action::Load { flows: routes.len() as u64 },
        Command::Holds { .. } => Action::Ready,
        Command::Refuses { why, .. } => Action::Refuse { why: why.clone() },
        Command::Arm => Action::Arm,
        Command::Start { t0_unix_ns } => Action::Start { start_unix_ns: *t0_unix_ns },
        Command::Stop { flow } => Action::Stop { flow: *flow },
        Command::Reassign { flow, to } => Action::Move { flow: *flow, node: name(*to) },
        Command::Released { flow, next, .. } => Action::Released { flow: *flow, next_seq: *next },
        Command::Finished { flow, next, .. } => Action::Finished { flow: *flow, next_seq: *next },
        Command::GiveUp { flow, why, .. } => Action::GiveUp { flow: *flow, why: why.clone() },
        Command::SetRate { flow, at_ns, ppm } => {
            Action::SetRate { flow: *flow, at_ns: *at_ns, times: times(*ppm) }
        }
        Command::Mark { label } => Action::Mark { label: label.clone() },
        Command::Renew { .. } => Action::Renew,
        Command::Drain => Action::Drain,
        Command::End => Action::End,
    }
}

/// A command for people.
pub(crate) fn describe(action: &Action) -> String {
    let flows = |flow: &Option<u32>| match flow {
        Some(flow) => format!("flow {flow}"),
        None => "all flows".to_owned(),
    };
    match action {
        Action::Load { flows } => format!("load: {flows} flows"),
        Action::Ready => "ready".to_owned(),
        Action::Refuse { why } => format!("refuses: {why}"),
        Action::Arm => "arm".to_owned(),
        Action::Start { .. } => "start".to_owned(),
        Action::Stop { flow } => format!("stop {}", flows(flow)),
        Action::Move { flow, node } => format!("hand flow {flow} to {node}"),
        Action::Released { flow, next_seq } => {
            format!("flow {flow} is released before packet {next_seq}")
        }
        Action::Finished { flow, next_seq } => {
            format!("flow {flow} has ended before packet {next_seq}")
        }
        Action::GiveUp { flow, why } => format!("give up flow {flow}: {why}"),
        Action::SetRate { flow, at_ns, times } => format!(
            "{}: rate x {times} from {} after the start on",
            flows(flow),
            format_duration_ns(*at_ns)
        ),
        Action::Mark { label } => format!("mark: {label}"),
        Action::Renew => "ask for a lease".to_owned(),
        Action::Drain => "drain".to_owned(),
        Action::End => "end".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_parts_and_words() {
        let name = |slot| format!("node {slot}");
        for (command, json, words) in [
            (
                Command::SetRate { flow: Some(3), at_ns: 1_500_000_000, ppm: 500_000 },
                r#"{"kind":"set_rate","flow":3,"at_ns":1500000000,"times":0.5}"#,
                "flow 3: rate x 0.5 from 1.5s after the start on",
            ),
            (
                Command::SetRate { flow: None, at_ns: 0, ppm: 2_000_000 },
                r#"{"kind":"set_rate","flow":null,"at_ns":0,"times":2.0}"#,
                "all flows: rate x 2 from 0s after the start on",
            ),
            (
                Command::Reassign { flow: 2, to: 1 },
                r#"{"kind":"move","flow":2,"node":"node 1"}"#,
                "hand flow 2 to node 1",
            ),
            (Command::Stop { flow: None }, r#"{"kind":"stop","flow":null}"#, "stop all flows"),
            (
                Command::Finished { flow: 1, fence: 7, next: 90 },
                r#"{"kind":"finished","flow":1,"next_seq":90}"#,
                "flow 1 has ended before packet 90",
            ),
            (Command::Holds { graph: 1 }, r#"{"kind":"ready"}"#, "ready"),
        ] {
            let action = parts(&command, name);
            assert_eq!(serde_json::to_string(&action).expect("JSON"), json);
            assert_eq!(describe(&action), words);
        }
    }
}
