//! Policy file of an agent: what it refuses to every caller.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use itg_cli::{read_text, refuse};
use itg_core::flow::Payload;
use itg_core::rate::AS_ASKED_PPM;
use itg_core::units::{Rate, format_bit_rate, format_duration_ns};
use itg_experiment::{FlowRate, Plan, TimeSpan};
use serde::Deserialize;

/// A policy; what is not named is allowed, but for files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    /// Addresses and networks (`10.0.0.0/8`) that may be sent to; all when empty.
    #[serde(default)]
    targets: Vec<String>,
    /// Highest mean rate of one flow.
    max_rate: Option<FlowRate>,
    /// Longest flow.
    max_duration: Option<TimeSpan>,
    /// Most flows of one experiment.
    max_flows: Option<usize>,
    /// True if flows may carry files of this host.
    #[serde(default)]
    payload_files: bool,
}

/// A network as `ADDRESS/LENGTH`, or one address.
fn contains(network: &str, ip: IpAddr) -> Result<bool, String> {
    let (address, len) = network.split_once('/').unwrap_or((network, ""));
    let bad = || format!("target `{network}`: expected an address or a network such as 10.0.0.0/8");
    let address: IpAddr = address.parse().map_err(|_| bad())?;
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((want, width), (got, other)) = (bits(address), bits(ip));
    let len: u32 = if len.is_empty() { width } else { len.parse().map_err(|_| bad())? };
    if len > width {
        return Err(bad());
    }
    let mask = if len == 0 { 0 } else { u128::MAX << (128 - len) };
    Ok(width == other && want & mask == got & mask)
}

impl Policy {
    /// Reads a policy file.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        let name = path.display();
        let text =
            read_text(path).map_err(|error| refuse(format!("policy file {name}: {error}")))?;
        Self::parse(&text).map_err(|error| refuse(format!("policy file {name}: {error}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for network in &policy.targets {
            contains(network, IpAddr::from([0, 0, 0, 0]))?;
        }
        Ok(policy)
    }

    /// By how much the rates of flows may be changed while they run, in millionths of what they ask for;
    /// flows that are not named have no limit.
    pub(crate) fn most_ppm(&self, plan: &Plan) -> BTreeMap<u32, u32> {
        let Some(most) = self.max_rate.map(|rate| rate.0) else { return BTreeMap::new() };
        let estimate = plan.estimate();
        let flows = plan.flows.iter().zip(&estimate.flows);
        flows
            .map(|(planned, flow)| {
                #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
                let times = match most {
                    Rate::Bits(most) => most.0 as f64 / flow.bit_rate,
                    Rate::Packets(most) => most / flow.packet_rate,
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "what is out of range saturates"
                )]
                let ppm = (times * f64::from(AS_ASKED_PPM)).floor() as u32;
                (planned.flow.spec().id, ppm)
            })
            .collect()
    }

    /// Checks that a plan is allowed; `targets` are the receivers of its flows.
    pub(crate) fn allows(&self, plan: &Plan, targets: &[IpAddr]) -> Result<(), String> {
        if let Some(most) = self.max_flows.filter(|most| plan.flows.len() > *most) {
            return Err(format!("policy: {} flows, at most {most} are allowed", plan.flows.len()));
        }
        for ip in targets {
            let among = self.targets.iter().any(|network| contains(network, *ip).unwrap_or(false));
            if !self.targets.is_empty() && !among {
                return Err(format!("policy: {ip} is no target that is allowed"));
            }
        }
        let estimate = plan.estimate();
        for (planned, flow) in plan.flows.iter().zip(&estimate.flows) {
            let spec = planned.flow.spec();
            let id = spec.id;
            if matches!(spec.payload, Payload::File(_)) && !self.payload_files {
                return Err(format!("policy: flow {id}: payload files are not allowed"));
            }
            if let Some(most) = self.max_duration
                && spec.stop.duration_ns.is_none_or(|ns| ns > most.0)
            {
                let most = format_duration_ns(most.0);
                return Err(format!("policy: flow {id}: longer than {most}"));
            }
            let over = match self.max_rate.map(|rate| rate.0) {
                Some(Rate::Bits(most)) => {
                    #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
                    let most = most.0 as f64;
                    (flow.bit_rate > most).then(|| format_bit_rate(most))
                }
                Some(Rate::Packets(most)) => {
                    (flow.packet_rate > most).then(|| format!("{most} packets/s"))
                }
                None => None,
            };
            if let Some(most) = over {
                return Err(format!("policy: flow {id}: faster than {most}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        for (network, ip, want) in [
            ("10.0.0.0/8", "10.1.2.3", Ok(true)),
            ("10.0.0.0/8", "11.1.2.3", Ok(false)),
            ("10.0.0.4", "10.0.0.4", Ok(true)),
            ("10.0.0.4", "10.0.0.5", Ok(false)),
            ("0.0.0.0/0", "1.2.3.4", Ok(true)),
            ("0.0.0.0/0", "::1", Ok(false)),
            ("fd00::/8", "fd12::1", Ok(true)),
            ("10.0.0.0/33", "10.0.0.1", Err(())),
            ("here", "10.0.0.1", Err(())),
        ] {
            let ip = ip.parse().expect("an address");
            assert_eq!(contains(network, ip).map_err(drop), want, "{network} {ip}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(Policy::parse("max_rate = \"10Mbps\"\nmax_duration = \"60s\"").is_ok());
        assert!(Policy::parse("max_speed = \"10Mbps\"").is_err());
        assert!(Policy::parse("targets = [\"all\"]").is_err());
    }
}
