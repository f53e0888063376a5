//! Order of the options in the help.

use itg_cli::Help;

pub(crate) const HELP: Help = Help {
    first: &[
        "listen",
        "data-port",
        "log",
        "log-dir",
        "once",
        "interval",
        "json",
        "quiet",
        "verbose",
    ],
    subjects: &[
        ("Watching", &["metrics"]),
        (
            "Receiving",
            &["receive-buffer", "shards", "busy-poll", "engine", "interface", "xdp-mode"],
        ),
        (
            "Senders",
            &[
                "max-log-size",
                "max-log-bytes",
                "replace-logs",
                "allow-log-servers",
                "secret-file",
                "max-per-address",
                "allow-source",
            ],
        ),
        (
            "Flows for those who ask (itg-send --reverse)",
            &["allow-reverse", "reverse-rate", "reverse-time", "reverse-max"],
        ),
        (
            "Logs",
            &[
                "log-server",
                "log-name",
                "keys",
                "log-secret-file",
                "log-spool",
                "log-block",
                "log-flush",
                "log-full",
                "log-memory",
                "log-rotate",
                "log-keep",
                "fsync",
                "log-throttle",
            ],
        ),
    ],
    examples: &[
        "itg-recv",
        "itg-recv --log recv.itg --interval 1s",
        "itg-recv --log-dir logs --max-log-bytes 10G",
        "itg-recv --log-server tcp://10.0.0.2",
    ],
};
