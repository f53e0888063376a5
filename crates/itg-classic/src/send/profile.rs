//! D-ITG's application profiles.

use super::distribution::Distribution;
use super::flow::Transport;

/// An application, with its number in the messages of the signalling channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum App {
    /// None.
    #[default]
    None = 0,
    /// Telnet.
    Telnet = 1,
    /// Voice over IP.
    Voip = 2,
    /// DNS.
    Dns = 3,
    /// Age of Mythology: announced by D-ITG, never there.
    Aom = 4,
    /// Counterstrike, active player.
    CsActive = 5,
    /// Counterstrike, idle player.
    CsIdle = 6,
    /// Quake 3.
    Quake3 = 7,
}

const NAMES: [(&str, App); 7] = [
    ("telnet", App::Telnet),
    ("voip", App::Voip),
    ("dns", App::Dns),
    ("aom", App::Aom),
    ("csa", App::CsActive),
    ("csi", App::CsIdle),
    ("quake3", App::Quake3),
];

impl App {
    /// The application of a word of the command line, in any case.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        let named = |(name, app): &(&str, Self)| word.eq_ignore_ascii_case(name).then_some(*app);
        NAMES.iter().find_map(named)
    }

    /// The application of a number of the signalling channel; unknown ones are none.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        NAMES.iter().map(|(_, app)| *app).find(|app| *app as u8 == code).unwrap_or_default()
    }

    /// Distributions of inter-departure time (ms) and size (bytes) and the transport it forces;
    /// `None` for Voip, which has parameters, and for what has no traffic.
    pub(super) fn traffic(self) -> Option<(Distribution, Distribution, Option<Transport>)> {
        let normal = |mean, sd| Distribution::Normal { mean, sd };
        let udp = Some(Transport::Udp);
        Some(match self {
            Self::None | Self::Aom | Self::Voip => return None,
            Self::Telnet => {
                const P: [f64; 15] = [
                    0.65, 0.13, 0.07, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.005, 0.005, 0.005,
                    0.005, 0.005, 0.005,
                ];
                let sizes = (21..).map(f64::from).zip(P).collect();
                let idt = Distribution::Pareto { shape: 0.95, scale: 1.1 };
                (idt, Distribution::Discrete(sizes), Some(Transport::Tcp))
            }
            Self::Dns => (
                Distribution::Constant(1000.0 / 0.56),
                Distribution::Uniform { lo: 100.0, hi: 320.0 },
                None,
            ),
            Self::Quake3 => {
                let gaps = vec![
                    (0.6, Distribution::Exponential { mean: 4.29 }),
                    (0.4, Distribution::Constant(10.75)),
                ];
                (Distribution::Mix(gaps), normal(64.151_757, 3.203_575_5), udp)
            }
            Self::CsActive => {
                let gap =
                    Distribution::Student { location: 41.699_4, scale: 0.104_821, nu: 0.704_073 };
                let sizes =
                    vec![(0.3732, normal(34.8352, 4.3915)), (0.6268, normal(49.4904, 3.6186))];
                (gap, Distribution::Mix(sizes), udp)
            }
            Self::CsIdle => {
                let gap =
                    Distribution::Student { location: 41.685_8, scale: 0.069_439_3, nu: 1.083_41 };
                let sizes = vec![
                    (27.0, 0.8312),
                    (28.0, 0.0018),
                    (29.0, 0.0453),
                    (30.0, 0.0195),
                    (31.0, 0.0879),
                    (32.0, 0.0024),
                    (33.0, 0.0106),
                    (35.0, 0.0013),
                ];
                (gap, Distribution::Discrete(sizes), udp)
            }
        })
    }
}

/// A codec: its name, as it is printed where it was named, bytes of a frame, frames a packet, packets a second.
const CODECS: [(&str, &str, f64, u32, u32); 5] = [
    ("G.711.1", "G.711", 80.0, 1, 100),
    ("G.711.2", "G.711", 80.0, 2, 50),
    ("G.729.2", "G.729", 10.0, 2, 50),
    ("G.729.3", "G.729", 10.0, 3, 33),
    ("G.723.1", "G.723.1", 30.0, 1, 26),
];

/// The call of a Voip flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Call {
    codec: usize,
    /// True if the command line names the codec: D-ITG prints such a name without its number of frames.
    named: bool,
    header: f64,
    vad: bool,
}

impl Call {
    /// Reads everything behind the word `VoIP`, or says what is wrong.
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut call = Self { codec: 0, named: false, header: 12.0, vad: false };
        let mut rest = args.iter();
        while let Some(option) = rest.next() {
            match option.as_str() {
                "-x" => {
                    let name = rest.next().map_or("", String::as_str);
                    let known = CODECS.iter().position(|codec| codec.0.eq_ignore_ascii_case(name));
                    call.codec = known.ok_or("Invalid Codec Type")?;
                    call.named = true;
                }
                "-h" => {
                    call.header = match rest.next().map(|name| name.to_ascii_uppercase()).as_deref()
                    {
                        Some("RTP") => 12.0,
                        Some("CRTP") => 2.0,
                        _ => return Err("Invalid Protocol Type (RTP or CRTP)".to_owned()),
                    };
                }
                "-VAD" => call.vad = true,
                other => return Err(format!("Unknown option {other}")),
            }
        }
        Ok(call)
    }

    /// Distributions of inter-departure time (ms) and size (bytes).
    pub(super) fn traffic(self) -> (Distribution, Distribution) {
        let (_, _, frame, frames, rate) = CODECS[self.codec];
        let factor = if self.vad { 0.65 } else { 1.0 };
        let size = (factor * frame * f64::from(frames) + self.header).trunc();
        (Distribution::Constant(1000.0 / f64::from(rate)), Distribution::Constant(size))
    }

    /// The five lines about the call on stdout.
    pub(super) fn lines(self) -> [String; 5] {
        let (name, printed, frame, frames, rate) = CODECS[self.codec];
        let name = if self.named { printed } else { name };
        [
            format!("Voice Codec: {name}\t"),
            format!("Framesize: {frame:.2}\t"),
            format!("Samples: {frames:>4}\t"),
            format!("Packets per sec.: {rate:>4}\t"),
            format!("VAD: {}", if self.vad { "Si" } else { "No" }),
        ]
    }
}
