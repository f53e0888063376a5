//! Numbers for people: packets and bytes with their prefix.

/// A number for people, to three digits and more: 950, 12.3 k, 4.56 M.
pub(crate) fn count(value: f64) -> String {
    scaled(value, "")
}

/// Bytes for people, decimal: 950 B, 12.3 kB.
pub(crate) fn size(bytes: f64) -> String {
    scaled(bytes, "B")
}

fn scaled(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "unlimited".to_owned();
    }
    let (mut value, mut prefix) = (value, "");
    for next in ["k", "M", "G", "T", "P", "E"] {
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    let digits = match value {
        v if prefix.is_empty() && (v - v.round()).abs() < 1e-9 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {prefix}{unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (value, want) in [
            (0.0, "0"),
            (7.0, "7"),
            (0.56, "0.56"),
            (999.0, "999"),
            (999.6, "1.00 k"),
            (12_345.0, "12.3 k"),
            (1e6, "1.00 M"),
            (2.5e21, "2500 E"),
            (f64::INFINITY, "unlimited"),
        ] {
            assert_eq!(count(value), want, "value {value}");
        }
        assert_eq!(size(92_000.0), "92.0 kB");
        assert_eq!(size(12.0), "12 B");
    }
}
