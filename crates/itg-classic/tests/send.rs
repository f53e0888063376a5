//! Command lines of ITGSend: what is accepted, and what is refused in which words.

use itg_classic::send::{
    App, Distribution, FlowArgs, HeaderKind, LogProto, LogServer, LogSettings, Mode, Source,
    Transport, parse, parse_request, parse_script,
};
use proptest::prelude::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn single(line: &str) -> (FlowArgs, LogSettings) {
    match parse(&words(line)) {
        Ok(Mode::Single(flow, logs)) => (*flow, logs),
        other => panic!("`{line}`: {other:?}"),
    }
}

/// The texts are those of the real program, observed.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn refusals_are_in_the_words_of_the_real_program() {
    const RATE: &str = "Protocol Parser : Invalid pkts per sec";
    const SIZE: &str = "Protocol Parser : Invalid pkt size";
    const PORT: &str = "General parser : Invalid port number";
    const SEED: &str = "General parser : Invalid seed (0 < seed < 1)";
    const ONE: &str = "General parser : use -i <interface> OR -sa <source_address>";
    const RTT: &str = "General parser : It is possible to use the RTT meter only with the standard \
                       payload type";
    const PERIODS: &str = "Protocol Parser : Invalid settings for the On/Off periods";
    for (line, flow, want) in [
        ("-Z", 1, "General parser : What is -Z ?"),
        ("-a", 1, "General parser : Invalid destination address"),
        ("-rp", 1, PORT),
        ("-sp", 1, PORT),
        ("-m foo", 0, "General parser : Invalid measure type"),
        // Without a meter the real program crashes.
        ("-m", 0, "General parser : Invalid measure type"),
        ("-m rttm -p 1", 0, RTT),
        ("-p 1 -m rttm", 0, RTT),
        ("-t", 1, "General parser : Invalid Duration"),
        ("-t 0", 1, "General parser : Invalid Duration"),
        ("-t abc", 1, "General parser : Invalid Duration"),
        ("-z 0", 1, "General parser : Invalid number of packets"),
        ("-z", 1, "General parser : Invalid number of packets"),
        ("-k 0", 1, "General parser : Invalid number of kbyte"),
        ("-d -5", 1, "General parser : Invalid Delay"),
        ("-d", 1, "General parser : Invalid Delay"),
        ("-b 300", 1, "General parser : Invalid DS Byte"),
        ("-b", 1, "General parser : Invalid DS Byte"),
        ("-f 300", 1, "General parser : Invalid TTL"),
        ("-T", 1, "General parser : Invalid Protocol Type"),
        ("-T FOO", 1, "General parser : Invalid Protocol Type"),
        (
            "-T SCTP",
            1,
            "General parser : SCTP protocol needs parameters (syntax: -T SCTP <association_id> \
             <max_streams>)",
        ),
        (
            "-T SCTP 1 5",
            1,
            "General parser : ** SCTP multi-streaming support is not yet available **",
        ),
        ("-s", 1, SEED),
        ("-s 0", 1, SEED),
        ("-s 1", 1, SEED),
        ("-j", 1, "General parser : j option needs either 1 or 0"),
        ("-j 2", 1, "General parser : j option needs either 1 or 0"),
        ("-pox", 1, r#"General parser : Error in parsing "p" or "-poll" options"#),
        ("-C", 1, RATE),
        ("-C 0", 1, RATE),
        ("-C -3", 1, RATE),
        ("-U 5", 1, RATE),
        ("-U 10 5", 1, RATE),
        ("-U -1 5", 1, RATE),
        ("-E 0", 1, RATE),
        ("-O 0", 1, RATE),
        ("-N 1", 1, RATE),
        ("-Y 1 0", 1, RATE),
        ("-y 1 0", 1, RATE),
        ("-V 1", 1, "Protocol Parser : Invalid Pareto Distribution parameter values"),
        ("-V 0 1", 1, "Protocol Parser : Invalid Pareto Distribution parameter values"),
        ("-v 1 0", 1, "Protocol Parser : Invalid Pareto Distribution parameter values"),
        ("-G 0 1", 1, "Protocol Parser : Invalid Gamma Distribution parameter values"),
        ("-W 0 1", 1, "Protocol Parser : Invalid Weibull Distribution parameter values"),
        ("-w 0 1", 1, "Protocol Parser : Invalid Weilbull Distribution Parameter values"),
        ("-c", 1, SIZE),
        ("-c 0", 1, SIZE),
        ("-u 5 2", 1, SIZE),
        ("-u 0 5", 1, SIZE),
        ("-e 0", 1, SIZE),
        ("-o -1", 1, SIZE),
        ("-n 1", 1, SIZE),
        ("-B C 1", 1, PERIODS),
        ("-B X 1 C 1", 1, PERIODS),
        ("-B C 0 C 100", 1, PERIODS),
        ("-B U 5 1 C 100", 1, PERIODS),
        ("-B E 0 C 100", 1, PERIODS),
        ("-Ft", 1, "General parser : Invalid name file specified for -Ft option"),
        ("-Fx", 1, "General parser : What is -Fx ?"),
        ("-i lo -sa 127.0.0.1", 1, ONE),
        ("-sa 127.0.0.1 -i lo", 1, ONE),
        ("-Sdp 0", 1, PORT),
        ("-Sdp 70000", 1, PORT),
        ("-Ssp 0", 1, PORT),
        ("-Sx", 1, "General parser : What is -Sx ?"),
        ("-Sda", 1, "General parser : Invalid destination address for the signal channel"),
        ("-Ssa", 1, "General parser : Invalid source address for the signal channel"),
        ("-sk", 1, "General parser : Invalid Serial Port"),
        ("-P", 1, "General parser : What is -P ?"),
        ("VoIP -x foo", 1, "VoIP parser : Invalid Codec Type"),
        ("VoIP -x", 1, "VoIP parser : Invalid Codec Type"),
        ("VoIP -q", 1, "VoIP parser : Unknown option -q"),
        ("VoIP -h foo", 1, "VoIP parser : Invalid Protocol Type (RTP or CRTP)"),
        ("-a 127.0.0.1 stray", 1, "General parser : What is stray ?"),
        ("-l x.log -h", 1, "General parser : What is -h ?"),
        (
            "script -Z",
            0,
            "General parser : Option -Z can not be used as a global option in the multy flow mode !",
        ),
        // Two that loop for ever in the real program.
        (
            "script word",
            0,
            "General parser : Option word can not be used as a global option in the multy flow mode !",
        ),
        ("-z 1 AoM", 1, "General parser : AoM has no traffic: D-ITG only knows its name"),
    ] {
        let text =
            format!(" ** ERROR **  Flow {flow} aborted:  {want} \n Type ITGSend -h for help ");
        match parse(&words(line)) {
            Err(error) => assert_eq!(error.to_string(), text, "`{line}`"),
            Ok(mode) => panic!("`{line}` is accepted: {mode:?}"),
        }
    }
}

