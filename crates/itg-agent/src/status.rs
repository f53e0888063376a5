//! State of a cluster, as `itg-cluster status` prints it: a table, or a JSON object of this layout.

use itg_control::{Phase, Replica, Stage};
use serde::Serialize;

use crate::wire::{Status, times};

/// Version of the object.
const SCHEMA: u32 = 1;

/// The state of an experiment, as one agent knows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StatusReport {
    /// Version of this layout: 1.
    schema: u32,
    /// The agent that was asked.
    agent: String,
    /// Id of the run; none without one.
    run: Option<String>,
    /// Name of the experiment; empty without one.
    name: String,
    /// The phase; none as long as the agent does not know it.
    phase: Option<PhaseName>,
    /// Number of the view.
    view: u64,
    /// True if the agent reaches too few members to agree on anything: what it tells may be old.
    cut_off: bool,
    /// Names of the members of the view; `console` is the program that began the run.
    members: Vec<String>,
    /// Names of the nodes.
    nodes: Vec<String>,
    /// The flows by number, from 1.
    flows: Vec<FlowStatus>,
    /// Remarks so far.
    marks: Vec<String>,
}

/// Phase of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum PhaseName {
    /// Nothing is loaded.
    Empty,
    /// Members get the description.
    Loaded,
    /// All have it, and wait for the start.
    Armed,
    /// Flows are sent.
    Running,
    /// Logs are closed and handed over.
    Draining,
    /// It is over.
    Ended,
}

/// State of a flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FlowStatus {
    /// Its number.
    flow: u32,
    /// Its name; none where the agent does not have the description.
    name: Option<String>,
    /// The state.
    state: FlowStage,
    /// The node that sends it; none when no node does.
    owner: Option<String>,
    /// Changes of its owner so far.
    owner_changes: u16,
    /// Its rate, as a multiple of what the experiment asks for.
    rate_times: f64,
}

/// Stage of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
enum FlowStage {
    /// Its owner may not send yet, or it has none.
    Waiting,
    /// Its owner sends it.
    Running,
    /// Its owner is to stop, because another one follows.
    Handing,
    /// It was stopped.
    Stopped,
    /// It was sent to its end.
    Finished,
}

impl From<Stage> for FlowStage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Waiting => Self::Waiting,
            Stage::Running => Self::Running,
            Stage::Handing => Self::Handing,
            Stage::Stopped => Self::Stopped,
            Stage::Finished => Self::Finished,
        }
    }
}

impl StatusReport {
    /// Answer of an agent.
    pub(crate) fn new(agent: &str, status: &Status) -> Self {
        let name = |slot: u32| {
            status.nodes.get(slot as usize).cloned().unwrap_or_else(|| "console".to_owned())
        };
        let replica = status.replica.as_ref();
        let flows = |replica: &Replica| -> Vec<FlowStatus> {
            let words = replica.words().iter().zip(1_u32..);
            let flow = words.map(|(word, flow)| FlowStatus {
                flow,
                name: status.flows.get(flow as usize - 1).cloned(),
                state: word.stage().into(),
                owner: word.owner().map(name),
                owner_changes: word.fence(),
                rate_times: replica.rates(flow).last().map_or(1.0, |change| times(change.ppm)),
            });
            flow.collect()
        };
        let members =
            |replica: &Replica| replica.members().keys().map(|slot| name(*slot)).collect();
        Self {
            schema: SCHEMA,
            agent: agent.to_owned(),
            run: status.run.clone(),
            name: status.name.clone(),
            phase: replica.map(|replica| match replica.phase() {
                Phase::Empty => PhaseName::Empty,
                Phase::Loaded => PhaseName::Loaded,
                Phase::Armed => PhaseName::Armed,
                Phase::Running => PhaseName::Running,
                Phase::Draining => PhaseName::Draining,
                Phase::Ended => PhaseName::Ended,
            }),
            view: status.view,
            cut_off: status.cut_off,
            members: replica.map(members).unwrap_or_default(),
            nodes: status.nodes.clone(),
            flows: replica.map(flows).unwrap_or_default(),
            marks: replica.map(|replica| replica.marks().to_vec()).unwrap_or_default(),
        }
    }

    /// As one JSON object over several lines.
    pub(crate) fn to_json(&self) -> String {
        // Texts and numbers have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// For people.
    pub(crate) fn to_text(&self) -> String {
        let Self { agent, name, .. } = self;
        let Some(run) = &self.run else { return format!("agent {agent}: no experiment\n") };
        let mut text = format!("experiment {name} (run {run}), as agent {agent} knows it\n");
        if self.cut_off {
            text += "it reaches too few nodes to agree on anything: what follows may be old\n";
        }
        let Some(phase) = self.phase else { return text + "its state is not known yet\n" };
        text += &format!("{phase:?}; view {}: {}\n", self.view, self.members.join(", "));
        text += "flow      stage     owner       changes of owner  rate      name\n";
        for flow in &self.flows {
            let FlowStatus { flow, name, state, owner, owner_changes, rate_times } = flow;
            let (name, state) =
                (name.as_deref().unwrap_or("-"), format!("{state:?}").to_lowercase());
            let owner = owner.as_deref().unwrap_or("nobody");
            let rate = format!("x{rate_times}");
            text +=
                &format!("{flow:<9} {state:<9} {owner:<11} {owner_changes:<17} {rate:<9} {name}\n");
        }
        self.marks.iter().for_each(|mark| text += &format!("mark: {mark}\n"));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_up_to_date() {
        itg_testkit::published::compare("status", &schemars::schema_for!(StatusReport));
    }
}
