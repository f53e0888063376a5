//! Daemon mode: flows are asked for with datagrams on UDP port 8998.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use itg_classic::send::{FlowArgs, LogSettings};
use itg_classic::wire::{Daemon, DaemonConfig, DaemonOutput, PORT_MANAGER, REQUEST_MAX};
use itg_cli::say;
use itg_net::{ClassicSender, clock};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{judge, prepare, say_progress, start};

/// Exit code after Ctrl-C, as with D-ITG.
pub(crate) const ENDED: u8 = 2;
/// Most flows at a time.
const FLOWS_MAX: usize = 4096;

/// Serves managers until the program is to end.
pub(crate) async fn run(
    logs: LogSettings,
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
                daemon.request(from, &buffer[..len], &mut out);
            }
            Some(ended) = flows.join_next() => {
                let (id, failed): (u32, Option<String>) = ended?;
                daemon.ended(id, failed.as_deref(), &mut out);
            }
            Some(progress) = told.recv() => say_progress(&progress),
            _ = stop.wait_for(Option::is_some) => break,
        }
        let mut again = Vec::new();
        for output in out.drain(..) {
            match output {
                DaemonOutput::Send { to, bytes } => {
                    if let Err(error) = socket.send_to(&bytes, to).await {
                        say(format_args!("ITGSend: manager {to}: {error}"));
                    }
                }
                DaemonOutput::Say(text) => say(format_args!("ITGSend: {text}")),
                DaemonOutput::Start(flow) => {
                    again.push(begin(*flow, &sender, daemon.logs(), &stop, &mut flows));
                }
            }
        }
        for (id, why) in again.into_iter().flatten() {
            daemon.ended(id, Some(&why), &mut out);
        }
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

/// Starts the flow of a request; its number and the reason when it cannot be.
fn begin(
    args: FlowArgs,
    sender: &Arc<ClassicSender>,
    logs: &LogSettings,
    stop: &watch::Receiver<Option<String>>,
    flows: &mut JoinSet<(u32, Option<String>)>,
) -> Option<(u32, String)> {
    let id = args.id;
    let now_ns = clock::monotonic_ns();
    let prepared = tokio::task::block_in_place(|| prepare::channels(vec![args], logs, now_ns));
    let channels = match prepared {
        Ok(channels) => channels,
        Err(error) => return Some((id, format!("{error:#}"))),
    };
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
    None
}
