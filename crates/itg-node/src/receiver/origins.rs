//! Addresses that the packets of a flow may come from, as its two sides have agreed, and the warning about
//! those that come from elsewhere.

use std::net::{IpAddr, SocketAddr};

use itg_core::flow::{FlowSpec, Meter};
use itg_engine::rx::Origin;
use itg_session::FlowCounts;

/// Returns the origin that packets of a flow must have: its peer on the signalling channel, or the address
/// that the peer has named for data. Packets that go back go nowhere but to the peer, or to what `allowed`
/// lists.
pub(super) fn origin_of(
    peer: SocketAddr,
    spec: &FlowSpec,
    allowed: &[IpAddr],
) -> Result<Origin, String> {
    let origin = Origin::peer(peer);
    let Some(text) = &spec.socket.source else { return Ok(origin) };
    // A zone is the sender's.
    let address = text.split_once('%').map_or(text.as_str(), |(address, _)| address);
    let data: IpAddr =
        address.parse().map_err(|_| format!("source `{}` is no address", text.escape_debug()))?;
    let data = data.to_canonical();
    if data.is_unspecified() || data == peer.ip() {
        return Ok(origin);
    }
    if spec.meter == Meter::Rtt && !allowed.contains(&data) {
        return Err(format!(
            "source {data}: packets of a round trip go back to where the sender signals from, {}: leave out \
             --source, or start the receiver with --allow-source {data}",
            peer.ip()
        ));
    }
    Ok(Origin { data: Some(data), ..origin })
}

/// A warning about packets on a flow's port that are left out.
pub(super) fn foreign(
    peer: SocketAddr,
    counts: &FlowCounts,
    stranger: Option<SocketAddr>,
) -> String {
    let (flow, count) = (counts.flow, counts.foreign);
    let packets = if count == 1 { "packet" } else { "packets" };
    let text = format!("sender {peer}, flow {flow}: {count} foreign {packets} left out");
    match stranger {
        Some(from) if from.ip() == peer.ip() => {
            format!("{text}; from {from}, while the flow comes from another port")
        }
        Some(from) => format!(
            "{text}; from {from}: if its sender has that address, start the receiver with --allow-source {}",
            from.ip()
        ),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_agreed_or_refused() {
        let peer: SocketAddr = "10.0.0.1:4000".parse().expect("an address");
        let data = |text: &str| text.parse().ok();
        let back = "packets of a round trip go back to where the sender signals from, 10.0.0.1";
        for (source, meter, want) in [
            (None, Meter::Rtt, Ok(None)),
            (Some("10.0.0.1"), Meter::Rtt, Ok(None)),
            (Some("::ffff:10.0.0.1"), Meter::Rtt, Ok(None)),
            (Some("0.0.0.0"), Meter::Owd, Ok(None)),
            (Some("10.9.0.1"), Meter::Owd, Ok(data("10.9.0.1"))),
            (Some("fe80::1%eth0"), Meter::Owd, Ok(data("fe80::1"))),
            (Some("10.9.0.1"), Meter::Rtt, Err(back)),
            (Some("10.9.0.2"), Meter::Rtt, Ok(data("10.9.0.2"))),
            (Some("a.host"), Meter::Owd, Err("source `a.host` is no address")),
        ] {
            let mut spec = FlowSpec::new(1);
            (spec.socket.source, spec.meter) = (source.map(str::to_owned), meter);
            let allowed: Vec<IpAddr> = data("10.9.0.2").into_iter().collect();
            match (origin_of(peer, &spec, &allowed), want) {
                (Ok(origin), Ok(data)) => assert_eq!(origin, Origin { peer, data }, "{source:?}"),
                (Err(error), Err(words)) => assert!(error.contains(words), "{source:?}: {error}"),
                (got, want) => panic!("{source:?} {meter:?}: {got:?}, expected {want:?}"),
            }
        }
    }
}
