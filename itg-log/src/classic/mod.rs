//! A log server for D-ITG's senders and receivers, and for ours under their names: the protocol of
//! [`itg_classic::wire::LogServerSession`] over sockets.
//!
//! Every client is a task. It asks on the signalling port and gets a data port of its own, to which
//! it sends records over TCP or UDP; they go into the file that it named, within one directory. What
//! the protocol has no way to tell is counted here: datagrams that this host dropped, records of which
//! only a part came, records for which there was no room.

mod client;
mod files;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_classic::send::LogProto;
use itg_node::{ConnectionSlots, SlotLimits};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::files::Files;

/// Settings of the server.
#[derive(Clone, Debug)]
pub(crate) struct ClassicOptions {
    /// Address at which clients ask for their logs.
    pub(crate) listen: SocketAddr,
    /// Directory of the logs; nothing is written outside it.
    pub(crate) dir: PathBuf,
    /// Most clients at a time; one that has not asked for its log gives way to a newer one.
    pub(crate) places: SlotLimits,
    /// Largest log in bytes.
    pub(crate) log_bytes: u64,
    /// True if a log replaces an older one of its name.
    pub(crate) replace: bool,
}

/// Account of a client's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// The client.
    pub(crate) peer: SocketAddr,
    /// The file's name.
    pub(crate) name: String,
    /// Transport of the records.
    pub(crate) proto: LogProto,
    /// Records in the file.
    pub(crate) records: u64,
    /// Pieces in which they came: datagrams, or reads of a stream.
    pub(crate) blocks: u64,
    /// Records for which there was no room.
    pub(crate) lost: u64,
    /// Bytes that were no whole record.
    pub(crate) torn_bytes: u64,
    /// Datagrams that this host dropped for want of buffer space.
    pub(crate) dropped: u64,
    /// Datagrams and connections from other sources than the client, left out.
    pub(crate) strangers: u64,
    /// Error, if there was one.
    pub(crate) trouble: Option<String>,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, name, records, blocks, .. } = self;
        let blocks_are = if self.proto == LogProto::Udp { "datagrams" } else { "pieces" };
        write!(f, "{name}: {records} records of {peer} in {blocks} {blocks_are} stored")?;
        for (count, what) in [
            (self.lost, "records lost"),
            (self.torn_bytes, "bytes that are no whole record left out"),
            (self.dropped, "datagrams dropped by this host"),
            (self.strangers, "strangers turned away"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        self.trouble.as_ref().map_or(Ok(()), |trouble| write!(f, "; {trouble}"))
    }
}

/// Events that the server reports while it runs.
#[derive(Clone, Debug)]
pub(crate) enum Telling {
    /// A client's log is open.
    Opened { peer: SocketAddr, name: String, proto: LogProto, port: u16 },
    /// A client's log has ended.
    Ended(Account),
    /// A client was turned away.
    Refused { peer: SocketAddr, reason: String },
}

#[derive(Debug)]
struct Shared {
    files: Files,
    tellings: UnboundedSender<Telling>,
}

impl Shared {
    fn tell(&self, telling: Telling) {
        // The program may have stopped listening.
        drop(self.tellings.send(telling));
    }
}

/// Waits until the server is to end.
async fn stopping(stop: &mut watch::Receiver<Option<String>>) {
    // An error says that no sender of the channel is left: that is an end too.
    drop(stop.wait_for(Option::is_some).await);
}

/// A server whose signalling port is open.
#[derive(Debug)]
pub(crate) struct ClassicServer {
    listener: TcpListener,
    shared: Arc<Shared>,
    places: ConnectionSlots,
}

impl ClassicServer {
    /// Opens logs anew by their names whose files were moved away; returns false once it no longer serves.
    pub(crate) fn reopen_logs(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || shared.upgrade().map(|shared| shared.files.reopen()).is_some()
    }

    /// Opens the signalling port.
    pub(crate) fn bind(
        options: ClassicOptions,
        tellings: UnboundedSender<Telling>,
    ) -> Result<Self> {
        let ClassicOptions { listen, dir, places, log_bytes, replace } = options;
        let listener = itg_socket::listen(listen)
            .and_then(TcpListener::from_std)
            .with_context(|| format!("listening for D-ITG's programs on {listen}"))?;
        let files = Files::new(dir, log_bytes, replace);
        let shared = Arc::new(Shared { files, tellings });
        Ok(Self { listener, shared, places: ConnectionSlots::new(places) })
    }

    /// Address at which clients ask for their logs.
    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` holds a reason, then takes in what is on its way.
    pub(crate) async fn serve(self, stop: watch::Receiver<Option<String>>) {
        let mut clients = JoinSet::new();
        let mut stopped = stop.clone();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => match self.places.take(peer.ip()) {
                        Ok(place) => drop(clients.spawn(client::serve(
                            stream,
                            (itg_socket::plain(peer), place),
                            Arc::clone(&self.shared),
                            stop.clone(),
                        ))),
                        Err(why) => {
                            self.shared.tell(Telling::Refused { peer, reason: why.to_string() });
                        }
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = clients.join_next() => {}
                () = stopping(&mut stopped) => break,
            }
        }
        // Each has a deadline.
        while clients.join_next().await.is_some() {}
    }
}
