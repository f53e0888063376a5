//! Connections that both ends have proved to belong to one cluster (mutual TLS), and what a console signs.

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow};
use itg_cli::{Failure, refuse};
use itg_trust::{Holder, KEY, KeyDir, Role, read_key, server_name};
use rcgen::{KeyPair, SigningKey as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::crypto;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use webpki::EndEntityCert;

use crate::wire::{Join, Warrant};

/// Time that connecting and proving may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection whose other end does not answer ends after this time.
const SILENCE: Duration = Duration::from_secs(6);
/// Time between two looks at when our own keys expire.
const DAY: Duration = Duration::from_secs(86_400);
/// Time between two looks at the files of keys.
const LOOK: Duration = Duration::from_secs(1);

/// The keys of a cluster, ready for use; clones share them.
#[derive(Clone)]
pub(crate) struct Trust(KeyDir);

/// A connection whose other end belongs to the cluster.
pub(crate) type Line = TlsStream<TcpStream>;

/// The certificate of the other end of a connection.
pub(crate) fn certificate(line: &Line) -> Option<CertificateDer<'static>> {
    line.get_ref().1.peer_certificates()?.first().cloned().map(CertificateDer::into_owned)
}

/// The holder of the other end of a connection.
pub(crate) fn holder(line: &Line) -> Holder {
    Holder::of_chain(line.get_ref().1.peer_certificates())
}

/// Bytes that the console of a run signs.
fn agreed(run: &str, addresses: &[String]) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&("members of a run of itg-cluster", run, addresses))?)
}

impl Trust {
    /// Reads the keys.
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        KeyDir::load(dir).map(Self).map_err(refuse)
    }

    /// Whole days until our own keys expire.
    pub(crate) fn days_left(&self) -> Option<u64> {
        self.0.days_left()
    }

    /// Says once a day that our own keys expire soon, if they do.
    pub(crate) async fn warn_of_expiry(self) {
        loop {
            tokio::time::sleep(DAY).await;
            self.0.warn_of_expiry();
        }
    }

    /// Checks that our own keys have a role.
    pub(crate) fn must_be(&self, role: Role) -> Result<()> {
        self.0.must_be(&[role]).map_err(refuse)
    }

    /// Waits until the certificate of the other end of a connection has been revoked.
    pub(crate) async fn revoked(&self, certificate: Option<CertificateDer<'static>>) -> String {
        let mut known = self.0.keys();
        loop {
            tokio::time::sleep(LOOK).await;
            if let Err(why) = self.0.check_again(&mut known, certificate.as_slice()) {
                return why;
            }
        }
    }

    /// Vouches, as the console of a run, for its members.
    pub(crate) fn vouch(&self, run: &str, addresses: &[String]) -> Result<Warrant> {
        let pem = String::from_utf8(read_key(self.0.dir(), KEY, true)?)?;
        let signature = KeyPair::from_pem(&pem)?.sign(&agreed(run, addresses)?)?;
        let chain = self.0.keys().chain().iter().map(|one| one.to_vec()).collect();
        Ok(Warrant { chain, signature })
    }

    /// Checks that a console has vouched for the members that a call names: so that nobody else can have this node call
    /// hosts of his choice.
    pub(crate) fn check_members(&self, join: &Join) -> Result<()> {
        let Warrant { chain, signature } = &join.warrant;
        let keys = self.0.keys();
        let chain: Vec<CertificateDer<'_>> =
            chain.iter().map(|one| CertificateDer::from(one.as_slice())).collect();
        let text = agreed(&join.run, &join.addresses)?;
        let checked = keys.check(&chain).and_then(|()| {
            let own = chain.first().ok_or("there is no certificate")?;
            Holder::of(own).must_be(&[Role::Console])?;
            let read = EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
            let provider = crypto::ring::default_provider();
            let known = provider.signature_verification_algorithms.all.iter();
            let mut signed = known.map(|known| read.verify_signature(*known, &text, signature));
            let signed = signed.any(|signed| signed.is_ok());
            if signed {
                Ok(())
            } else {
                Err("the signature is not that of these members".to_owned())
            }
        });
        checked.map_err(|why| anyhow!("no console vouches for the addresses of the members: {why}"))
    }

    /// Connects to an agent: the step that failed, and why.
    pub(crate) async fn connect(&self, address: &str) -> Result<Line, Unreachable> {
        let connecting = timeout(PATIENCE, TcpStream::connect(address)).await;
        let stream = match connecting {
            Err(_) => {
                let text = format!("no answer within {} s", PATIENCE.as_secs());
                return Err(Unreachable { step: "connecting", text, refused: false });
            }
            Ok(Err(error)) => {
                let refused = error.kind() == io::ErrorKind::ConnectionRefused;
                let hint = if refused { "; start `itg-cluster agent` there" } else { "" };
                let text = format!("{error}{hint}");
                return Err(Unreachable { step: "connecting", text, refused });
            }
            Ok(Ok(stream)) => stream,
        };
        prepare(&stream);
        let failed = |text| Unreachable { step: "proving who we are", text, refused: false };
        let connector = TlsConnector::from(self.0.keys().client());
        match timeout(PATIENCE, connector.connect(server_name(), stream)).await {
            Err(_) => Err(failed("no answer: is it an agent of itg-cluster?".to_owned())),
            Ok(Err(error)) => Err(failed(explain(&error))),
            Ok(Ok(line)) => {
                let line = line.into();
                holder(&line).must_be(&[Role::Agent]).map_err(failed)?;
                Ok(line)
            }
        }
    }

    /// Lets a program in that belongs to the cluster.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Line, String> {
        prepare(&stream);
        let acceptor = TlsAcceptor::from(self.0.keys().server());
        match timeout(PATIENCE, acceptor.accept(stream)).await {
            Err(_) => Err("it did not prove who it is in time".to_owned()),
            Ok(Err(error)) => Err(explain(&error)),
            Ok(Ok(line)) => Ok(line.into()),
        }
    }
}

/// No delay for short messages, an end when the other host has gone without a word.
fn prepare(stream: &TcpStream) {
    if let Err(error) =
        stream.set_nodelay(true).and_then(|()| itg_socket::end_when_silent(stream, SILENCE))
    {
        tracing::debug!(%error, "options of a control connection");
    }
}

/// Reason that an agent cannot be used.
#[derive(Debug)]
pub(crate) struct Unreachable {
    /// Step that failed.
    pub(crate) step: &'static str,
    /// Description of the failure.
    pub(crate) text: String,
    /// True if its host is there and says that no process listens.
    pub(crate) refused: bool,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.step, self.text)
    }
}

impl From<Unreachable> for anyhow::Error {
    fn from(error: Unreachable) -> Self {
        Failure::new(3, error).into()
    }
}

/// Meaning of a failed handshake, for people.
pub(crate) fn explain(error: &io::Error) -> String {
    itg_trust::explain(error, "an agent of itg-cluster")
}
