//! `itg-cluster agent`: serves a node, one run at a time.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use itg_cli::{Failure, Signals, WordArgs, refuse, say};
use itg_experiment::control::{Ask, Command};
use itg_net::{clock, host};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::member::Member;
use super::policy::Policy;
use super::trust::{Line, Trust};
use super::wire::{self, AGENT_PORT, CHUNK, Call, Hello, Join, Reply, Status};
use super::work::{self, Handle, Setup, run_dir};

/// A run that is over is remembered for so long, so that everybody hears of the end.
const LINGER: Duration = Duration::from_secs(3);
/// A run without its console gives way to another one after this time.
const ABANDONED: Duration = Duration::from_secs(10);
/// How long somebody at a terminal waits for a command to be ordered.
const ORDERED: Duration = Duration::from_secs(5);
/// Silence after which a member is excluded.
pub(crate) const EXCLUDE_MS: u64 = 3000;
/// Connections at the same time.
const MOST_LINES: usize = 4096;

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Where consoles and other agents call; data comes to the port behind it
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "0.0.0.0:9020")]
    listen: String,
    /// Directory of the cluster's keys (`itg-cluster keys` makes them)
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Directory for logs, one below it for each run
    #[arg(long, value_name = "DIR", default_value = "itg-agent")]
    dir: PathBuf,
    /// What experiments may ask of this node (TOML); without it everything but payload files is allowed
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

struct Agent {
    trust: Trust,
    policy: Arc<Policy>,
    dir: PathBuf,
    data: SocketAddr,
    run: Mutex<Option<Run>>,
}

/// The run that the agent takes part in.
struct Run {
    id: String,
    handle: Handle,
    /// Since when it has been over, or without its console.
    idle_since: Option<Instant>,
}

/// Serves until a signal comes.
pub(crate) fn run(args: &AgentArgs, words: WordArgs) -> Result<ExitCode> {
    let listen = itg_net::resolve(&args.listen, AGENT_PORT).map_err(refuse)?;
    let trust = Trust::load(&args.keys)?;
    let policy = args.policy.as_deref().map(Policy::load).transpose()?.unwrap_or_default();
    fs::create_dir_all(&args.dir)
        .map_err(|error| refuse(format!("directory {}: {error}", args.dir.display())))?;
    let data = SocketAddr::new(listen.ip(), listen.port().checked_add(1).unwrap_or(AGENT_PORT + 1));
    let agent = Arc::new(Agent {
        trust,
        policy: Arc::new(policy),
        dir: args.dir.clone(),
        data,
        run: Mutex::default(),
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::watch()?;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            Failure::new(
                1,
                format!("listening on {listen}: {error}; does another agent run there?"),
            )
        })?;
        if !words.quiet {
            say(format_args!(
                "itg-cluster agent: listening on {listen}, data on {data}; end with Ctrl-C"
            ));
        }
        let room = Arc::new(tokio::sync::Semaphore::new(MOST_LINES));
        let mut stop = signals.stop.clone();
        let mut look = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                            tracing::warn!(%peer, "turned away: too many connections");
                            continue;
                        };
                        let agent = Arc::clone(&agent);
                        tokio::spawn(async move {
                            agent.serve(stream, peer).await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                _ = look.tick() => agent.tidy().await,
                reason = stop.wait_for(Option::is_some) => {
                    if let Ok(reason) = reason {
                        tracing::info!("stopping: {}", reason.as_deref().unwrap_or_default());
                    }
                    break;
                }
            }
        }
        Ok(ExitCode::from(signals.exit_code().unwrap_or(0)))
    })
}

impl Agent {
    async fn serve(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let mut line = match self.trust.accept(stream).await {
            Ok(line) => line,
            Err(why) => {
                tracing::warn!(%peer, "turned away: {why}");
                return;
            }
        };
        match self.converse(&mut line).await {
            Ok(join) => self.carry(line, &join).await,
            Err(error) => tracing::debug!(%peer, "a connection has ended: {error:#}"),
        }
    }

    /// Answers calls until one of them makes the connection that of a member.
    async fn converse(&self, line: &mut Line) -> Result<Join> {
        let hello: Hello = wire::hear(line).await?;
        if let Some(why) = hello.differs() {
            wire::say(line, &Reply::Refused(format!("at the agent: {why}"))).await?;
            bail!("{why}");
        }
        let welcome =
            Reply::Welcome { hello: Hello::ours(), host: host::name(), boot_id: host::boot_id() };
        wire::say(line, &welcome).await?;
        loop {
            let reply = match wire::hear(line).await? {
                Call::Clock => Reply::Clock(clock::unix_ns()),
                Call::Join(join) => match self.prepare(&join).await {
                    Ok(()) => {
                        wire::say(line, &Reply::Joined).await?;
                        return Ok(join);
                    }
                    Err(error) => Reply::Refused(format!("{error:#}")),
                },
                Call::Status => Reply::Status(Box::new(self.status().await)),
                Call::Command(command) => Reply::Ordered(self.order(command).await),
                Call::List(run) => self.list(&run).await,
                Call::Fetch { run, name, offset } => match self.fetch(&run, &name, offset) {
                    Ok(bytes) => Reply::Bytes(bytes),
                    Err(error) => Reply::Refused(format!("{error:#}")),
                },
            };
            wire::reply(line, &reply).await?;
        }
    }

