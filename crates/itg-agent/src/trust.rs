//! Keys of a cluster: one certificate authority and one certificate, which all its programs have.
//! Both ends of every control connection prove that they hold it (mutual TLS).

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{Failure, refuse, say};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig, crypto};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The name that the certificate of every cluster is made out to.
const NAME: &str = "itg-cluster";
const CA: &str = "ca.pem";
const CERTIFICATE: &str = "node.pem";
const KEY: &str = "node.key";
/// Time that connecting and proving may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// A connection whose other end does not answer ends after this time.
const SILENCE: Duration = Duration::from_secs(6);

/// Arguments of `keys`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// New directory for the keys; copy it to every node, readable by the agents alone
    pub dir: PathBuf,
    /// Days until the keys expire
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(0..=36_500))]
    pub days: u32,
}

/// Makes the keys of a cluster.
///
/// # Errors
/// The directory has keys already, or cannot be written.
pub fn keys(args: &KeysArgs) -> Result<ExitCode> {
    let dir = args.dir.display();
    if args.dir.join(KEY).exists() {
        return Err(refuse(format!("directory {dir} holds keys already: choose another one")));
    }
    fs::create_dir_all(&args.dir).map_err(|error| refuse(format!("directory {dir}: {error}")))?;
    make(&args.dir, args.days).with_context(|| format!("keys in {dir}"))?;
    say(format_args!(
        "keys of a new cluster are in {dir}, for {} days: copy the directory to every node and keep it secret",
        args.days
    ));
    Ok(ExitCode::SUCCESS)
}

/// Refuses a private key that others than its owner can read.
fn unreadable_for_others(key: &Path) -> Result<()> {
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
        other => format!("it does not fit {CA}: {other}"),
    }
}

/// Writes the keys of a new cluster.
pub(crate) fn make(dir: &Path, days: u32) -> Result<()> {
    let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let yesterday = now.yesterday()?;
    let last = now.checked_add(jiff::Span::new().try_days(days)?)?;
    let date = |date: jiff::civil::Date| {
        rcgen::date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.distinguished_name.push(DnType::CommonName, "ITG cluster");
    ca.key_usages.push(KeyUsagePurpose::KeyCertSign);
    (ca.not_before, ca.not_after) = (date(yesterday), date(last));
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    // Its private key is forgotten: no certificate can be added to this cluster; new keys are a new one.
    let issuer = Issuer::new(ca, ca_key);
    let mut node = CertificateParams::new(vec![NAME.to_owned()])?;
    node.distinguished_name.push(DnType::CommonName, NAME);
    node.key_usages.push(KeyUsagePurpose::DigitalSignature);
    node.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    (node.not_before, node.not_after) = (date(yesterday), date(last));
    let node_key = KeyPair::generate()?;
    let certificate = node.signed_by(&node_key, &issuer)?;
    fs::write(dir.join(CA), ca_certificate.pem())?;
    fs::write(dir.join(CERTIFICATE), certificate.pem())?;
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(KEY))?;
    file.write_all(node_key.serialize_pem().as_bytes())?;
    Ok(())
}

/// The keys of a cluster, ready for use.
#[derive(Clone)]
pub(crate) struct Trust {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
}

/// A connection whose other end belongs to the cluster.
pub(crate) type Line = TlsStream<TcpStream>;

impl Trust {
    /// Reads the keys. Refuses, as ssh does, a key that others can read; and keys that are not valid now.
    pub(crate) fn load(dir: &Path) -> Result<Self> {
        let file = |name: &str| dir.join(name);
        unreadable_for_others(&file(KEY))?;
        let bad = |name: &str, error: &dyn std::fmt::Display| {
            let path = file(name);
            let path = path.display();
            refuse(format!("key file {path}: {error}; `itg-cluster keys DIR` makes new ones"))
        };
        let chain = CertificateDer::pem_file_iter(file(CERTIFICATE))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| bad(CERTIFICATE, &error))?;
        let key = || PrivateKeyDer::from_pem_file(file(KEY)).map_err(|error| bad(KEY, &error));
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(file(CA)).map_err(|error| bad(CA, &error))?;
        roots.add(ca).map_err(|error| bad(CA, &error))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(chain.clone(), key()?)
            .map_err(|error| bad(KEY, &error))?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
        let (own, above) = chain.split_first().ok_or_else(|| bad(CERTIFICATE, &"it is empty"))?;
        verifier.verify_client_cert(own, above, UnixTime::now()).map_err(|error| {
            let path = file(CERTIFICATE);
            let (path, why) = (path.display(), unusable(&error));
            refuse(format!("key file {path}: {why}; `itg-cluster keys NEW-DIR` makes new ones"))
        })?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key()?)
            .map_err(|error| bad(KEY, &error))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
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
        match timeout(PATIENCE, self.connector.connect(name, stream)).await {
            Err(_) => Err(failed("no answer: is it an agent of itg-cluster?".to_owned())),
            Ok(Err(error)) => Err(failed(explain(&error))),
            Ok(Ok(line)) => Ok(line.into()),
        }
    }

    /// Lets a program in that belongs to the cluster.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Result<Line, String> {
        prepare(&stream);
        match timeout(PATIENCE, self.acceptor.accept(stream)).await {
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
    if low.contains("expired") {
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
