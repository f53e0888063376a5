//! Order of the options in the help.

use itg_cli::Help;

pub(crate) const HELP: Help = Help {
    first: &[
        "proto", "rate", "size", "idt", "profile", "duration", "flows", "meter", "seed", "log",
        "interval", "json", "quiet", "verbose", "node", "format", "output", "quick",
    ],
    subjects: &[
        (
            "Traffic",
            &["on-off", "time", "packets", "bytes", "start-after", "burst", "payload", "profiles"],
        ),
        (
            "Timing",
            &[
                "pacing",
                "max-error",
                "late",
                "max-burst",
                "realtime",
                "cpu",
                "tx-stamps",
                "promise",
            ],
        ),
        (
            "Network",
            &[
                "dest-port",
                "source",
                "source-port",
                "interface",
                "ttl",
                "dscp",
                "ecn",
                "nagle",
                "congestion",
                "pacing-rate",
                "engine",
                "auth",
                "secret-file",
            ],
        ),
        (
            "Logs",
            &[
                "recv-log",
                "log-server",
                "recv-log-server",
                "keys",
                "log-secret-file",
                "log-spool",
                "log-block",
                "log-flush",
                "log-full",
                "log-memory",
                "fsync",
                "log-throttle",
            ],
        ),
        ("D-ITG", &["classic"]),
    ],
    examples: &[
        "itg-send 10.0.0.3 --rate 10M --duration 20s",
        "itg-send 10.0.0.3 --idt 'exp(1ms)' --size 'uniform(64,1400)' --seed 42 --log send.itg",
        "itg-send 10.0.0.3 --proto tcp --rate max --interval 1s",
        "itg-send 10.0.0.3 --meter rtt --profile voip-g711",
        "itg-send run experiment.toml",
    ],
};
