//! Calls to an agent and its replies: length (u32, little-endian) and JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use itg_control::{Command, Replica};
use itg_core::rate::{AS_ASKED_PPM, FACTORS_PPM};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::trust::Line;

/// Version of these messages, and of what members say to each other.
pub(crate) const PROTOCOL: u32 = 10;
/// Port of agents; what they receive comes to the next one.
pub(crate) const AGENT_PORT: u16 = 9020;
/// Longest message: 8 MiB.
const MOST: usize = 8 << 20;
/// Bytes of a log that go over the line at once.
pub(crate) const CHUNK: usize = 1 << 20;

/// An address with the port of agents where it has none.
pub(crate) fn with_port(address: &str) -> String {
    let bare_v6 = address.parse::<std::net::Ipv6Addr>().is_ok();
    if bare_v6 {
        format!("[{address}]:{AGENT_PORT}")
    } else if address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        address.to_owned()
    } else {
        format!("{address}:{AGENT_PORT}")
    }
}

/// The first words on a connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Version of the messages.
    pub(crate) protocol: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Version of experiment files.
    pub(crate) schema: u32,
}

impl Hello {
    pub(crate) fn ours() -> Self {
        Self {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            schema: itg_experiment::SCHEMA,
        }
    }

    /// Reason that the two programs cannot work together; `None` if they can.
    pub(crate) fn differs(&self) -> Option<String> {
        let ours = Self::ours();
        let same = (self.protocol, self.schema) == (ours.protocol, ours.schema)
            && self.version == ours.version;
        (!same).then(|| {
            format!(
                "version {} (messages {}, experiment files {}) here, {} (messages {}, experiment files {}) there: \
                 install the same version on all nodes",
                ours.version, ours.protocol, ours.schema, self.version, self.protocol, self.schema
            )
        })
    }
}

/// Take part in a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Join {
    /// The run.
    pub(crate) run: String,
    /// Least number of this start of the member, its incarnation: 1 when a console begins the run. The agent grants
    /// it, and gives none twice.
    pub(crate) start: u64,
    /// Slot of the called member.
    pub(crate) slot: u32,
    /// Slot of the caller.
    pub(crate) from: u32,
    /// Addresses of all members; that of the console is empty.
    pub(crate) addresses: Vec<String>,
    /// The called one's clock minus the console's, as measured just now.
    pub(crate) offset_ns: i64,
    /// Uncertainty of this offset, in nanoseconds.
    pub(crate) uncertainty_ns: u64,
    /// True if an agent that knows nothing of the run shall begin to take part.
    pub(crate) begin: bool,
    /// Proof of the console that these are the members.
    pub(crate) warrant: Warrant,
}

/// Signature of the console of a run for its members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warrant {
    /// The console's certificate, and those above it.
    pub(crate) chain: Vec<Vec<u8>>,
    /// Signature of run and addresses.
    pub(crate) signature: Vec<u8>,
}

/// Request to an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Call {
    /// Time of its clock.
    Clock,
    /// Take part in a run; from the reply on the connection carries frames of members.
    Join(Join),
    /// Take no part in this run any more, of which nothing is known yet: it does not begin.
    Forget(String),
    /// Status of the agent.
    Status,
    /// Order this command.
    Command(Command),
    /// Order that a flow goes on at another rate soon; all of them without a number.
    Rate {
        /// Number of the flow.
        flow: Option<u32>,
        /// At which rate.
        rate: NewRate,
    },
    /// The runs whose logs it keeps.
    Runs,
    /// List of its logs of this run.
    List(String),
    /// A part of one of them, or of the description of the run.
    Fetch {
        /// The run.
        run: String,
        /// The log.
        name: String,
        /// From which byte on.
        offset: u64,
    },
}

/// Millionths as a factor.
pub(crate) fn times(ppm: u32) -> f64 {
    f64::from(ppm) / f64::from(AS_ASKED_PPM)
}

