//! View changes of the membership paper's mode P: in virtual time, and between processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use itg_core::seed::RunSeed;
use itg_group::membership::MembershipEvent;
use itg_members::{Arity, Rules};
use itg_mesh::{Listener, MasterSetup, Node, Report, start_master};
use itg_process::bootstrap::Application;
use itg_process::{Config, Injected, MS, SECOND, Slot, StopReason};
use itg_run::layers;
use itg_sim::{Fault, World};
use itg_socket::clock::monotonic_ns;

use super::processes::{LIMIT, configuration};

/// Number of times that a failure is reported before a phase is given up.
const ATTEMPTS: u32 = 6;

/// Children of each node of the tree.
pub(crate) fn arity(a: u32) -> Arity {
    Arity::try_from(a).unwrap_or_else(|_| Rules::default().arity)
}

/// Ts of one leaf's failure in virtual time on this network, with this time to recompute the tree in nanoseconds.
pub(crate) fn ts_on(n: u32, a: u32, network: &str, compute: u64) -> Result<u64> {
    let text = format!(
        "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\n\
         layers = [{{ layer = \"membership-paper\", arity = {a}, compute = \"{compute}ns\", publish = false, \
         late = \"10s\" }}]\n"
    );
    let config = Config::parse(&text, "bench")?;
    let mut world = World::new(&config, &layers::registry(), RunSeed(1))?;
    world.keep_events();
    // A leaf whose loss leaves the tree as high as it was.
    let height = |n| arity(a).height(n);
    let victim = if height(n - 1) == height(n) { n - 1 } else { n - 2 };
    let detector = if victim == n - 1 { n - 2 } else { n - 1 };
    world.fault_at(MS, Fault::Crash(Slot(victim)));
    let what = Injected::Suspect(Slot(victim));
    world.fault_at(2 * MS, Fault::Inject(Slot(detector), "membership-paper", what));
    world.run(SECOND);
    let events = world.take_events();
    let (mut reported, mut stable) = (None, None);
    for (at, _, event) in events.into_iter().filter(|(_, slot, _)| *slot == Slot(0)) {
        match event.decode() {
            Some(MembershipEvent::Reported { .. }) => _ = reported.get_or_insert(at),
            Some(MembershipEvent::Stable { .. }) => _ = stable.get_or_insert(at),
            _ => {}
        }
    }
    let missing = |what: &str| format!("{n} nodes, arity {a}: no `{what}`");
    let stable = stable.with_context(|| missing("stable"))?;
    Ok(stable - reported.with_context(|| missing("reported"))?)
}

/// Children of this process; killed and reaped when dropped.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Both fail only for one that has ended and been reaped.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Members fail one after the other, a few of them; Ts of each. This program is the root.
pub(crate) fn phases(network: &str, n: u32, a: u32) -> Result<Vec<u64>> {
    let layers = format!("{{ layer = \"membership-paper\", arity = {a} }}");
    let text = configuration(network, n, &layers, None);
    let registry = layers::registry();
    let application = Application { origin: "bench".to_owned(), text, seed: 1, network: None };
    let listener = Listener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    let mut children = Children(Vec::new());
    for _ in 1..n {
        let mut command = Command::new(std::env::current_exe().context("this program")?);
        command.args(["process", "--quiet", "--join", &listener.address().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        children.0.push(command.spawn().context("starting a process")?);
    }
    let (tell, told) = channel();
    let mut setup = MasterSetup::new(&application, &registry);
    setup.listener = Some(listener);
    setup.build = itg_run::process::build();
    setup.watch = Some(Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            tell.send((monotonic_ns(), event)).unwrap_or_default();
        }
    }));
    let node = start_master(setup)?;
    std::thread::sleep(Duration::from_millis(300));
    let mut times = Vec::new();
    // No killed process is waited for: the last slots, of those that are there.
    for gone in 1..=2.min(n - 2) {
        times.push(phase(&node, &told, Slot(n - gone))?);
    }
    node.handle().stop(StopReason::Finished);
    node.wait(LIMIT).context("the root did not stop")?;
    drop(node.finish());
    Ok(times)
}

/// The failure of one member is reported to the root: until it knows that the new view is stable. The member
/// does not take part any more because the view leaves it out; its process may run on.
fn phase(node: &Node, told: &Receiver<(u64, itg_process::Event)>, slot: Slot) -> Result<u64> {
    // A report that comes before the processes run is lost on a busy machine: it is repeated.
    for _ in 0..ATTEMPTS {
        while told.try_recv().is_ok() {}
        let begin = monotonic_ns();
        node.handle()
            .with(|process, now| {
                process.control(now, "membership-paper", Box::new(Injected::Suspect(slot)));
            })
            .context("the root is gone")?;
        while let Ok((at, event)) = told.recv_timeout(LIMIT / ATTEMPTS) {
            if let Some(MembershipEvent::Stable { .. }) = event.decode() {
                return Ok(at - begin);
            }
        }
    }
    bail!("the view never got stable")
}