    /// Takes part in a run, if it does not already.
    async fn prepare(&self, join: &Join) -> Result<()> {
        let mut run = self.run.lock().await;
        if let Some(present) = &*run {
            if present.id == join.run {
                return Ok(());
            }
            let over = present.handle.seen().closed;
            let abandoned = present.idle_since.is_some_and(|since| since.elapsed() > ABANDONED);
            if !over && !abandoned {
                let name = present.handle.seen().name.clone();
                bail!("it takes part in another run (`{name}`, {}): one at a time", present.id);
            }
        }
        if !join.begin {
            bail!("it knows nothing of this run yet");
        }
        let dir = run_dir(&self.dir, &join.run).context("the name of the run makes no sense")?;
        let console = join.addresses.len().checked_sub(1).context("a run without members")?;
        if join.slot as usize >= console {
            bail!("slot {} is no node's", join.slot);
        }
        // What was there before ends here.
        *run = None;
        let (member, told) = Member::begin(join.clone(), &self.trust, EXCLUDE_MS)?;
        let setup = Setup { policy: Arc::clone(&self.policy), dir, listen: self.data };
        let (handle, _task) = work::begin(setup, member, told);
        tracing::info!("takes part in run {}", join.run);
        *run = Some(Run { id: join.run.clone(), handle, idle_since: None });
        Ok(())
    }

    /// Carries what another member says to this one.
    async fn carry(&self, line: Line, join: &Join) {
        let member = match &*self.run.lock().await {
            Some(run) if run.id == join.run => run.handle.member.clone(),
            _ => return,
        };
        member.carry(line, join.from).await;
    }

    /// Forgets a run that is over, notices one that has been left alone.
    async fn tidy(&self) {
        let mut run = self.run.lock().await;
        let Some(present) = &mut *run else { return };
        let (closed, idle) = {
            let seen = present.handle.seen();
            let console = present.handle.member.join.addresses.len() - 1;
            // Before the first change of the view all that have begun are in.
            let there = match seen.slots.as_slice() {
                [] => !seen.name.is_empty(),
                slots => slots.iter().any(|slot| *slot as usize == console),
            };
            (seen.closed, seen.workers == 0 && !there)
        };
        if !closed && !idle {
            present.idle_since = None;
            return;
        }
        let since = *present.idle_since.get_or_insert_with(Instant::now);
        if closed && since.elapsed() > LINGER {
            *run = None;
        }
    }

    async fn handle(&self) -> Option<(String, Handle)> {
        let run = self.run.lock().await;
        run.as_ref().map(|run| (run.id.clone(), run.handle.clone()))
    }

    async fn status(&self) -> Status {
        let Some((id, handle)) = self.handle().await else { return Status::default() };
        let replica = handle.look().await;
        let seen = handle.seen();
        Status {
            run: Some(id),
            name: seen.name.clone(),
            nodes: seen.nodes.clone(),
            replica,
            view: seen.view,
        }
    }

    /// Has a command of somebody at a terminal ordered.
    async fn order(&self, command: Command) -> Result<u64, String> {
        let Some((_, handle)) = self.handle().await else {
            return Err("no experiment runs here".to_owned());
        };
        if !matches!(
            command,
            Command::Stop { .. } | Command::Reassign { .. } | Command::Mark { .. }
        ) {
            return Err("that is no command for a terminal".to_owned());
        }
        let mut applied = handle.applied.subscribe();
        let me = handle.member.join.slot;
        handle.member.ask(Ask::Command(command.clone())).await;
        let waiting = async {
            loop {
                match applied.recv().await {
                    Ok((by, position, done, void)) if by == me && done == command => {
                        return void.map_or(Ok(position), Err);
                    }
                    Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                    Err(_) => return Err("the experiment is over".to_owned()),
                }
            }
        };
        tokio::time::timeout(ORDERED, waiting).await.unwrap_or_else(|_| {
            Err("it has not been ordered in time: a majority of the nodes does not answer; it may be yet".to_owned())
        })
    }

    /// The logs of a run, and whether they are complete; those of earlier lives are among them.
    async fn list(&self, run: &str) -> Reply {
        let Some(dir) = run_dir(&self.dir, run) else {
            return Reply::Refused("the name of the run makes no sense".to_owned());
        };
        let (mut drained, mut closed) = (true, true);
        if let Some((id, handle)) = self.handle().await
            && id == run
        {
            let seen = handle.seen();
            (drained, closed) = (seen.drained, seen.closed);
        }
        let mut files = BTreeMap::new();
        if let Ok(entries) = fs::read_dir(dir) {
            for entry in entries.flatten() {
                if let (Ok(name), Ok(facts)) = (entry.file_name().into_string(), entry.metadata()) {
                    files.insert(name, facts.len());
                }
            }
        }
        Reply::Files { files, drained, closed }
    }

    /// Some bytes of a log.
    fn fetch(&self, run: &str, name: &str, offset: u64) -> Result<Vec<u8>> {
        let dir = run_dir(&self.dir, run).context("the name of the run makes no sense")?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        if !name.chars().all(plain) || Path::new(name).extension().is_none_or(|e| e != "itg") {
            bail!("`{name}` is no log");
        }
        let mut file = fs::File::open(dir.join(name))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