/// One field after the other.
#[test]
fn options_set_their_field() {
    type Change = fn(&mut FlowArgs);
    let distribution = Source::Law;
    let rows: [(&str, Change); 40] = [
        ("-a 10.0.0.3", |f| (f.dest, f.dest_given) = ("10.0.0.3".to_owned(), true)),
        ("-rp 9501", |f| f.dest_port = Some(9501)),
        ("-rp 65537", |f| f.dest_port = Some(1)),
        ("-sp 9400", |f| f.source_port = Some(9400)),
        ("-sa 10.0.0.4", |f| f.source = Some("10.0.0.4".to_owned())),
        ("-i eth0", |f| f.interface = Some("eth0".to_owned())),
        ("-m RTTM", |f| f.round_trip = true),
        ("-m rttm -m owdm", |f| f.round_trip = false),
        ("-tfoo 500", |f| f.duration_ms = 500),
        ("-t 5x", |f| f.duration_ms = 5),
        ("-z 3", |f| f.packets = Some(3)),
        ("-k 2", |f| f.kibibytes = Some(2)),
        ("-d 100", |f| f.delay_ms = 100),
        ("-b 0x10", |f| f.tos = 16),
        ("-b 010", |f| f.tos = 8),
        ("-f 5", |f| f.ttl = 5),
        ("-D", |f| f.nodelay = true),
        ("-H", |f| f.passive = true),
        ("-rk ttyS0", |f| f.recv_serial = Some("ttyS0".to_owned())),
        ("-sk ttyS1", |f| f.send_serial = Some("ttyS1".to_owned())),
        ("-s 0.5", |f| f.seed = Some(0.5)),
        ("-j 0", |f| f.keep_rate = false),
        ("-j 0 -j 1", |f| f.keep_rate = true),
        ("-poll", |f| f.poll = true),
        ("-Cx 10", |f| f.idt = Source::Law(Distribution::Constant(100.0))),
        ("-U 100 1000", |f| f.idt = Source::Law(Distribution::Uniform { lo: 1.0, hi: 10.0 })),
        ("-E 50", |f| f.idt = Source::Law(Distribution::Exponential { mean: 20.0 })),
        ("-N -5 1", |f| f.idt = Source::Law(Distribution::Normal { mean: -5.0, sd: 1.0 })),
        ("-O 20", |f| f.idt = Source::Law(Distribution::PoissonRate { mean: 20.0 })),
        ("-V 1 2", |f| f.idt = Source::Law(Distribution::Pareto { shape: 1.0, scale: 2.0 })),
        ("-Y 1 2", |f| f.idt = Source::Law(Distribution::Cauchy { location: 1.0, scale: 2.0 })),
        ("-G 1 2", |f| f.idt = Source::Law(Distribution::Gamma { shape: 1.0, scale: 2.0 })),
        ("-W 1 2", |f| f.idt = Source::Law(Distribution::Weibull { scale: 1.0, shape: 2.0 })),
        ("-c 1.9", |f| f.size = Source::Law(Distribution::Constant(1.0))),
        ("-o 0", |f| f.size = Source::Law(Distribution::Poisson { mean: 0.0 })),
        ("-y 5.5 2.5", |f| {
            f.size = Source::Law(Distribution::Cauchy { location: 5.0, scale: 2.0 })
        }),
        ("-Fp file", |f| f.payload = Some("file".to_owned())),
        ("-Ft file", |f| {
            (f.idt, f.delay_from_file) = (Source::File("file".to_owned()), true);
        }),
        ("-B C 1000.5 E 200 -z 3", |f| {
            f.on_off =
                Some((Distribution::Constant(1000.0), Distribution::Exponential { mean: 200.0 }));
            f.packets = Some(3);
        }),
        ("-Ssp 9100 -Sdp 9200 -Sda h -Ssa g -Si lo", |f| {
            f.signalling.source_port = Some(9100);
            f.signalling.port = Some(9200);
            f.signalling.dest = Some("h".to_owned());
            f.signalling.source = Some("g".to_owned());
            f.signalling.interface = Some("lo".to_owned());
        }),
    ];
    for (line, change) in rows {
        let mut want = FlowArgs::new(1);
        change(&mut want);
        assert_eq!(single(line).0, want, "`{line}`");
    }
    let (flow, _) = single("-C 10 -C 20");
    assert_eq!(flow.idt, distribution(Distribution::Constant(50.0)), "the last one counts");
    assert_eq!(single("-Sda h -a g -Sdp 7").0.signalling_dest(), ("h", 7));
    assert_eq!(single("-a g").0.signalling_dest(), ("g", 9000));
}

