//! Connections that both ends have proved to belong to one cluster (mutual TLS), and what proves it: the files that
//! `itg-cluster keys` makes. Files that change are read again, so that renewed keys and a new list of revoked ones
//! need no restart.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use itg_cli::{Failure, refuse};
use itg_socket::clock;
use rcgen::{KeyPair, SigningKey as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use webpki::EndEntityCert;

use crate::roles::{Holder, NAME, Role};
use crate::wire::{Join, Warrant};

pub(crate) const CA: &str = "ca.pem";
pub(crate) const CERTIFICATE: &str = "node.pem";
pub(crate) const KEY: &str = "node.key";
pub(crate) const REVOKED: &str = "revoked.pem";
/// Time that connecting and proving may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection whose other end does not answer ends after this time.
const SILENCE: Duration = Duration::from_secs(6);
/// Time between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Refuses a private key that others than its owner can read.
pub(crate) fn unreadable_for_others(key: &Path) -> Result<()> {
    // A file that is not there is complained of when it is read.
    let Ok(facts) = fs::metadata(key) else { return Ok(()) };
    let mode = facts.mode() & 0o777;
    // The owner may be root, who lets a group of programs read it.
    let group = if facts.uid() == nix::unistd::geteuid().as_raw() { 0o070 } else { 0 };
    if mode & (0o007 | group) == 0 {
        return Ok(());
    }
    let name = key.display();
    Err(refuse(format!(
        "key file {name}: others can read it (mode {mode:04o}), so it proves nothing: `chmod 600 {name}`, or \
         make new keys with `itg-cluster keys NEW-DIR` if somebody may have"
    )))
}

/// Reason that keys cannot be used now.
fn unusable(error: &rustls::Error) -> String {
    use rustls::CertificateError as E;
    match error {
        rustls::Error::InvalidCertificate(E::Expired | E::ExpiredContext { .. }) => {
            "the keys have expired".to_owned()
        }
        rustls::Error::InvalidCertificate(E::NotValidYet | E::NotValidYetContext { .. }) => {
            "the keys are not valid yet: look at the clock of this host".to_owned()
        }
        rustls::Error::InvalidCertificate(E::Revoked) => "the keys have been revoked".to_owned(),
        rustls::Error::InvalidCertificate(E::UnknownRevocationStatus) => {
            format!("{REVOKED} is not the list of its authority")
        }
        other => format!("it does not fit {CA}: {other}"),
    }
}

/// The keys of a cluster, ready for use; clones share them.
#[derive(Clone)]
pub(crate) struct Trust {
    dir: Arc<Path>,
    current: Arc<Mutex<Current>>,
}

/// The keys as they were read last.
struct Current {
    looked_ns: u64,
    stamp: Stamp,
    keys: Arc<Keys>,
}

/// Facts by which a file that has changed is known: its time, length and number.
type Stamp = [Option<(i64, i64, u64, u64)>; 4];

fn stamp(dir: &Path) -> Stamp {
    [CA, CERTIFICATE, KEY, REVOKED].map(|name| {
        let facts = fs::metadata(dir.join(name)).ok()?;
        Some((facts.mtime(), facts.mtime_nsec(), facts.len(), facts.ino()))
    })
}

/// Keys that are good.
struct Keys {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    holder: Holder,
}

/// A connection whose other end belongs to the cluster.
pub(crate) type Line = TlsStream<TcpStream>;

/// The certificate of the other end of a connection.
pub(crate) fn certificate(line: &Line) -> Option<CertificateDer<'static>> {
    line.get_ref().1.peer_certificates()?.first().cloned().map(CertificateDer::into_owned)
}

/// The holder of the other end of a connection.
pub(crate) fn holder(line: &Line) -> Holder {
    certificate(line).as_ref().map(Holder::of).unwrap_or_default()
}

/// Complaint about a file of the keys.
fn bad(dir: &Path, name: &str, error: &dyn std::fmt::Display) -> anyhow::Error {
    let path = dir.join(name);
    let path = path.display();
    refuse(format!("key file {path}: {error}; `itg-cluster keys` makes new ones"))
}

/// The list of revoked certificates, if there is one.
fn revoked(dir: &Path) -> Result<Option<CertificateRevocationListDer<'static>>> {
    let path = dir.join(REVOKED);
    if !path.exists() {
        return Ok(None);
    }
    let list = CertificateRevocationListDer::from_pem_file(path);
    Ok(Some(list.map_err(|error| bad(dir, REVOKED, &error))?))
}