/// At which rate a flow is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum NewRate {
    /// Bits per second.
    Bits(u64),
    /// Packets per second.
    Packets(f64),
    /// Times what its description asks for.
    Times(f64),
}

impl NewRate {
    /// Millionths of what is asked for, of a flow with these means of packets per second and bytes; `None`
    /// where that is no factor that can be used.
    pub(crate) fn ppm(self, (packets, bytes): (f64, f64)) -> Option<u32> {
        let times = match self {
            #[expect(clippy::cast_precision_loss, reason = "a rate has few digits")]
            Self::Bits(bits) => bits as f64 / (packets * bytes * 8.0),
            Self::Packets(wanted) => wanted / packets,
            Self::Times(times) => times,
        };
        let ppm = (times * f64::from(AS_ASKED_PPM)).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "what is no such number saturates, and is out of range"
        )]
        let ppm = ppm as u32;
        FACTORS_PPM.contains(&ppm).then_some(ppm)
    }
}

/// Reply of an agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The connection may be used.
    Welcome {
        /// Versions of the program that answers.
        hello: Hello,
        /// Name of its host.
        host: String,
        /// Boot of its host: equal ones share a clock.
        boot_id: String,
    },
    /// No, and why.
    Refused(String),
    /// Its Unix time.
    Clock(u64),
    /// It takes part, or no more.
    Joined,
    /// Status of the agent.
    Status(Box<Status>),
    /// Done: with the position in the order, or why nothing came of it.
    Ordered(Result<u64, String>),
    /// The runs whose logs it keeps, the newest ones first.
    Runs(Vec<KeptRun>),
    /// Logs of a run.
    Files {
        /// Their lengths.
        files: BTreeMap<String, u64>,
        /// State of the logs.
        state: Logs,
        /// Error in writing a log, if there was one.
        trouble: Option<String>,
    },
    /// Bytes of a log follow, so many; none at its end.
    #[serde(skip)]
    Bytes(Vec<u8>),
    /// So many bytes follow.
    Follows(u32),
}

/// Run whose logs an agent keeps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptRun {
    /// The run.
    pub(crate) run: String,
    /// Name of its experiment.
    pub(crate) name: String,
    /// Start of the run, Unix time in nanoseconds.
    pub(crate) started_unix_ns: u64,
    /// State of the logs there.
    pub(crate) state: Logs,
}

/// State of the logs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Logs {
    /// Flows may be sent yet.
    Open,
    /// Nothing is sent any more.
    Drained,
    /// All are complete.
    Closed,
    /// They end where the agent has left the run before its end.
    Abandoned,
    /// The agent knows nothing of the run but its directory: it was started again, and no member
    /// has told it.
    Unknown,
}

/// Status of an agent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The run, if there is one.
    pub(crate) run: Option<String>,
    /// Name of the experiment.
    pub(crate) name: String,
    /// Names of the nodes by slot; the last one is the console.
    pub(crate) nodes: Vec<String>,
    /// The experiment as it knows it.
    pub(crate) replica: Option<Replica>,
    /// Number of the view.
    pub(crate) view: u64,
    /// Names of the flows by number, from 1; empty without the description.
    pub(crate) flows: Vec<String>,
    /// It reaches too few members to agree on anything: what it knows may be old.
    pub(crate) cut_off: bool,
}

/// Answers a call.
pub(crate) async fn reply(line: &mut Line, reply: &Reply) -> Result<()> {
    if let Reply::Bytes(bytes) = reply {
        say(line, &Reply::Follows(u32::try_from(bytes.len())?)).await?;
        line.write_all(bytes).await?;
        line.flush().await?;
        return Ok(());
    }
    say(line, reply).await
}

/// Writes a message.
pub(crate) async fn say(line: &mut Line, message: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let len = u32::try_from(bytes.len())?;
    line.write_all(&len.to_le_bytes()).await?;
    line.write_all(&bytes).await?;
    line.flush().await?;
    Ok(())
}