/// All rows of the table in the reference.
#[test]
fn the_smallest_packet_depends_on_the_order_of_options() {
    for (line, min) in [
        ("-z 1", 16),
        ("-T UDP", 20),
        ("-T ICMP", 20),
        ("-T UDP -T UDP", 24),
        ("-T TCP", 24),
        ("Telnet", 20),
        ("DNS", 16),
        ("-T UDP -p 1", 8),
        ("-p 1 -T UDP", 12),
        ("-T UDP -p 2", 4),
        ("-p 2 -T UDP", 8),
        ("-T TCP -p 1", 12),
        ("-p 1 -T TCP", 16),
        ("-T TCP -p 2", 4),
        ("-p 2 -T TCP", 8),
        ("-T TCP Telnet", 24),
        ("-p 0 -T UDP", 20),
    ] {
        assert_eq!(single(line).0.size_min(), min, "`{line}`");
    }
}

#[test]
fn transports_and_headers() {
    for (line, transport) in [
        ("-T udp", Transport::Udp),
        ("-T Tcp", Transport::Tcp),
        ("-T ICMP", Transport::Icmp { kind: 8 }),
        ("-T ICMP 128", Transport::Icmp { kind: 128 }),
        ("-T SCTP 3 1", Transport::Sctp { association: 3 }),
        ("-T DCCP", Transport::Dccp),
        ("-T TCP Quake3", Transport::Udp),
        ("-T TCP DNS", Transport::Tcp),
        ("-T DCCP VoIP", Transport::Dccp),
        ("-T TCP VoIP", Transport::Udp),
        ("Telnet -T UDP", Transport::Udp),
    ] {
        assert_eq!(single(line).0.transport, transport, "`{line}`");
    }
    for (line, header) in
        [("-p 0", HeaderKind::Standard), ("-p 1", HeaderKind::Short), ("-p 2", HeaderKind::None)]
    {
        assert_eq!(single(line).0.header, header);
    }
    let (odd, _) = single("-p 7");
    assert_eq!((odd.header, odd.lines.len()), (HeaderKind::Standard, 1));
}

