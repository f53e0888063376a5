//! Files that describe several runs: their cases, seeds, order, and when a case has been run often enough.

use std::collections::{BTreeMap, BTreeSet};

use itg_core::seed::RunSeed;
use itg_experiment::sweep::{Done, MAX_CASES, Next, Sweep, run_seed};
use itg_experiment::{Experiment, Plan, PlanInputs};
use proptest::prelude::*;

const HEAD: &str = "schema = 1\nname = \"x\"\nseed = 7\nduration = \"1s\"\n";

fn read(rest: &str) -> Result<Option<Sweep>, String> {
    Sweep::read(&format!("{HEAD}{rest}"), "x.toml").map_err(|error| error.to_string())
}

fn sweep(rest: &str) -> Sweep {
    read(rest).unwrap_or_else(|error| panic!("{error}")).expect("a sweep")
}

fn plan(experiment: &Experiment) -> Plan {
    let mut files = |name: &str| Err(format!("no file `{name}`"));
    Plan::resolve(experiment, PlanInputs::new(RunSeed(1), &mut files))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn labels(sweep: &Sweep) -> Vec<&str> {
    sweep.cases.iter().map(|case| case.label.as_str()).collect()
}

#[test]
fn a_file_of_one_run_is_no_sweep_and_the_other_way_round() {
    assert!(read("[[flow]]\n").expect("good").is_none());
    let text = format!("{HEAD}[[flow]]\n[matrix]\nflow.size = [64]\n");
    let error = Experiment::parse(&text, "x.toml").expect_err("several runs").to_string();
    assert!(error.starts_with("x.toml:6:2: [matrix]: the file describes several runs"), "{error}");
}

#[test]
fn variables_go_where_the_file_says_or_where_their_names_lead() {
    let sweep = sweep(
        r#"
        [[flow]]
        name = "bulk at ${rate}"
        rate = "${rate}"
        ttl = "${ttl}"
        [[flow]]
        name = "call"
        size = 100
        [gates]
        fail_if = ["delay.p99 > ${limit}"]
        [matrix]
        rate = ["1Mbps", "10Mbps"]
        ttl = [3]
        limit = ["5ms"]
        duration = ["2s", "3s"]
        flow.call.dscp = ["ef"]
        flow.1.size = [64, 1400]
        pacing.level = ["sleep"]
        [[matrix.case]]
        rate = "1pps"
        ttl = 9
        limit = 0.5
        "#,
    );
    assert_eq!(sweep.cases.len(), 9);
    assert_eq!(
        sweep.variables,
        ["rate", "ttl", "limit", "duration", "flow.call.dscp", "flow.1.size", "pacing.level"]
    );
    let first = &sweep.cases[0];
    assert_eq!(
        first.label,
        "rate=1Mbps ttl=3 limit=5ms duration=2s flow.call.dscp=ef flow.1.size=64 pacing.level=sleep"
    );
    let flows = &first.experiment.flows;
    assert_eq!(flows[0].name.as_deref(), Some("bulk at 1Mbps"));
    assert_eq!((flows[0].ttl, flows[1].ttl), (Some(3), None), "typed: a number stays one");
    assert!(flows[0].size.is_some() && flows[1].dscp.is_some() && flows[0].dscp.is_none());
    assert_eq!(first.experiment.gates.fail_if, ["delay.p99 > 5ms"]);
    assert!(first.experiment.pacing.level.is_some(), "a table that was not there");
    // The first variable is the slowest, the last one the quickest.
    let second = &sweep.cases[1].values;
    assert_eq!((second["rate"].as_str(), second["flow.1.size"].as_str()), ("1Mbps", "1400"));
    assert_eq!(sweep.cases[4].values["rate"], "10Mbps");
    let listed = &sweep.cases[8];
    assert_eq!(listed.label, "rate=1pps ttl=9 limit=0.5");
    assert_eq!(listed.experiment.gates.fail_if, ["delay.p99 > 0.5"]);
    assert!(listed.experiment.flows[0].size.is_none(), "a path that it does not name stays");
}

#[test]
fn listed_cases_stand_for_themselves() {
    let sweep = sweep(
        "[[flow]]\nrate = '${r}'\n[[matrix.case]]\nr = '1pps'\n[[matrix.case]]\nr = '2pps'\nflow.size = 99\n",
    );
    assert_eq!(labels(&sweep), ["r=1pps", "r=2pps flow.size=99"]);
    let repeated = self::sweep("[[flow]]\n[sweep]\nrepetitions = 5\n");
    assert_eq!((labels(&repeated), repeated.repetitions()), (vec![""], (5, 5)));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (rest, want) in [
        (
            "[[flow]]\n[matrix]\nflow.sise = [1]\n",
            "x.toml:7:6: unknown key `sise` in [[flow]]: did you mean `size`? (in the case flow.sise=1)",
        ),
        ("[[flow]]\n[matrix]\nflow.size = [64, 'big']\n", "x.toml:7:18: `size` in [[flow]]"),
        (
            "[[flow]]\nrate = '${rat}'\n[matrix]\nrate = ['1pps']\n",
            "x.toml:6:8: `${rat}` is no variable of [matrix]: did you mean `rate`?",
        ),
        (
            "[[flow]]\n[matrix]\nspeed = [1, 2]\n",
            "the variable `speed` is of no use: write \"${speed}\" where its values go",
        ),
        (
            "[[flow]]\n[matrix]\nflow.size = 64\n",
            "`flow.size` in [matrix] is a number: expected an array",
        ),
        ("[[flow]]\n[matrix]\nflow.size = []\n", "`flow.size` in [matrix] has no values"),
        (
            "[[flow]]\n[matrix]\nflow.2.size = [1]\n",
            "`flow.2.size`: the file has 1 [[flow]], counted from 1",
        ),
        ("[[flow]]\n[matrix]\nflow.bulk.size = [1]\n", "no [[flow]] has the name `bulk`"),
        (
            "[[flow]]\n[matrix]\nseed = [1, 2]\n",
            "`seed` cannot be a variable: each run derives its seed",
        ),
        ("[[flow]]\n[matrix]\nflow.size = [64, 64]\n", "[matrix] has the case flow.size=64 twice"),
        (
            "[[flow]]\nname = 'a ${x}'\n[matrix]\nx = [[1]]\n",
            "`${x}` is an array, which cannot be a part of a text",
        ),
        (
            "[[flow]]\nttl = '${x}'\n[matrix]\nx = [1]\n[[matrix.case]]\nflow.size = 9\n",
            "`${x}`: the case flow.size=9 has no value for it",
        ),
        ("[[flow]]\n[matrix]\ncase = 3\n", "`case` in [matrix]: expected tables"),
        ("[[flow]]\n[matrix]\ncase = [3]\n", "`case` in [matrix]: expected tables"),
        (
            "[[flow]]\n[sweep]\nrepetition = 3\n",
            "x.toml:7:1: unknown key `repetition` in [sweep]: did you mean `repetitions`?",
        ),
        (
            "[[flow]]\n[sweep]\nrepetitions = 0\n",
            "`repetitions` in [sweep]: 0 is not from 1 to 10000",
        ),
        ("[[flow]]\n[sweep]\nmax_repetitions = 4\n", "it goes with `repeat_until`"),
        (
            "[[flow]]\n[sweep]\nrepeat_until = 'loss < 5%'\n",
            "x.toml:7:16: `repeat_until` in [sweep]: `loss < 5%` is no rule",
        ),
        (
            "[[flow]]\n[sweep]\nrepeat_until = 'ci95(loss) < 5%'\nrepetitions = 2\n",
            "the least number, and at least 3",
        ),
        (
            "[[flow]]\n[sweep]\nrepeat_until = 'ci95(loss) < 5%'\nmax_repetitions = 3\nrepetitions = 4\n",
            "3 is less than the least number, 4",
        ),
    ] {
        let error = read(rest).err().unwrap_or_else(|| panic!("{rest} is taken"));
        assert!(error.contains(want), "{rest}: {error}");
    }
    let many = format!("[{}]", (0..200).map(|k| k.to_string()).collect::<Vec<_>>().join(","));
    let error = read(&format!("[[flow]]\n[matrix]\nflow.ttl = {many}\nflow.size = {many}\n"));
    let want = format!("[matrix] has more than {MAX_CASES} cases");
    assert!(error.expect_err("too many").contains(&want));
}

#[test]
fn a_case_is_a_file_of_its_own() {
    let sweep = sweep(
        "[nodes]\na = { address = '::1' }\n[[flow]]\nfrom = 'a'\nto = 'a'\nrate = '${r}'\non_off = '${o}'\n[network]\nkind = 'switch'\nlinks = [{ from = 'a', rate = '1Mbps' }]\n[matrix]\nr = ['1pps', '3pps']\no = [['exp(1s)', 'exp(2s)']]\n",
    );
    for case in &sweep.cases {
        let again =
            Experiment::parse(&case.text, "case").unwrap_or_else(|e| panic!("{e}\n{}", case.text));
        assert_eq!(plan(&again).hash, plan(&case.experiment).hash, "{}", case.text);
        assert_eq!(again.network, case.experiment.network);
    }
}

#[test]
fn seeds_and_order_are_pinned() {
    let sweep =
        sweep("[[flow]]\nrate = '${r}'\n[matrix]\nr = ['1pps', '2pps']\nflow.size = [64, 512]\n");
    let keys: Vec<_> = sweep.cases.iter().map(|case| case.key.as_str()).collect();
    assert_eq!(keys[1], "flow.size=512\nr=\"1pps\"");
    let seeds: Vec<u64> = [(0, 1), (0, 2), (3, 1)]
        .map(|(case, repetition)| run_seed(RunSeed(7), &sweep.cases[case], repetition).0)
        .to_vec();
    let rounds: Vec<Vec<usize>> = (1..=3).map(|r| sweep.round(RunSeed(7), r)).collect();
    assert_eq!(seeds, [5752972707992002, 2557592124607093, 8223532063517035]);
    assert_eq!(rounds, [[1, 2, 0, 3], [3, 2, 0, 1], [2, 3, 1, 0]]);
}

#[test]
fn another_value_changes_no_seed_of_the_others() {
    let few = sweep("[[flow]]\n[matrix]\nflow.size = [64, 512]\n");
    let more = sweep("[[flow]]\n[matrix]\nflow.size = [32, 64, 100, 512]\n");
    for case in &few.cases {
        let same = more.cases.iter().find(|other| other.key == case.key).expect("it");
        assert_eq!(run_seed(RunSeed(7), case, 2), run_seed(RunSeed(7), same, 2));
    }
}

/// Runs of a whole sweep in their order, and its last step, when each run takes a second and has
/// this figure.
fn carry_out(
    sweep: &Sweep,
    figure: impl Fn(usize, u32) -> Option<f64>,
) -> (Vec<(usize, u32)>, Next) {
    let (mut done, mut order) = (BTreeMap::new(), Vec::new());
    loop {
        match sweep.next(RunSeed(7), &done, 0) {
            Next::Run { case, repetition } => {
                let figures = BTreeMap::from([("loss".to_owned(), figure(case, repetition))]);
                let run = Done { elapsed_ns: 1_000_000_000, figures, left_out: false };
                assert!(done.insert((case, repetition), run).is_none(), "a run twice");
                order.push((case, repetition));
            }
            end => return (order, end),
        }
    }
}

#[test]
fn cases_are_repeated_until_the_rule_holds_or_the_budget_is_used() {
    let rule = "[[flow]]\n[matrix]\nflow.size = [64, 512, 900]\n[sweep]\nrepeat_until = 'ci95(loss) < 5%'\n";
    let noisy = |case: usize, repetition: u32| match case {
        0 => Some(1.0),
        1 if repetition == 1 => Some(1.2),
        1 => Some(1.0 + 0.001 * f64::from(repetition)),
        _ => Some(f64::from(repetition % 2)),
    };
    let count = |order: &[(usize, u32)], case| order.iter().filter(|run| run.0 == case).count();
    let (order, end) = carry_out(&sweep(&format!("{rule}max_repetitions = 20\n")), noisy);
    assert_eq!(end, Next::Finished);
    assert_eq!(
        (count(&order, 0), count(&order, 2)),
        (3, 20),
        "never below 3, never above the most"
    );
    assert!((4..20).contains(&count(&order, 1)), "{}", count(&order, 1));
    let (order, end) = carry_out(&sweep(&format!("{rule}max_time = '7s'\n")), noisy);
    assert_eq!((order.len(), end), (7, Next::OutOfTime));
    let (order, _) = carry_out(&sweep(&format!("{rule}max_repetitions = 5\n")), |_, _| None);
    assert_eq!(order.len(), 15, "what is not known is repeated to the most");
}

proptest! {
    #[test]
    fn every_run_comes_once_in_rounds_and_a_stop_anywhere_changes_nothing(
        seed: u64, cases in 1_usize..9, repetitions in 1_u32..5, in_order: bool, cut in 0_usize..40,
    ) {
        let sizes: Vec<_> = (0..cases).map(|k| (64 + k).to_string()).collect();
        let sweep = sweep(&format!(
            "[[flow]]\n[matrix]\nflow.size = [{}]\n[sweep]\nrepetitions = {repetitions}\nin_order = {in_order}\n",
            sizes.join(", ")
        ));
        let seed = RunSeed(seed);
        let mut done = BTreeMap::new();
        let mut order = Vec::new();
        while let Next::Run { case, repetition } = sweep.next(seed, &done, 0) {
            done.insert((case, repetition), Done::default());
            order.push((repetition, case));
        }
        let all: BTreeSet<_> = (1..=repetitions).flat_map(|r| (0..cases).map(move |c| (r, c))).collect();
        prop_assert_eq!(order.iter().copied().collect::<BTreeSet<_>>(), all);
        prop_assert_eq!(order.len(), cases * repetitions as usize);
        prop_assert!(order.is_sorted_by_key(|run| run.0), "a round after another");
        if in_order {
            prop_assert!(order.is_sorted());
        }
        // A program that finds these runs done goes on with the one behind them.
        let cut = cut.min(order.len());
        let found = order[..cut].iter().map(|&(r, c)| ((c, r), Done::default())).collect();
        let want = order.get(cut).map_or(Next::Finished, |&(repetition, case)| Next::Run { case, repetition });
        prop_assert_eq!(sweep.next(seed, &found, 0), want);
        let seeds: BTreeSet<_> =
            order.iter().map(|&(r, c)| run_seed(seed, &sweep.cases[c], r)).collect();
        prop_assert_eq!(seeds.len(), order.len(), "each run has a seed of its own");
    }
}
