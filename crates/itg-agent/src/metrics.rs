//! `itg-cluster agent --metrics ADDR:PORT`: what the agent does, for Prometheus.

use std::collections::BTreeMap;

use itg_cli::{FlowFacts, FlowLabels, Program, write_flows, write_lateness};
use itg_experiment::Plan;
use itg_node::metrics::seconds;
use itg_run::figures::Figures;

/// Facts that an agent tells of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The run that it takes part in, and its name.
    pub(crate) run: Option<(String, String)>,
    /// Number of its view, and how many are in it.
    pub(crate) view: (u64, usize),
    /// Worker processes.
    pub(crate) workers: usize,
    /// Labels of the flows of the run.
    pub(crate) labels: BTreeMap<u32, FlowLabels>,
    /// Nanoseconds left of its lease; `None` when it has none.
    pub(crate) lease_left_ns: Option<u64>,
    /// Figures of this node's flows in this run.
    pub(crate) figures: Figures,
}

/// Labels of the flows of a plan, but for the run; hosts are the nodes of the experiment.
pub(crate) fn labels(plan: &Plan) -> BTreeMap<u32, FlowLabels> {
    let of = |planned: &itg_experiment::PlannedFlow| {
        let spec = planned.flow.spec();
        let labels = FlowLabels {
            run: String::new(),
            flow: spec.id,
            name: Some(planned.name.clone()),
            from: planned.from.clone(),
            to: planned.to.clone(),
            proto: spec.proto.name(),
        };
        (spec.id, labels)
    };
    plan.flows.iter().map(of).collect()
}

/// The page; the keys of this node expire in so many days.
pub(crate) fn page(program: Program, keys_days: Option<u64>, facts: &Facts) -> String {
    let mut page = program.page();
    if let Some(days) = keys_days {
        let help = "Whole days until the keys of this node, or their authority's, expire.";
        page.one("itg_keys_expire_days", "gauge", help, days);
    }
    if let Some((run, name)) = &facts.run {
        page.head("itg_run_info", "gauge", "The run that the agent takes part in.");
        page.line("itg_run_info", &[("run", run), ("name", name)], 1);
    }
    page.one("itg_view_number", "gauge", "Number of the view of the group.", facts.view.0);
    page.one(
        "itg_view_members",
        "gauge",
        "Members of the view, the console among them.",
        facts.view.1,
    );
    page.one("itg_workers", "gauge", "Processes that send flows.", facts.workers);
    if let Some(left) = facts.lease_left_ns {
        let help = "How long this node may send without news from the group.";
        page.one("itg_lease_remaining_seconds", "gauge", help, seconds(left));
    }
    let figures = &facts.figures;
    let flows: Vec<_> = figures
        .flows
        .iter()
        .map(|(flow, figures)| {
            let known = facts.labels.get(flow).cloned();
            let run = facts.run.as_ref().map_or_else(String::new, |(run, _)| run.clone());
            let labels = FlowLabels { run, flow: *flow, ..known.unwrap_or_default() };
            FlowFacts {
                labels,
                sent: Some((figures.sent_packets, figures.sent_bytes)),
                missing: figures.missing_packets,
                lateness_max_ns: Some(figures.lateness_max_ns),
                ..FlowFacts::default()
            }
        })
        .collect();
    write_lateness(&mut page, &figures.late, figures.late_sum_ns);
    write_flows(&mut page, &flows, 0);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use itg_run::figures::{BOUNDS_NS, FlowFigures};

    use super::*;

    fn facts() -> Facts {
        let mut figures = Figures::default();
        for flow in 1..=2 {
            let counters = FlowFigures {
                sent_packets: 10 * u64::from(flow),
                sent_bytes: 5120,
                missing_packets: Some(1),
                lateness_max_ns: 1_500_000_000,
            };
            figures.flows.insert(flow, counters);
        }
        figures.late[0] = 3;
        figures.late[2] = 1;
        figures.late[BOUNDS_NS.len()] = 1;
        figures.late_sum_ns = 7;
        let labels = FlowLabels {
            name: Some("call".to_owned()),
            from: "a".to_owned(),
            to: "b".to_owned(),
            proto: "UDP",
            ..FlowLabels::default()
        };
        Facts {
            run: Some(("ab12".to_owned(), "a \"b\"\\".to_owned())),
            view: (4, 3),
            workers: 1,
            labels: BTreeMap::from([(2, labels)]),
            lease_left_ns: Some(1_250_000_000),
            figures,
        }
    }

    #[test]
    fn the_page_says_what_there_is() {
        let text = page(Program::started("agent", "1"), Some(13), &facts());
        for want in [
            "itg_build_info{program=\"agent\",version=\"1\"} 1\n",
            "itg_run_info{run=\"ab12\",name=\"a \\\"b\\\"\\\\\"} 1\n",
            "\nitg_view_number 4\n",
            "\nitg_view_members 3\n",
            "\nitg_workers 1\n",
            "\nitg_keys_expire_days 13\n",
            "\nitg_lease_remaining_seconds 1.25\n",
            "itg_flow_sent_packets_total{flow=\"2\",name=\"call\",from=\"a\",to=\"b\",proto=\"UDP\",run=\"ab12\"} 20\n",
            "itg_lateness_seconds_bucket{le=\"0.000001\"} 3\n",
            "itg_lateness_seconds_bucket{le=\"0.000016\"} 4\n",
            "itg_lateness_seconds_bucket{le=\"+Inf\"} 5\n",
            "itg_lateness_seconds_count 5\n",
            "itg_flows_left_out 0\n",
        ] {
            assert!(text.contains(want), "{want}: {text}");
        }
    }

    #[test]
    fn an_idle_agent_has_a_page() {
        let text = page(Program::started("agent", "1"), Some(13), &Facts::default());
        assert!(text.contains("\nitg_workers 0\n"), "{text}");
        assert!(!text.contains("itg_run_info") && !text.contains("itg_lease"), "{text}");
    }

    #[test]
    fn many_flows_do_not_make_the_page_endless() {
        let mut many = Facts::default();
        many.figures.flows = (1..=1500).map(|flow| (flow, FlowFigures::default())).collect();
        let text = page(Program::started("agent", "1"), Some(13), &many);
        assert_eq!(text.matches("\nitg_flow_sent_packets_total{").count(), 1000);
        assert!(text.contains("\nitg_flows_left_out 500\n"));
    }
}
