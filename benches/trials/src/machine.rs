//! Machine and time of a measurement.

use std::fs;

/// Lines that belong to every result of a program: machine, kernel, load, date, command.
#[must_use]
pub fn describe(program: &str) -> String {
    let word = |path: &str, key: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        line.and_then(|line| line.split_once(':').map(|(_, value)| value.trim().to_owned()))
            .unwrap_or_else(|| "unknown".to_owned())
    };
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let command: Vec<_> = std::env::args().skip(1).collect();
    let build = if cfg!(debug_assertions) { ", built WITHOUT optimisation" } else { "" };
    format!(
        "machine: {} x {}, {} of memory\nkernel:  {}\nload:    {} (1, 5, 15 min)\n\
         date:    {:.0}\ncommand: {program} {}\nversion: {}{build}\n",
        cpus(),
        word("/proc/cpuinfo", "model name"),
        word("/proc/meminfo", "MemTotal"),
        read("/proc/sys/kernel/osrelease"),
        read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
        jiff::Timestamp::now(),
        command.join(" "),
        env!("CARGO_PKG_VERSION"),
    )
}

/// Processors that this process may use.
#[must_use]
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
