//! Lines for intervals, as programs print them.

/// A line of `--interval`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalLine {
    /// Begin and end of the window, in milliseconds from the first packet.
    pub since_ms: u64,
    /// See `since_ms`.
    pub until_ms: u64,
    /// The way that it is of; empty where there is one.
    pub way: String,
    /// Packets and bytes that were sent.
    pub sent: Option<(u64, u64)>,
    /// Packets and bytes that arrived.
    pub received: Option<(u64, u64)>,
    /// The rate in bits per second.
    pub bps: Option<f64>,
    /// Packets that were lost, where it says so.
    pub lost: Option<u64>,
    /// Packets that are on their way, where it says so.
    pub away: Option<u64>,
    /// The line.
    pub text: String,
}

impl IntervalLine {
    /// Length of the window in seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        f64::from(u32::try_from(self.until_ms - self.since_ms).expect("a short run")) / 1e3
    }
}

/// The lines for intervals among these lines.
#[must_use]
pub fn interval_lines(text: &str) -> Vec<IntervalLine> {
    text.lines().filter_map(interval_line).collect()
}

fn interval_line(text: &str) -> Option<IntervalLine> {
    let (head, rest) = text.split_once(": ")?;
    let (times, way) = head.split_once(" s")?;
    let (since, until) = times.split_once('-')?;
    let mut line = IntervalLine {
        since_ms: ms(since)?,
        until_ms: ms(until)?,
        way: way.trim().to_owned(),
        text: text.to_owned(),
        ..IntervalLine::default()
    };
    for part in rest.split(", ").skip(1) {
        let words: Vec<&str> = part.split(' ').collect();
        // What the line before did not know.
        let words = if words[0] == "since" { &words[3..] } else { &words[..] };
        let first = words[0].parse().ok();
        match *words {
            [packets, "packet" | "packets", bytes, "bytes)", what, ..] => {
                let number = |text: &str| text.trim_start_matches('(').parse().ok();
                let volume = number(packets).zip(number(bytes));
                *(if what == "received" { &mut line.received } else { &mut line.sent }) = volume;
            }
            [_, "lost"] => line.lost = first,
            [_, "on", "their", "way"] => line.away = first,
            [value, unit] if unit.ends_with("bit/s") => {
                let factor = match unit {
                    "bit/s" => 1.0,
                    "kbit/s" => 1e3,
                    "Mbit/s" => 1e6,
                    "Gbit/s" => 1e9,
                    _ => panic!("{text}"),
                };
                line.bps = value.parse::<f64>().ok().map(|value| value * factor);
            }
            _ => {}
        }
    }
    Some(line)
}

fn ms(text: &str) -> Option<u64> {
    let (seconds, ms) = text.split_once('.').filter(|(_, ms)| ms.len() == 3)?;
    Some(seconds.parse::<u64>().ok()? * 1000 + ms.parse::<u64>().ok()?)
}
