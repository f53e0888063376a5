//! From command lines to flows: names become addresses, files are read, flows to one receiver share a
//! channel.

use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use itg_classic::send::{FlowArgs, LogProto, LogSettings, Transport};
use itg_classic::wire::{PORT_SIGNALLING, RecvLog};
use itg_engine::{ClassicContent, ClassicPlace, ClassicTarget, LogTarget};
use itg_node::{ClassicChannel, ClassicFlow, ClassicSource, ClassicWay};
use itg_socket::{host, resolve};

/// Largest file of payload: 256 MiB.
const PAYLOAD_MAX: u64 = 256 << 20;
/// Names of logs when none is given.
const SEND_LOG: &str = "/tmp/ITGSend.log";
const RECV_LOG: &str = "/tmp/ITGRecv.log";

/// The sender's log; a server goes before a file, as with D-ITG.
pub(crate) fn log(logs: &LogSettings) -> Result<Option<LogTarget>> {
    let place = match (&logs.log_server, &logs.log) {
        (Some(server), name) => ClassicPlace::Server {
            address: resolve(&server.host, server.port)?,
            proto: server.proto,
            path: name.clone().unwrap_or_else(|| SEND_LOG.to_owned()),
        },
        (None, Some(name)) => ClassicPlace::File(PathBuf::from(name)),
        (None, None) => return Ok(None),
    };
    let buffer = logs.buffer;
    Ok(Some(LogTarget::Classic(Box::new(ClassicTarget { place, buffer }))))
}

/// The receiver's log.
fn recv_log(logs: &LogSettings) -> Result<Option<RecvLog>> {
    let path = || logs.recv_log.as_deref().unwrap_or(RECV_LOG).as_bytes().to_vec();
    Ok(match (&logs.recv_log_server, &logs.recv_log) {
        (Some(server), _) => Some(RecvLog::Server {
            address: resolve(&server.host, server.port)?.ip(),
            proto: match server.proto {
                LogProto::Tcp => LogProto::Tcp,
                LogProto::Udp => LogProto::Udp,
            },
            path: path(),
        }),
        (None, Some(_)) => Some(RecvLog::File { path: path() }),
        (None, None) => None,
    })
}

/// The channels for these flows, one for each signalling address. `third_party`: in passive mode data
/// may go elsewhere than the signalling came from.
pub(crate) fn channels(
    flows: Vec<FlowArgs>,
    logs: &LogSettings,
    since_ns: u64,
    third_party: bool,
) -> Result<Vec<ClassicChannel>> {
    let log = recv_log(logs)?;
    let mut channels: Vec<(Option<IpAddr>, ClassicChannel)> = Vec::new();
    for args in flows {
        let id = args.id;
        let (key, way) = way(&args).with_context(|| format!("flow {id}"))?;
        let flow = flow(args).with_context(|| format!("flow {id}"))?;
        match channels.iter_mut().find(|(known, _)| *known == key) {
            Some((_, channel)) => channel.flows.push(flow),
            None => {
                // In passive mode delays count from the connection on, as with D-ITG.
                let since_ns = key.map(|_| since_ns);
                let (log, flows) = (log.clone(), vec![flow]);
                let channel = ClassicChannel { way, log, flows, since_ns, third_party };
                channels.push((key, channel));
            }
        }
    }
    Ok(channels.into_iter().map(|(_, channel)| channel).collect())
}

/// Signalling of a flow with its receiver, and the address that tells channels apart.
fn way(args: &FlowArgs) -> Result<(Option<IpAddr>, ClassicWay)> {
    let signalling = &args.signalling;
    let source = signalling.source.as_ref().map(|host| resolve(host, 0)).transpose()?;
    let source_port = signalling.source_port;
    if args.passive {
        let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let mut at = source.unwrap_or(any);
        at.set_port(source_port.unwrap_or(PORT_SIGNALLING));
        return Ok((None, ClassicWay::Await(at)));
    }
    let (host, port) = args.signalling_dest();
    let mut to = resolve(host, port)?;
    to.set_port(port);
    let from = (source.is_some() || source_port.is_some()).then(|| {
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut from = source.unwrap_or_else(|| SocketAddr::new(any, 0));
        from.set_port(source_port.unwrap_or(0));
        from
    });
    Ok((Some(to.ip()), ClassicWay::Connect { to, from, interface: signalling.interface.clone() }))
}

fn flow(mut args: FlowArgs) -> Result<ClassicFlow> {
    if matches!(args.transport, Transport::Icmp { .. }) && args.passive {
        bail!("passive mode carries UDP and TCP only");
    }
    let [gaps, sizes] = args.value_files().map(|name| name.map(str::to_owned));
    for (name, sizes) in [(gaps, false), (sizes, true)] {
        if let Some(name) = name {
            let text = itg_cli::read_text(&name).with_context(|| format!("the file {name}"))?;
            args.load(&text, sizes).with_context(|| format!("the file {name}"))?;
        }
    }
    let content = match &args.payload {
        Some(name) => ClassicContent::file(payload(name)?),
        None => ClassicContent::random(host::random_u64()),
    };
    let dest = if args.passive { None } else { Some(resolve(&args.dest, 0)?) };
    let source = args.source.as_ref().map(|host| resolve(host, 0)).transpose()?;
    let source = source.map(|address| address.ip());
    let seed = args.seed.unwrap_or_else(drawn_seed);
    Ok(ClassicFlow {
        offer: args.offer(dest.map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |dest| dest.ip()), source),
        icmp_type: match args.transport {
            Transport::Icmp { kind } => kind,
            _ => 0,
        },
        spec: args.to_spec()?,
        dest,
        source,
        packets: ClassicSource::Ditg { args: Box::new(args), content, seed },
        live: Arc::default(),
    })
}

/// A seed above 0 and below 1.
fn drawn_seed() -> f64 {
    let bits = host::random_u64() >> 12;
    (bits as f64 + 0.5) / (1_u64 << 52) as f64
}

fn payload(name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(name).with_context(|| format!("the file {name}"))?;
    file.take(PAYLOAD_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("the file {name}"))?;
    if bytes.is_empty() || bytes.len() as u64 > PAYLOAD_MAX {
        bail!("the file {name}: expected 1 byte to 256 MiB");
    }
    Ok(bytes)
}
