//! Numbers as C's library reads and prints them: the longest prefix that is one, else 0.

/// The length of the longest prefix of `text` that is a decimal real number, after white space.
fn real_prefix(text: &str) -> &str {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        (at, at - start)
    };
    let mut at = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    for word in ["infinity", "inf", "nan"] {
        if text.get(at..at + word.len()).is_some_and(|found| found.eq_ignore_ascii_case(word)) {
            return &text[..at + word.len()];
        }
    }
    let (end, whole) = digits(at);
    at = end;
    let mut fraction = 0;
    if bytes.get(at) == Some(&b'.') {
        let (end, count) = digits(at + 1);
        (at, fraction) = (end, count);
    }
    if whole + fraction == 0 {
        return "";
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let (end, count) = digits(at + 1 + sign);
        if count > 0 {
            at = end;
        }
    }
    &text[..at]
}

/// `strtod`: the real number at the start of `text`, 0 when there is none.
pub(crate) fn real(text: &str) -> f64 {
    let text = text.trim_ascii_start();
    real_prefix(text).parse().unwrap_or(0.0)
}

/// `atoi` in 64 bits: the decimal integer at the start of `text`, 0 when there is none; saturated.
pub(crate) fn integer(text: &str) -> i64 {
    signed(text.trim_ascii_start(), 10)
}

/// `strtol` with base 0: as [`integer`], with `0x` for hexadecimal and a leading 0 for octal.
pub(crate) fn prefixed(text: &str) -> i64 {
    let text = text.trim_ascii_start();
    let (sign, rest) = match text.as_bytes().first() {
        Some(b'-') => ("-", &text[1..]),
        Some(b'+') => ("", &text[1..]),
        _ => ("", text),
    };
    let lower = rest.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        signed(&format!("{sign}{hex}"), 16)
    } else if lower.starts_with('0') {
        signed(&format!("{sign}{lower}"), 8)
    } else {
        signed(&format!("{sign}{lower}"), 10)
    }
}

fn signed(text: &str, radix: u32) -> i64 {
    let sign = usize::from(text.starts_with(['+', '-']));
    let end = text[sign..].find(|c: char| !c.is_digit(radix)).map_or(text.len(), |end| end + sign);
    let digits = &text[sign..end];
    if digits.is_empty() {
        return 0;
    }
    let negative = text.starts_with('-');
    match i64::from_str_radix(digits, radix) {
        Ok(value) if negative => -value,
        Ok(value) => value,
        Err(_) if negative => i64::MIN,
        Err(_) => i64::MAX,
    }
}

/// `%*.6f`: six decimals, right-aligned in `width`. What is no number prints as on x86.
pub(crate) fn fixed(value: f64, width: usize) -> String {
    if value.is_nan() {
        let text = if value.is_sign_negative() { "-nan" } else { "nan" };
        return format!("{text:>width$}");
    }
    format!("{value:>width$.6}")
}

/// `a / b` with the sign that x86 gives to a quotient that is no number.
pub(crate) fn quotient(a: f64, b: f64) -> f64 {
    let value = a / b;
    if value.is_nan() && !a.is_nan() && !b.is_nan() { -f64::NAN.abs() } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        for (text, want) in [
            ("500", 500.0),
            ("500abc", 500.0),
            ("abc", 0.0),
            ("", 0.0),
            (".5", 0.5),
            ("5.", 5.0),
            (".", 0.0),
            ("1e3x", 1000.0),
            ("1e", 1.0),
            ("-2.5e-1", -0.25),
            (" 7", 7.0),
            ("+3", 3.0),
            ("inf", f64::INFINITY),
            ("ä", 0.0),
        ] {
            assert_eq!(real(text).to_bits(), want.to_bits(), "real {text:?}");
        }
        for (text, want) in
            [("12x", 12), ("-3", -3), ("x", 0), ("", 0), ("99999999999999999999", i64::MAX)]
        {
            assert_eq!(integer(text), want, "integer {text:?}");
        }
        for (text, want) in
            [("0x1f", 31), ("017", 15), ("0", 0), ("-0x10", -16), ("08", 0), ("255", 255)]
        {
            assert_eq!(prefixed(text), want, "prefixed {text:?}");
        }
    }

    #[test]
    fn numbers_are_printed_as_c_prints_them() {
        for (value, width, want) in [
            (1.5, 13, "     1.500000"),
            (f64::INFINITY, 13, "          inf"),
            (-f64::NAN.abs(), 13, "         -nan"),
            (f64::NAN.abs(), 0, "nan"),
            (0.000_000_5, 0, "0.000000"),
            (-90_000.0, 13, "-90000.000000"),
        ] {
            assert_eq!(fixed(value, width), want);
        }
        assert_eq!(fixed(quotient(0.0, 0.0), 0), "-nan");
        assert_eq!(fixed(quotient(5.0, 0.0), 0), "inf");
    }
}
