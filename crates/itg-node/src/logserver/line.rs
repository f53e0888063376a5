//! A producer's connection: plain, or TLS with which both ends prove who they are.

use std::sync::Arc;
use std::time::Duration;

use itg_engine::log::MAY_SEND;
use itg_session::logs::{self, FrameHead, LogMessage};
use itg_trust::{Holder, KeyDir, Keys, explain};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Time in which a producer must prove who it is.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time, and bytes, for which a producer that is turned away is heard out, so that it reads why.
const HEARD_OUT: (Duration, u64) = (Duration::from_secs(1), 64 << 10);
/// Interval between two looks at the files of keys.
const LOOK: Duration = Duration::from_secs(1);
/// First byte of a connection that begins with TLS.
const HANDSHAKE: u8 = 22;

pub(super) type Reading = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection on which a producer may register.
pub(super) struct Line {
    pub(super) reading: Reading,
    pub(super) writing: Writing,
    pub(super) proof: Option<Proof>,
}

/// The proof of who a producer is; it may be revoked.
pub(super) struct Proof {
    keys: KeyDir,
    /// The keys with which it was checked last.
    known: Arc<Keys>,
    chain: Vec<CertificateDer<'static>>,
    looks: Interval,
}

impl Proof {
    /// Waits until the producer's certificate is not good any more: why.
    pub(super) async fn revoked(&mut self) -> String {
        loop {
            self.looks.tick().await;
            if let Err(why) = self.keys.check_again(&mut self.known, &self.chain) {
                return why;
            }
        }
    }
}

/// Waits until a proof is void; for ever where there is none.
pub(super) async fn revoked(proof: &mut Option<Proof>) -> String {
    match proof {
        Some(proof) => proof.revoked().await,
        None => std::future::pending().await,
    }
}

/// Makes a line of a connection; with keys, of one whose other end proves that it may send logs.
pub(super) async fn open(stream: TcpStream, keys: Option<&KeyDir>) -> Result<Line, String> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let Some(keys) = keys else {
        let (reading, writing) = stream.into_split();
        return Ok(Line { reading: Box::new(reading), writing: Box::new(writing), proof: None });
    };
    let late = |_| "it did not prove who it is in time".to_owned();
    let mut first = [0];
    let peeked = timeout(PATIENCE, stream.peek(&mut first)).await.map_err(late)?;
    if peeked.map_err(|error| error.to_string())? > 0 && first != [HANDSHAKE] {
        let why = "this log server takes logs over TLS alone: write tls://HOST:PORT, and name keys of its cluster \
                   with --keys DIR";
        turn_away(stream, why).await;
        return Err("it does not speak TLS".to_owned());
    }
    let known = keys.keys();
    let accepting = TlsAcceptor::from(known.server()).accept(stream).into_fallible();
    let stream = match timeout(PATIENCE, accepting).await.map_err(late)? {
        Ok(stream) => stream,
        Err((error, stream)) => {
            hear_out(stream).await;
            return Err(explain(&error, "a producer with keys (--keys)"));
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
    if let Err(why) = Holder::of_chain(Some(&chain)).must_be(&MAY_SEND) {
        turn_away(stream, &why).await;
        return Err(why);
    }
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let proof = Some(Proof { keys: keys.clone(), known, chain, looks });
    let (reading, writing) = split(stream);
    Ok(Line { reading: Box::new(reading), writing: Box::new(writing), proof })
}

/// A message with its length in front.
pub(super) fn frame_of(message: &LogMessage) -> Result<Vec<u8>, String> {
    let bytes = logs::encode(message).map_err(|error| error.to_string())?;
    let mut frame = Vec::with_capacity(4 + bytes.len());
    frame.extend(FrameHead::message(&bytes).to_bytes());
    frame.extend(bytes);
    Ok(frame)
}

/// Tells a producer why it may not register.
async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin, why: &str) {
    let refusal = LogMessage::Refused { reason: why.to_owned(), again: false };
    let Ok(frame) = frame_of(&refusal) else { return };
    let telling = async {
        stream.write_all(&frame).await?;
        stream.flush().await
    };
    // It may have gone.
    if matches!(timeout(PATIENCE, telling).await, Ok(Ok(()))) {
        hear_out(stream).await;
    }
}

/// Ends a connection without taking back what was said: reads on for a while what nobody looks at.
async fn hear_out(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let (limit, bytes) = HEARD_OUT;
    let hearing = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(bytes), &mut tokio::io::sink()).await
    };
    if let Ok(Err(error)) = timeout(limit, hearing).await {
        tracing::debug!(%error, "a connection that was turned away");
    }
}
