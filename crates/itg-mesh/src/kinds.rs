//! Kinds of real networks, and what may be said of one in the configuration.

use std::sync::Arc;

use itg_process::{Config, ConfigError, Contract, Network, suggestion};

/// Bytes that wait for one process at most unless the configuration says otherwise: 4 MiB.
const QUEUE: u64 = 4 << 20;
/// Most bytes that may wait for one process: 1 GiB.
const MOST_QUEUE: u64 = 1 << 30;
/// Largest body of a datagram: what IPv4 carries without the frame's header.
const MOST_DATAGRAM: u64 = 65_507 - itg_process::frame::HEADER_LEN as u64;

/// A kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tcp,
    Unix,
    Udp,
}

impl Kind {
    const ALL: [(&'static str, Self); 3] =
        [("tcp", Self::Tcp), ("unix", Self::Unix), ("udp", Self::Udp)];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::Udp => "udp",
        }
    }

    pub(crate) const fn is_stream(self) -> bool {
        !matches!(self, Self::Udp)
    }
}

/// A network as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    /// Bytes that may wait for one process.
    pub(crate) queue: usize,
    pub(crate) max_body: usize,
    /// Datagrams to lose on purpose, in parts of a million.
    pub(crate) loss: u32,
}

/// The networks of a configuration, and what they promise.
///
/// # Errors
/// Kinds that are not real and wrong parameters, with file, line and the nearest name.
pub(crate) fn read(config: &Config) -> Result<(Vec<Wanted>, Arc<[Network]>), ConfigError> {
    let mut wanted = Vec::new();
    let mut promised = Vec::new();
    for entry in &config.networks {
        let mut params = entry.params.clone();
        let Some((_, kind)) = Kind::ALL.into_iter().find(|(name, _)| *name == entry.kind) else {
            let hint = suggestion(&entry.kind, Kind::ALL.map(|(name, _)| name));
            let text = format!("`{}` is no kind of real network: {hint}", entry.kind);
            return Err(params.error_at("kind", text));
        };
        let contract = if kind.is_stream() { Contract::STREAM } else { Contract::DATAGRAM };
        let most = if kind.is_stream() { MOST_QUEUE } else { MOST_DATAGRAM };
        let max_body = within(&mut params, "max_body", contract.max_body as u64, most)?;
        let queue = match kind.is_stream() {
            true => within(&mut params, "queue", QUEUE, MOST_QUEUE)?,
            false => 0,
        };
        let loss = if kind == Kind::Udp { params.probability("loss")? } else { 0 };
        params.finish()?;
        wanted.push(Wanted { kind, queue, max_body, loss });
        promised.push(Network {
            name: entry.name.clone(),
            contract: Contract { max_body, ..contract },
        });
    }
    Ok((wanted, promised.into()))
}

fn within(
    params: &mut itg_process::Params,
    key: &'static str,
    default: u64,
    most: u64,
) -> Result<usize, ConfigError> {
    let value = params.number(key, default)?;
    if value == 0 || value > most {
        return Err(params.error_at(key, format_args!("{value} bytes: expected 1 to {most}")));
    }
    Ok(usize::try_from(value).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(network: &str) -> Result<Wanted, String> {
        let text = format!("[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = []");
        let config = Config::parse(&text, "run.toml").map_err(|error| error.to_string())?;
        read(&config).map(|(wanted, _)| wanted[0]).map_err(|error| error.to_string())
    }

    #[test]
    fn parameters_are_checked_where_they_stand() {
        let stream = Wanted { kind: Kind::Tcp, queue: 4 << 20, max_body: 16 << 20, loss: 0 };
        let datagram = Wanted { kind: Kind::Udp, queue: 0, max_body: 1416, loss: 10_000 };
        for (text, want) in [
            ("kind = \"tcp\"", Ok(stream)),
            ("kind = \"unix\"\nqueue = 10", Ok(Wanted { kind: Kind::Unix, queue: 10, ..stream })),
            ("kind = \"udp\"\nloss = 0.01", Ok(datagram)),
            (
                "kind = \"udp\"\nmax_body = 65472",
                Err("run.toml:4:12: [[network]]: max_body: 65472 bytes: expected 1 to 65471"),
            ),
            (
                "kind = \"tcp\"\nloss = 0.01",
                Err(
                    "run.toml:4:8: [[network]]: unknown key `loss`: expected one of `name`, `kind`, \
                     `max_body`, `queue`",
                ),
            ),
            (
                "kind = \"tpc\"",
                Err(
                    "run.toml:3:8: [[network]]: kind: `tpc` is no kind of real network: did you mean \
                     `tcp`?",
                ),
            ),
        ] {
            assert_eq!(parsed(text), want.map_err(str::to_owned), "{text}");
        }
    }
}
