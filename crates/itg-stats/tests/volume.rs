//! Packets, bytes and time of a flow, and the rates that follow from them.

use itg_stats::stats::Volume;

const S: u64 = 1_000_000_000;

fn volume(packets: u64, bytes: u64, span: Option<(u64, u64)>) -> Volume {
    let (first_unix_ns, last_unix_ns) = span.unzip();
    Volume { packets, bytes, first_unix_ns, last_unix_ns }
}

#[test]
fn rates_are_those_between_the_first_and_the_last_packet() {
    for (packets, bytes, span, want) in [
        (0, 0, None, (0, Some(0.0), Some(0.0))),
        (1, 700, Some((S, S)), (0, None, None)),
        (1, 700, Some((S, 2 * S)), (S, None, None)),
        (2, 2000, Some((S, 3 * S)), (2 * S, Some(4000.0), Some(0.5))),
        (3, 3000, Some((S, 2 * S)), (S, Some(16_000.0), Some(2.0))),
        (3, 3000, Some((S, S)), (0, None, None)),
        (3, 3000, None, (0, None, None)),
    ] {
        let volume = volume(packets, bytes, span);
        let got = (volume.duration_ns(), volume.bitrate_bps(), volume.packet_rate_pps());
        assert_eq!(got, want, "{volume:?}");
    }
}

#[test]
fn volumes_are_joined_from_the_earliest_to_the_latest() {
    let (none, early) = (volume(0, 0, None), volume(2, 30, Some((5, 9))));
    let (late, inner) = (volume(3, 400, Some((7, 20))), volume(1, 1, Some((8, 8))));
    let unknown = volume(1, 5, None);
    for (a, b, want) in [
        (none, none, none),
        (none, early, early),
        (early, late, volume(5, 430, Some((5, 20)))),
        (early, inner, volume(3, 31, Some((5, 9)))),
        (late, unknown, volume(4, 405, Some((7, 20)))),
    ] {
        for (mut sum, more) in [(a, b), (b, a)] {
            sum.merge(&more);
            assert_eq!(sum, want, "{a:?} {b:?}");
        }
    }
}