impl Keys {
    /// Reads the keys. Refuses, as ssh does, a key that others can read; and keys that are not valid now.
    fn load(dir: &Path) -> Result<Self> {
        let file = |name: &str| dir.join(name);
        let bad = |name: &str, error: &dyn std::fmt::Display| bad(dir, name, error);
        unreadable_for_others(&file(KEY))?;
        let chain = CertificateDer::pem_file_iter(file(CERTIFICATE))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(CERTIFICATE, &error))?;
        let key = || PrivateKeyDer::from_pem_file(file(KEY)).map_err(|error| bad(KEY, &error));
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(file(CA)).map_err(|error| bad(CA, &error))?;
        roots.add(ca).map_err(|error| bad(CA, &error))?;
        let roots = Arc::new(roots);
        let (own, above) = chain.split_first().ok_or_else(|| bad(CERTIFICATE, &"it is empty"))?;
        let holder = Holder::of(own);
        let list = revoked(dir)?;
        if list.is_none() && holder.is_named() {
            let missing = "not there: copy it from the authority, which keeps it beside its ca.pem";
            return Err(bad(REVOKED, &missing));
        }
        let provider = Arc::new(crypto::ring::default_provider());
        let mut agents =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let mut callers = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
        if let Some(list) = list {
            agents = agents.with_crls([list.clone()]);
            callers = callers.with_crls([list]);
        }
        let verifier = callers.build().map_err(|error| bad(REVOKED, &error))?;
        let agents = agents.build().map_err(|error| bad(REVOKED, &error))?;
        verifier
            .verify_client_cert(own, above, UnixTime::now())
            .map_err(|error| bad(CERTIFICATE, &unusable(&error)))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(agents)
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(|error| bad(KEY, &error))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_single_cert(chain.clone(), key()?)
            .map_err(|error| bad(KEY, &error))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
            verifier,
            chain,
            holder,
        })
    }

    /// Checks a certificate of another node, as of now.
    fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (own, above) = chain.split_first().ok_or("there is no certificate")?;
        let checked = self.verifier.verify_client_cert(own, above, UnixTime::now());
        checked.map(drop).map_err(|error| unusable(&error))
    }
}

/// Bytes that the console of a run signs.
fn agreed(run: &str, addresses: &[String]) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&("members of a run of itg-cluster", run, addresses))?)
}

impl Trust {
    /// Reads the keys.
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        let stamp = stamp(dir);
        let keys = Arc::new(Keys::load(dir)?);
        let current = Current { looked_ns: clock::monotonic_ns(), stamp, keys };
        Ok(Self { dir: dir.into(), current: Arc::new(Mutex::new(current)) })
    }

    /// The keys as the files have them now; where these cannot be used, as they had them last.
    fn keys(&self) -> Arc<Keys> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock::monotonic_ns();
        if u128::from(now_ns.saturating_sub(current.looked_ns)) >= LOOK.as_nanos() {
            current.looked_ns = now_ns;
            let stamp = stamp(&self.dir);
            if stamp != current.stamp {
                current.stamp = stamp;
                match Keys::load(&self.dir) {
                    Ok(keys) => current.keys = Arc::new(keys),
                    Err(error) => tracing::warn!("keys stay as they were: {error:#}"),
                }
            }
        }
        Arc::clone(&current.keys)
    }

    /// Checks that our own keys have a role.
    pub(crate) fn must_be(&self, role: Role) -> Result<()> {
        self.keys()
            .holder
            .must_be(&[role])
            .map_err(|why| refuse(format!("keys in {}: {why}", self.dir.display())))
    }

    /// Waits until the certificate of the other end of a connection has been revoked.
    pub(crate) async fn revoked(&self, certificate: Option<CertificateDer<'static>>) -> String {
        let mut known = self.keys();
        loop {
            tokio::time::sleep(LOOK).await;
            let keys = self.keys();
            if !Arc::ptr_eq(&keys, &known) {
                if let Err(why) = keys.check(certificate.as_slice()) {
                    return why;
                }
                known = keys;
            }
        }
    }

    /// Vouches, as the console of a run, for its members.
    pub(crate) fn vouch(&self, run: &str, addresses: &[String]) -> Result<Warrant> {
        let path = self.dir.join(KEY);
        let pem =
            fs::read_to_string(&path).with_context(|| format!("key file {}", path.display()))?;
        let signature = KeyPair::from_pem(&pem)?.sign(&agreed(run, addresses)?)?;
        let chain = self.keys().chain.iter().map(|one| one.to_vec()).collect();
        Ok(Warrant { chain, signature })
    }

    /// Checks that a console has vouched for the members that a call names: so that nobody else can have this node call
    /// hosts of his choice.
    pub(crate) fn check_members(&self, join: &Join) -> Result<()> {
        let Warrant { chain, signature } = &join.warrant;
        let keys = self.keys();
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
        let name = ServerName::try_from(NAME).expect("a host name");
        let failed = |text| Unreachable { step: "proving who we are", text, refused: false };
        match timeout(PATIENCE, self.keys().connector.connect(name, stream)).await {
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
        match timeout(PATIENCE, self.keys().acceptor.accept(stream)).await {
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
    let text = error.to_string();
    let low = text.to_lowercase();
    if low.contains("revoked") {
        format!("the keys have been revoked ({text})")
    } else if low.contains("expired") {
        format!("the keys have expired: make new ones with `itg-cluster keys` ({text})")
    } else if ["unknownissuer", "unknownca", "badsignature", "decrypterror", "unknown issuer"]
        .iter()
        .any(|word| low.contains(word))
    {
        format!("it has the keys of another cluster ({text})")
    } else if low.contains("notvalidyet") || low.contains("not valid yet") {
        format!("the keys are not valid yet: compare the clocks ({text})")
    } else if low.contains("corrupt") || low.contains("invalidcontenttype") {
        format!("it does not speak as an agent of itg-cluster ({text})")
    } else {
        text
    }
}
