//! Clients and servers: clients outside the group ask all servers (case A) or one of them (case B).

use anyhow::Result;
use itg_cli::print;
use itg_report::{Curve, Plot};
use itg_trials::Lines;

use super::common::{BenchArgs, draw, percentile, say, us};
use super::processes::{ALGORITHMS, Group, configuration};
use itg_run::load::LoadEvent;

/// Result of some clients.
#[derive(Clone, Copy, Debug)]
struct ClientFigures {
    /// Median over the clients of their median times from request to first answer, in nanoseconds.
    p50: u64,
    /// Answers a second, of all clients.
    rate: f64,
}

pub(crate) fn run(args: &BenchArgs, rounds: u64) -> Result<()> {
    let (servers, clients): (&[u32], &[u32]) =
        if args.quick { (&[2, 4], &[1, 3]) } else { (&[1, 2, 4, 6], &[1, 2, 3, 4]) };
    print(&format!(
        "\nClients and servers, TCP, {rounds} requests of 100 bytes one after the other from each client: µs from \
         request to first answer (p50; in brackets answers a second, of all clients); case A asks all servers, case \
         B one\n\n"
    ))?;
    let mut table =
        Lines::new(["servers, clients", "case", "Sequencer", "Skeen", "Chandra-Toueg", "log"]);
    let (mut faster, mut cells) = (0, 0);
    let mut lines = Vec::new();
    for &servers in servers {
        let mut rates = vec![Vec::new(); ALGORITHMS.len()];
        for &clients in clients {
            let mut rows = Vec::new();
            for case in ["all", "one"] {
                let seen = ALGORITHMS.iter().map(|name| ask(servers, clients, case, name, rounds));
                rows.push(seen.collect::<Result<Vec<_>>>()?);
            }
            faster += rows[0].iter().zip(&rows[1]).take(3).filter(|(a, b)| a.p50 < b.p50).count();
            cells += 3;
            for (rates, seen) in rates.iter_mut().zip(&rows[1]) {
                rates.push((seen.rate, us(seen.p50)));
            }
            for (case, seen) in ["A", "B"].iter().zip(rows) {
                let seen =
                    seen.into_iter().map(|seen| format!("{:.1} ({:.0})", us(seen.p50), seen.rate));
                let name = format!("{servers}, {clients}");
                table.row([name, (*case).to_owned()].into_iter().chain(seen));
            }
        }
        // The saturation of the thesis: how far more clients get more answers.
        let named = ALGORITHMS.iter().zip(rates);
        lines.extend(
            named
                .map(|(name, points)| Curve { name: format!("{name}, {servers} servers"), points }),
        );
    }
    print(&format!("{table}\n"))?;
    print("\n")?;
    say(
        faster == cells,
        &format!(
            "case A answers sooner than case B, as in the thesis: in {faster} of {cells} cells"
        ),
    )?;
    let plot = Plot {
        title: "Clients and servers, case B: more clients from left to right".to_owned(),
        x: "answers a second".to_owned(),
        y: "µs from request to answer".to_owned(),
        lines,
        ..Plot::default()
    };
    draw(args, "broadcast-clients", &plot)
}

fn ask(
    servers: u32,
    clients: u32,
    case: &str,
    algorithm: &str,
    rounds: u64,
) -> Result<ClientFigures> {
    // The failure-free forms let the client itself cast in case A.
    let direct = case == "all" && algorithm != "log";
    let broadcast = format!("{{ layer = \"{algorithm}\", members = {servers} }}");
    let server = format!("{broadcast}, {{ layer = \"server\", servers = {servers} }}");
    let client = format!(
        "{{ layer = \"client\", servers = {servers}, ask = \"{case}\", direct = {direct}, patience = \
         \"10s\" }}, {{ layer = \"asker\", rounds = {rounds} }}"
    );
    let client = if direct { format!("{broadcast}, {client}") } else { client };
    let text = configuration("tcp", servers + clients, &server, Some((servers, &client)));
    let events = Group::start(&text, servers + clients)?.finish()?;
    let (mut counts, mut p50) = (Vec::new(), Vec::new());
    for (_, seen) in events.into_iter().filter(|(slot, _)| *slot >= servers) {
        match seen.decode() {
            Some(LoadEvent::Result { count, ns, .. }) => counts.push((count, ns)),
            // None were answered: zeros.
            Some(LoadEvent::Times { p50: 0, .. }) | None => {}
            Some(LoadEvent::Times { p50: half, .. }) => p50.push(half),
        }
    }
    if p50.is_empty() || counts.len() != clients as usize {
        let got = counts.len();
        anyhow::bail!("{algorithm}, case {case}: results of {got} of {clients} clients");
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = counts.iter().map(|(n, ns)| *n as f64 * 1e9 / (*ns).max(1) as f64).sum();
    Ok(ClientFigures { p50: percentile(&mut p50, 50), rate })
}
