//! Clients and servers: one client outside the group asks all servers (case A) or one of them (case B).

use anyhow::{Context as _, Result};

use super::broadcast::ALGORITHMS;
use super::group::{Group, configuration};
use super::table::Table;
use super::{BenchArgs, us};
use crate::load::{RESULT, TIMES};
use crate::print;

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let rounds = if args.quick { 300 } else { 1500 };
    print(&format!(
        "\nOne client, TCP, {rounds} requests of 100 bytes one after the other: µs from request to first answer \
         (p50); case A asks all servers, case B one\n\n"
    ))?;
    let mut table = Table::new(&["servers", "case", "Sequencer", "Skeen", "Chandra-Toueg", "log"]);
    let mut faster = 0;
    for servers in [2, 4] {
        let mut rows = Vec::new();
        for case in ["all", "one"] {
            let times = ALGORITHMS.iter().map(|name| reply(servers, case, name, rounds));
            rows.push(times.collect::<Result<Vec<_>>>()?);
        }
        faster += rows[0].iter().zip(&rows[1]).take(3).filter(|(a, b)| a < b).count();
        for (case, times) in ["A", "B"].iter().zip(rows) {
            let times = times.into_iter().map(|ns| format!("{:.1}", us(ns)));
            table.row([servers.to_string(), (*case).to_owned()].into_iter().chain(times).collect());
        }
    }
    print(&table.to_string())?;
    print(&format!(
        "\nThe thesis: case A is faster and costs more messages. Here in {faster} of 6 cells of its three \
         algorithms.\n"
    ))
}

/// Median time of an answer in nanoseconds.
fn reply(servers: u32, case: &str, algorithm: &str, rounds: u64) -> Result<u64> {
    // The failure-free forms let the client itself cast in case A.
    let direct = case == "all" && algorithm != "log";
    let broadcast = format!("{{ layer = \"{algorithm}\", members = {servers} }}");
    let server = format!("{broadcast}, {{ layer = \"server\", servers = {servers} }}");
    let client = format!(
        "{{ layer = \"client\", servers = {servers}, ask = \"{case}\", direct = {direct}, patience = \
         \"10s\" }}, {{ layer = \"asker\", rounds = {rounds} }}"
    );
    let client = if direct { format!("{broadcast}, {client}") } else { client };
    let text = configuration("tcp", servers + 1, &server, Some((servers, &client)));
    let events = Group::start(&text, servers + 1)?.finish()?;
    let what = || format!("{algorithm}, case {case}: no result");
    events.iter().find(|(_, seen)| seen.event == RESULT).with_context(what)?;
    let times = events.iter().find(|(_, seen)| seen.event == TIMES).with_context(what)?;
    Ok(times.1.values[0])
}