/// All cells of the table of the reference.
#[test]
fn calls_have_the_sizes_of_their_codec() {
    for (codec, idt, sizes) in [
        ("G.711.1", 10.0, [92.0, 82.0, 64.0, 54.0]),
        ("G.711.2", 20.0, [172.0, 162.0, 116.0, 106.0]),
        ("G.729.2", 20.0, [32.0, 22.0, 25.0, 15.0]),
        ("G.729.3", 1000.0 / 33.0, [42.0, 32.0, 31.0, 21.0]),
        ("G.723.1", 1000.0 / 26.0, [42.0, 32.0, 31.0, 21.0]),
    ] {
        let calls = ["-h RTP", "-h crtp", "-VAD", "-h CRTP -VAD"];
        for (call, size) in calls.into_iter().zip(sizes) {
            let (flow, _) = single(&format!("-a ::1 voip -x {codec} {call}"));
            assert_eq!(flow.size, Source::Law(Distribution::Constant(size)), "{codec} {call}");
            assert_eq!(flow.idt, Source::Law(Distribution::Constant(idt)), "{codec}");
            assert_eq!((flow.app, flow.lines.len()), (App::Voip, 5));
        }
    }
    let (flow, _) = single("VoIP");
    assert_eq!(flow.size, Source::Law(Distribution::Constant(92.0)));
    assert_eq!(flow.lines[0], "Voice Codec: G.711.1\t");
    // As the programs of D-ITG 2.8.1 print them.
    for (named, printed) in [
        ("G.711.1", "G.711"),
        ("G.711.2", "G.711"),
        ("G.729.2", "G.729"),
        ("G.729.3", "G.729"),
        ("G.723.1", "G.723.1"),
    ] {
        let (flow, _) = single(&format!("-a ::1 VoIP -x {named}"));
        assert_eq!(flow.lines[0], format!("Voice Codec: {printed}\t"), "{named}");
    }
}

#[test]
fn logs_are_settings_of_the_process() {
    let server = |host: &str, proto| {
        Some(LogServer { host: host.to_owned(), proto, ..LogServer::default() })
    };
    let base = LogSettings::default;
    for (line, want) in [
        ("-z 1", base()),
        ("-l", LogSettings { log: Some("/tmp/ITGSend.log".to_owned()), ..base() }),
        // The name swallows an application, as there.
        ("-l VoIP", LogSettings { log: Some("VoIP".to_owned()), ..base() }),
        ("-x -z 1", LogSettings { recv_log: Some("/tmp/ITGRecv.log".to_owned()), ..base() }),
        ("-L", LogSettings { log_server: Some(LogServer::default()), ..base() }),
        ("-L TCP h", LogSettings { log_server: server("h", LogProto::Tcp), ..base() }),
        ("-X h tcp", LogSettings { recv_log_server: server("h", LogProto::Tcp), ..base() }),
        ("-L VoIP", LogSettings { log_server: Some(LogServer::default()), ..base() }),
        ("-q 10", LogSettings { buffer: 10, ..base() }),
        ("-q 0", base()),
        ("-q x", base()),
    ] {
        assert_eq!(single(line).1, want, "`{line}`");
    }
    let logs = LogSettings { log: Some("a".to_owned()), buffer: 7, ..base() };
    assert_eq!(parse(&words("file -l a -q 7")), Ok(Mode::Script("file".to_owned(), logs.clone())));
    assert_eq!(parse(&words("-Q -l a -q 7")), Ok(Mode::Daemon(logs)));
    assert_eq!(parse(&words("-h")), Ok(Mode::Help));
    assert_eq!(parse(&words("--help")), Ok(Mode::Help));
}