/// Reads a message.
pub(crate) async fn hear<T: DeserializeOwned>(line: &mut Line) -> Result<T> {
    let len =
        line.read_u32_le().await.map_err(|error| anyhow::anyhow!(crate::trust::explain(&error)))?;
    let len = usize::try_from(len)?;
    if len > MOST {
        bail!("a message of {len} bytes");
    }
    let mut bytes = vec![0; len];
    line.read_exact(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Time that an agent may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Waits for what an agent is about to say.
///
/// # Errors
/// It is silent for longer than [`ANSWER`].
pub(crate) async fn answered<T>(said: impl Future<Output = Result<T>>) -> Result<T> {
    within(ANSWER, said).await
}

async fn within<T>(limit: Duration, said: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, said).await {
        Ok(said) => said,
        Err(_) => bail!("no answer within {} s: is it stopped?", limit.as_secs_f64()),
    }
}

/// Asks an agent for something.
pub(crate) async fn ask(line: &mut Line, call: &Call) -> Result<Reply> {
    answered(asked(line, call)).await
}

async fn asked(line: &mut Line, call: &Call) -> Result<Reply> {
    say(line, call).await?;
    match hear(line).await? {
        Reply::Refused(why) => bail!("{why}"),
        Reply::Follows(len) if usize::try_from(len)? <= CHUNK => {
            let mut bytes = vec![0; usize::try_from(len)?];
            line.read_exact(&mut bytes).await?;
            Ok(Reply::Bytes(bytes))
        }
        reply => Ok(reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_have_a_port_of_their_own() {
        for (text, want) in [
            ("10.0.0.3", "10.0.0.3:9020"),
            ("10.0.0.3:7", "10.0.0.3:7"),
            ("host", "host:9020"),
            ("fd00::1", "[fd00::1]:9020"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(with_port(text), want);
        }
    }

    #[test]
    fn programs_of_other_versions_are_told_apart() {
        assert_eq!(Hello::ours().differs(), None);
        for other in [
            Hello { protocol: PROTOCOL + 1, ..Hello::ours() },
            Hello { version: "0.0.7".to_owned(), ..Hello::ours() },
            Hello { schema: 99, ..Hello::ours() },
        ] {
            let why = other.differs().expect("another one");
            assert!(why.contains("install the same version on all nodes"), "{why}");
        }
    }

    #[test]
    fn rates_are_factors_of_what_is_asked_for() {
        let means = (100.0, 500.0);
        for (rate, want) in [
            (NewRate::Bits(400_000), Some(1_000_000)),
            (NewRate::Bits(100_000), Some(250_000)),
            (NewRate::Packets(150.0), Some(1_500_000)),
            (NewRate::Times(0.5), Some(500_000)),
            (NewRate::Times(1000.0), Some(1_000_000_000)),
            (NewRate::Times(1000.1), None),
            (NewRate::Times(0.0), None),
            (NewRate::Times(-1.0), None),
            (NewRate::Times(f64::NAN), None),
            (NewRate::Bits(1), None),
        ] {
            assert_eq!(rate.ppm(means), want, "{rate:?}");
        }
        assert_eq!(NewRate::Packets(5.0).ppm((0.0, 500.0)), None);
        assert_eq!(NewRate::Packets(5.0).ppm((f64::INFINITY, 500.0)), None);
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let limit = Duration::from_millis(50);
            let silent = within(limit, std::future::pending::<Result<()>>()).await;
            let error = silent.expect_err("silence").to_string();
            assert_eq!(error, "no answer within 0.05 s: is it stopped?");
            let refused = within(limit, async { bail!("no") as Result<()> }).await;
            assert_eq!(refused.expect_err("no").to_string(), "no", "what is said is passed on");
            assert_eq!(answered(async { Ok(7) }).await.expect("said"), 7);
        });
        assert_eq!(ANSWER.as_secs(), 10, "as docs/cluster.md says");
    }
}
