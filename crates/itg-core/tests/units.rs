//! Quantities as text: what is read, what is written, what is refused and with which words.

use itg_core::units::{
    BitRate, Bytes, Rate, UnitError, format_bit_rate, format_bytes, format_duration_ns,
    parse_bytes, parse_count, parse_duration_ns, signed_difference,
};

fn text<T>(result: Result<T, UnitError>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

#[test]
fn durations() {
    let expected = "expected a number with ns, us, ms, s, min or h, such as 500us or 20s";
    let rows = [
        ("0", Ok(0)),
        ("0.000", Ok(0)),
        ("0s", Ok(0)),
        ("100ns", Ok(100)),
        ("500us", Ok(500_000)),
        ("500µs", Ok(500_000)),
        ("1.5ms", Ok(1_500_000)),
        (" 20 s ", Ok(20_000_000_000)),
        ("2min", Ok(120_000_000_000)),
        ("1h", Ok(3_600_000_000_000)),
        ("1e3ms", Ok(1_000_000_000)),
        ("0.5us", Ok(500)),
        ("18446744073.709551615s", Ok(u64::MAX)),
        ("5", Err(format!("duration `5` has no unit: {expected}"))),
        ("", Err(format!("no number in duration ``: {expected}"))),
        ("ten ms", Err(format!("no number in duration `ten ms`: {expected}"))),
        ("1.2.3s", Err(format!("no number in duration `1.2.3s`: {expected}"))),
        ("5 parsecs", Err(format!("unknown unit `parsecs` in duration `5 parsecs`: {expected}"))),
        ("1e", Err(format!("unknown unit `e` in duration `1e`: {expected}"))),
        ("5S", Err(format!("unknown unit `S` in duration `5S`: {expected}"))),
        ("-5s", Err("duration `-5s` is negative: use zero or more".to_owned())),
        ("0.5ns", Err("duration `0.5ns` is not a whole number of nanoseconds".to_owned())),
        ("1e-99s", Err("duration `1e-99s` is not a whole number of nanoseconds".to_owned())),
        (
            "18446744073.709551616s",
            Err(format!(
                "duration `18446744073.709551616s` is too large: at most {} nanoseconds",
                u64::MAX
            )),
        ),
        (
            "1e2147483647h",
            Err(format!("duration `1e2147483647h` is too large: at most {} nanoseconds", u64::MAX)),
        ),
    ];
    for (input, want) in rows {
        assert_eq!(text(parse_duration_ns(input)), want, "input {input:?}");
    }
}

#[test]
fn sizes_and_counts() {
    let expected = "expected bytes, or a number with kB, MB, GB (powers of 1000) or Ki, Mi, Gi \
                    (powers of 1024), such as 512 or 64Ki";
    let rows = [
        ("512", Ok(512)),
        ("512B", Ok(512)),
        ("10M", Ok(10_000_000)),
        ("10MB", Ok(10_000_000)),
        ("64Ki", Ok(65_536)),
        ("64KiB", Ok(65_536)),
        ("1.5Ki", Ok(1536)),
        ("2G", Ok(2_000_000_000)),
        ("0", Ok(0)),
        ("64K", Err(format!("unknown unit `K` in size `64K`: {expected}"))),
        ("x", Err(format!("no number in size `x`: {expected}"))),
        ("1.5", Err("size `1.5` is not a whole number of bytes".to_owned())),
    ];
    for (input, want) in rows {
        assert_eq!(text(parse_bytes(input)).map(|Bytes(n)| n), want, "input {input:?}");
    }
    let rows = [
        ("1000", Ok(1000)),
        ("10k", Ok(10_000)),
        ("2M", Ok(2_000_000)),
        ("1e6", Ok(1_000_000)),
        ("2.5", Err("count `2.5` is not a whole number of units".to_owned())),
        (
            "3 packets",
            Err("unknown unit `packets` in count `3 packets`: expected a whole number, or one \
                 with k, M or G, such as 1000 or 10k"
                .to_owned()),
        ),
    ];
    for (input, want) in rows {
        assert_eq!(text(parse_count(input)), want, "input {input:?}");
    }
}

#[test]
fn rates() {
    let expected = "expected bps, kbps, Mbps, Gbps or Tbps (bits per second), or pps, kpps or \
                    Mpps (packets per second), such as 10Mbps, 10M or 100kpps";
    let bits = |n| Ok(Rate::Bits(BitRate(n)));
    let rows = [
        ("10Mbps", bits(10_000_000), "10Mbps"),
        ("1.5Gbps", bits(1_500_000_000), "1500Mbps"),
        ("64kbps", bits(64_000), "64kbps"),
        ("7bps", bits(7), "7bps"),
        ("100kpps", Ok(Rate::Packets(1e5)), "100000pps"),
        ("50pps", Ok(Rate::Packets(50.0)), "50pps"),
        ("0.56pps", Ok(Rate::Packets(0.56)), "0.56pps"),
        ("10", Err(format!("rate `10` has no unit: {expected}")), ""),
        ("10mbps", bits(10_000_000), "10Mbps"),
        ("10M", bits(10_000_000), "10Mbps"),
        ("64K", bits(64_000), "64kbps"),
        ("10Mbit/s", bits(10_000_000), "10Mbps"),
        ("4.10 Mbit/s", bits(4_100_000), "4100kbps"),
        ("7 bit/s", bits(7), "7bps"),
        ("1001 packets/s", Ok(Rate::Packets(1001.0)), "1001pps"),
        ("10mb", Err(format!("unknown unit `mb` in rate `10mb`: {expected}")), ""),
        ("fast", Err(format!("no number in rate `fast`: {expected}")), ""),
        ("0pps", Err("rate `0pps` is zero: use more than zero, or leave it out".to_owned()), ""),
        ("-1pps", Err("rate `-1pps` is negative: use zero or more".to_owned()), ""),
        ("0.5bps", Err("rate `0.5bps` is not a whole number of bit/s".to_owned()), ""),
    ];
    for (input, want, shown) in rows {
        let got = text(input.parse::<Rate>());
        assert_eq!(got, want, "input {input:?}");
        if let Ok(rate) = got {
            assert_eq!(rate.to_string(), shown, "input {input:?}");
            assert_eq!(text(shown.parse::<Rate>()), Ok(rate), "input {input:?}");
        }
    }
}

#[test]
fn texts_for_people_and_back() {
    let rows = [
        (0, "0s"),
        (1, "1ns"),
        (333_333, "333333ns"),
        (500_000, "500us"),
        (10_000_000, "10ms"),
        (10_750_000, "10.75ms"),
        (100_000_000, "100ms"),
        (1_500_000_000, "1.5s"),
        (60_000_000_000, "60s"),
        (120_000_000_000, "120s"),
        (600_000_000_000, "600s"),
        (3_600_000_000_000, "1h"),
        (u64::MAX, "18446744073.709551615s"),
    ];
    for (ns, want) in rows {
        assert_eq!(format_duration_ns(ns), want);
        assert_eq!(parse_duration_ns(want), Ok(ns));
    }
    let rows = [
        (0, "0B"),
        (512, "512B"),
        (1000, "1kB"),
        (1024, "1KiB"),
        (1025, "1025B"),
        (65_536, "64KiB"),
        (10_000_000, "10MB"),
        (1 << 30, "1GiB"),
    ];
    for (bytes, want) in rows {
        assert_eq!(format_bytes(bytes), want);
        assert_eq!(parse_bytes(want), Ok(Bytes(bytes)));
    }
    let rows = [
        (0.0, "0.00 bit/s"),
        (512.0, "512.00 bit/s"),
        (4_100_100.1, "4.10 Mbit/s"),
        (999_999.0, "1.00 Mbit/s"),
        (2.5e15, "2500.00 Tbit/s"),
    ];
    for (rate, want) in rows {
        assert_eq!(format_bit_rate(rate), want);
    }
}

#[test]
fn differences_are_signed_and_bounded() {
    for (later, earlier, want) in [
        (5, 3, 2),
        (3, 5, -2),
        (0, u64::MAX, i64::MIN),
        (u64::MAX, 0, i64::MAX),
        (1 << 63, 0, i64::MAX),
    ] {
        assert_eq!(signed_difference(later, earlier), want, "{later} - {earlier}");
    }
}