#[test]
fn scripts_have_one_flow_a_line() {
    let mut logs = LogSettings::default();
    let text =
        "-rp 10001 -C 50\n\n   -rp 10002   -T TCP\r\n% a remark\n# another\n\t-rp 10003 VoIP\n-q 9";
    let flows = parse_script(text, &mut logs).expect("a good script");
    let ports: Vec<_> = flows.iter().map(|flow| (flow.id, flow.dest_port)).collect();
    assert_eq!(ports, [(1, Some(10001)), (2, Some(10002)), (3, Some(10003)), (4, None)]);
    assert_eq!(logs.buffer, 9);
    for (text, want) in [
        ("", "Flow 0 aborted:  flowParser : the script has no flow"),
        ("-z 1\n-Z\n", "Flow 2 aborted:  General parser : What is -Z ?"),
        ("-l x\n", "Flow 1 aborted:  General parser : -l option not allowed into script file"),
        (
            "-H -C 10\n",
            r#"Flow 1 aborted:  flowParser : Passive-multiflow mode requires "-sp" and "-rp" options"#,
        ),
        (
            "-H -rp 5 -sp 6 -a 1.2.3.4\n",
            r#"Flow 1 aborted:  flowParser : "-a <address>" option not work on passive-multiflow mode"#,
        ),
    ] {
        let error = parse_script(text, &mut logs).expect_err(text).to_string();
        assert_eq!(
            error.strip_prefix(" ** ERROR **  ").map(|e| e.split_once(" \n").map(|e| e.0)),
            Some(Some(want)),
            "{text:?}"
        );
    }
    // More flows than the real program survives.
    let many = "-rp 1\n".repeat(1000);
    assert_eq!(parse_script(&many, &mut logs).map(|flows| flows.len()), Ok(1000));
    let request = parse_request(7, "-a 127.0.0.1 -C 20 -c 64 -z 5", &mut logs);
    assert_eq!(request.map(|flow| (flow.id, flow.packets)), Ok((7, Some(5))));
}

#[test]
fn flows_are_flows_of_itg() {
    let (flow, _) = single("-a h -T TCP -t 3000 -d 20 -C 100 -c 200 -D -b 184 -f 9 -rp 10002");
    let spec = flow.to_spec().expect("a spec");
    assert_eq!((spec.start_ns, spec.stop.duration_ns), (20_000_000, Some(3_000_000_000)));
    assert_eq!((spec.socket.tos, spec.socket.ttl), (Some(184), Some(9)));
    assert_eq!((spec.socket.dest_port, spec.socket.nagle), (Some(10002), false));
    assert_eq!(spec.idt, itg_core::distribution::Distribution::Constant(1e7));
    let seed = itg_core::seed::RunSeed(1);
    assert!(itg_core::flow::Flow::resolve(spec, seed).is_ok());
}

proptest! {
    /// Any words are read or refused; what is read can be drawn from.
    #[test]
    fn any_words_are_read(words in proptest::collection::vec(
        prop_oneof![
            "-[a-zA-Z]{1,3}", "[0-9]{1,6}", "-?[0-9.]{1,5}", Just("VoIP".to_owned()),
            Just("CSa".to_owned()), Just("C".to_owned()), Just("-B".to_owned()), "\\PC{0,6}",
        ], 0..12)) {
        if let Ok(Mode::Single(flow, _)) = parse(&words)
            && let Ok(departures) = itg_classic::send::Departures::new(&flow, 0.5) {
            for packet in departures.take(20) {
                prop_assert!((4..=64_000).contains(&packet.size));
            }
        }
    }
}

#[test]
fn a_standard_deviation_below_0_is_refused_wherever_one_is_asked_for() {
    for line in [
        "-N 5 -1",
        "-N 5 -0.001",
        "-n 500 -1",
        "-n 500 -0.5",
        "-B N 100 -1 C 100",
        "-B C 100 N 100 -1",
        "-B N 100 -1 N 100 -1",
        "-N 5 -inf",
        "-N 5 nan",
        "-N -5 -1",
    ] {
        assert!(parse(&words(line)).is_err(), "`{line}`");
        assert!(parse_script(line, &mut LogSettings::default()).is_err(), "`{line}` in a script");
    }
    // Zero is a constant, as ever; means may lie below 0, where D-ITG knows a rule for them.
    for line in ["-N 5 0", "-N 5 1", "-N -5 1", "-n 500 0", "-n 500 10", "-B N 100 0 N 100 5"] {
        assert!(parse(&words(line)).is_ok(), "`{line}`");
    }
}
