//! Daemon mode: flows are asked for with datagrams on UDP port 8998.
//!
//! Any host can send such a datagram, under any address. So a flow is sent only to a host that has
//! agreed to it in its signalling, unless the user allows more.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use itg_classic::send::{FlowArgs, LogSettings, THIRD_PARTY};
use itg_classic::wire::{Daemon, DaemonConfig, DaemonOutput, PORT_MANAGER, REQUEST_MAX};
use itg_cli::say;
use itg_node::{ClassicChannel, ClassicSender, ClassicWay};
use itg_socket::{clock, plain};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{judge, prepare, say_progress, start};

/// Exit code after Ctrl-C, as with D-ITG.
pub(crate) const ENDED: u8 = 2;
/// Most flows at a time.
const FLOWS_MAX: usize = 4096;

/// Serves managers until the program is to end.
pub(crate) async fn run(
    logs: LogSettings,
    third_party: bool,
    mut stop: watch::Receiver<Option<String>>,
) -> Result<u8> {
    let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT_MANAGER));
    let socket = UdpSocket::bind(at)
        .await
        .with_context(|| format!("waiting for managers on UDP port {PORT_MANAGER}"))?;
    let (sender, mut told) = start(&logs, false, FLOWS_MAX)?;
    let sender = Arc::new(sender);
    let config = DaemonConfig { flows_max: FLOWS_MAX, files: false };
    let mut daemon = Daemon::<SocketAddr>::new(config, logs);
    let mut flows = JoinSet::new();
    let mut out = Vec::new();
    let mut buffer = vec![0; REQUEST_MAX + 1];
    say(format_args!("ITGSend: waiting for requests on UDP port {PORT_MANAGER}"));
    loop {
        tokio::select! {
            // An error tells of an earlier answer that could not be delivered.
            Ok((len, from)) = socket.recv_from(&mut buffer) => {
                // No other host can send under an address of the loopback network.
                daemon.request(from, from.ip().is_loopback(), &buffer[..len], &mut out);
            }
            Some(ended) = flows.join_next() => {
                let (id, failed): (u32, Option<String>) = ended?;
                daemon.ended(id, failed.as_deref(), &mut out);
            }
            Some(progress) = told.recv() => say_progress(&progress),
            _ = stop.wait_for(Option::is_some) => break,
        }
        let mut at = 0;
        // What begins, or is refused, has answers.
        while at < out.len() {
            let output = std::mem::replace(&mut out[at], DaemonOutput::Say(String::new()));
            at += 1;
            match output {
                DaemonOutput::Send { to, bytes } => {
                    if let Err(error) = socket.send_to(&bytes, to).await {
                        say(format_args!("ITGSend: manager {to}: {error}"));
                    }
                }
                DaemonOutput::Say(text) => say(format_args!("ITGSend: {text}")),
                DaemonOutput::Start(flow) => {
                    let id = flow.id;
                    match channels_of(*flow, daemon.logs(), third_party) {
                        Ok(channels) => {
                            daemon.begun(id, &mut out);
                            begin(id, channels, &sender, &stop, &mut flows);
                        }
                        Err(error) => daemon.refused(id, &format!("{error:#}"), &mut out),
                    }
                }
            }
        }
        out.clear();
    }
    // Flows see the stop themselves and end in order.
    while flows.join_next().await.is_some() {}
    if let Some(sender) = Arc::into_inner(sender) {
        let log = tokio::task::spawn_blocking(move || sender.close()).await?;
        if let Some(error) = log.and_then(|log| log.error) {
            say(format_args!("ITGSend: {error}"));
        }
    }
    Ok(ENDED)
}

/// The channels of a requested flow, which lead nowhere but to hosts that are asked first.
fn channels_of(
    args: FlowArgs,
    logs: &LogSettings,
    third_party: bool,
) -> Result<Vec<ClassicChannel>> {
    let now_ns = clock::monotonic_ns();
    let channels =
        tokio::task::block_in_place(|| prepare::channels(vec![args], logs, now_ns, third_party))?;
    if !third_party {
        channels.iter().try_for_each(stays_with_its_receiver)?;
    }
    Ok(channels)
}

/// Refuses a channel whose data would go elsewhere than its signalling.
fn stays_with_its_receiver(channel: &ClassicChannel) -> Result<()> {
    // In passive mode the sending side sees to it, when the receiver comes.
    let ClassicWay::Connect { to, .. } = &channel.way else { return Ok(()) };
    let ip = |address: &SocketAddr| -> IpAddr { plain(*address).ip() };
    for dest in channel.flows.iter().filter_map(|flow| flow.dest) {
        if ip(&dest) != ip(to) {
            bail!(
                "its data would go to {}, its signalling to {}: data goes only where the signalling \
                 went, unless ITGSend -Q is started with {THIRD_PARTY}",
                ip(&dest),
                ip(to)
            );
        }
    }
    Ok(())
}

/// Starts the flow of a request.
fn begin(
    id: u32,
    channels: Vec<ClassicChannel>,
    sender: &Arc<ClassicSender>,
    stop: &watch::Receiver<Option<String>>,
    flows: &mut JoinSet<(u32, Option<String>)>,
) {
    let (sender, stop) = (Arc::clone(sender), stop.clone());
    flows.spawn(async move {
        let mut failed = None;
        for channel in &channels {
            let ending = sender.run(channel, stop.clone()).await;
            if judge(&ending) != 0 {
                let why = ending.flows.iter().find_map(|flow| flow.why.clone());
                let why = why.or_else(|| ending.ending.err());
                failed = Some(why.unwrap_or_else(|| "the flow failed".to_owned()));
            }
        }
        (id, failed)
    });
}
