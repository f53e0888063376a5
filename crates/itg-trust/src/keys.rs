//! The files of keys, and what is made of them. Files that change are read again, so that renewed keys and a new list
//! of revoked ones need no restart.

use std::fmt;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use itg_socket::clock;
use nix::fcntl::OFlag;
use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, RootCertStore, ServerConfig, crypto};

use crate::roles::{Holder, NAME, Role};

/// File of the authority's certificate.
pub const CA: &str = "ca.pem";
/// File of a node's certificate.
pub const CERTIFICATE: &str = "node.pem";
/// File of a node's private key.
pub const KEY: &str = "node.key";
/// File of the list of revoked certificates.
pub const REVOKED: &str = "revoked.pem";
/// Most bytes of a file of keys, or of a secret.
const MOST_BYTES: u64 = 64 << 10;
/// Interval between two looks at the files, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Keys that cannot be used: the file, and what can be done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(String);

/// The name that the other end's certificate must be made out to.
///
/// # Panics
/// Never: it is a host name.
#[must_use]
pub fn server_name() -> ServerName<'static> {
    ServerName::try_from(NAME).expect("a host name")
}

/// Reason that a file or directory of this kind of facts cannot be trusted, with what to do: its owner is neither root
/// nor this user, others can change it, or, of a secret, read it.
fn distrusted(name: &str, facts: &Metadata, secret: bool) -> Option<String> {
    let mode = facts.mode() & 0o7777;
    let (us, owner) = (nix::unistd::geteuid().as_raw(), facts.uid());
    if ![0, us].contains(&owner) {
        return Some(format!(
            "it belongs to user {owner}, who can change it: `chown {us} {name}`, or run as that user"
        ));
    }
    if mode & 0o022 != 0 {
        return Some(format!("others can change it (mode {mode:04o}): `chmod go-w {name}`"));
    }
    // The owner may be root, who lets a group of programs read it.
    let group = if owner == us { 0o070 } else { 0 };
    (secret && mode & (0o007 | group) != 0).then(|| {
        format!(
            "others can read it (mode {mode:04o}), so it proves nothing: `chmod 600 {name}`, or make a new one if \
             somebody may have"
        )
    })
}

/// Reads a file on which trust rests: a regular one of at most 64 KiB, of root's or this user's, that nobody else can
/// change, nor read if it is a secret; its directory neither.
///
/// # Errors
/// It is none, or cannot be read; the text has no name of it.
pub fn read_guarded(path: &Path, secret: bool) -> Result<Vec<u8>, String> {
    // A pipe would wait for its writer.
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    let file = opened.map_err(|error| error.to_string())?;
    let facts = file.metadata().map_err(|error| error.to_string())?;
    if !facts.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if let Some(why) = distrusted(&path.display().to_string(), &facts, secret) {
        return Err(why);
    }
    let dir =
        path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let around = fs::metadata(dir).map_err(|error| error.to_string())?;
    // Where only the owner of a file can remove it, as in /tmp, it stays.
    let sticky = around.mode() & 0o1000 != 0;
    if let Some(why) = distrusted(&dir.display().to_string(), &around, false).filter(|_| !sticky) {
        return Err(format!("its directory: {why}"));
    }
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("it is longer than {} KiB", MOST_BYTES >> 10));
    }
    Ok(bytes)
}

/// Reads a file of a directory of keys, see [`read_guarded`].
///
/// # Errors
/// As there, with its name.
pub fn read_key(dir: &Path, name: &str, secret: bool) -> Result<Vec<u8>, KeyError> {
    read_guarded(&dir.join(name), secret).map_err(|why| bad(dir, name, &why))
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

/// Meaning of a failed handshake, for people; the other end ought to be one of these programs.
#[must_use]
pub fn explain(error: &io::Error, program: &str) -> String {
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
        format!("it does not speak as {program} ({text})")
    } else {
        text
    }
}

/// A directory of keys, ready for use; clones share what was read.
#[derive(Clone)]
pub struct KeyDir {
    dir: Arc<Path>,
    current: Arc<Mutex<Current>>,
}

impl fmt::Debug for KeyDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KeyDir").field(&self.dir).finish()
    }
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

impl KeyDir {
    /// Reads the keys, and says if they expire soon.
    ///
    /// # Errors
    /// A file that is not there or cannot be used, named: one that others can read, keys that are not valid now.
    pub fn load(dir: &Path) -> Result<Self, KeyError> {
        let stamp = stamp(dir);
        let keys = Arc::new(Keys::load(dir)?);
        let current = Current { looked_ns: clock::monotonic_ns(), stamp, keys };
        let made = Self { dir: dir.into(), current: Arc::new(Mutex::new(current)) };
        made.warn_of_expiry();
        Ok(made)
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The keys as the files have them now; where our own cannot be used, as they had them last, with the authority's
    /// list of today.
    #[must_use]
    pub fn keys(&self) -> Arc<Keys> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = clock::monotonic_ns();
        if now_ns.saturating_sub(current.looked_ns) >= LOOK_NS {
            current.looked_ns = now_ns;
            let stamp = stamp(&self.dir);
            if stamp != current.stamp {
                current.stamp = stamp;
                match Keys::load(&self.dir) {
                    Ok(keys) => current.keys = Arc::new(keys),
                    Err(error) => {
                        tracing::warn!("our own keys stay as they were: {error:#}");
                        match current.keys.with_new_authority(&self.dir) {
                            Ok(keys) => current.keys = Arc::new(keys),
                            Err(error) => {
                                tracing::warn!(
                                    "the list of revoked keys stays as it was: {error:#}"
                                );
                            }
                        }
                    }
                }
            }
        }
        Arc::clone(&current.keys)
    }

    /// Checks that our own keys have one of these roles.
    ///
    /// # Errors
    /// They have none of them.
    pub fn must_be(&self, roles: &[Role]) -> Result<(), KeyError> {
        let checked = self.keys().own.holder.must_be(roles);
        checked.map_err(|why| KeyError(format!("keys in {}: {why}", self.dir.display())))
    }

    /// Checks the other end's certificate again when the files have changed since `known` was read.
    ///
    /// # Errors
    /// It is not good any more: revoked or expired.
    pub fn check_again(
        &self,
        known: &mut Arc<Keys>,
        chain: &[CertificateDer<'_>],
    ) -> Result<(), String> {
        let keys = self.keys();
        if !Arc::ptr_eq(&keys, known) {
            keys.check(chain)?;
            *known = keys;
        }
        Ok(())
    }
}

/// Keys that are good.
pub struct Keys {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    verifier: Arc<dyn ClientCertVerifier>,
    own: Own,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("holder", &self.own.holder).finish_non_exhaustive()
    }
}

/// Complaint about a file of the keys.
fn bad(dir: &Path, name: &str, error: &dyn fmt::Display) -> KeyError {
    let path = dir.join(name);
    let path = path.display();
    KeyError(format!("key file {path}: {error}; `itg-cluster keys` makes new ones"))
}

/// The list of revoked certificates, if there is one.
fn revoked(dir: &Path) -> Result<Option<CertificateRevocationListDer<'static>>, KeyError> {
    if !dir.join(REVOKED).exists() {
        return Ok(None);
    }
    let list = CertificateRevocationListDer::from_pem_slice(&read_key(dir, REVOKED, false)?);
    Ok(Some(list.map_err(|error| bad(dir, REVOKED, &error))?))
}

/// The authority's certificate and its list of revoked ones, as checks of other nodes.
struct Authority {
    servers: Arc<WebPkiServerVerifier>,
    callers: Arc<dyn ClientCertVerifier>,
}

impl Authority {
    /// Reads them. Keys of a single node need the list.
    fn load(dir: &Path, needs_list: bool) -> Result<Self, KeyError> {
        let bad = |name: &str, error: &dyn fmt::Display| bad(dir, name, error);
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(&read_key(dir, CA, false)?)
            .map_err(|error| bad(CA, &error))?;
        roots.add(ca).map_err(|error| bad(CA, &error))?;
        let roots = Arc::new(roots);
        let list = revoked(dir)?;
        if list.is_none() && needs_list {
            let missing = "not there: copy it from the authority, which keeps it beside its ca.pem";
            return Err(bad(REVOKED, &missing));
        }
        let mut servers =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let mut callers = WebPkiClientVerifier::builder_with_provider(roots, provider());
        if let Some(list) = list {
            servers = servers.with_crls([list.clone()]);
            callers = callers.with_crls([list]);
        }
        Ok(Self {
            callers: callers.build().map_err(|error| bad(REVOKED, &error))?,
            servers: servers.build().map_err(|error| bad(REVOKED, &error))?,
        })
    }
}

/// Our own certificate and private key, as the two ends of a connection show them.
#[derive(Clone)]
struct Own {
    chain: Vec<CertificateDer<'static>>,
    key: Arc<SingleCertAndKey>,
    holder: Holder,
    /// A time at which they were good.
    good_at: UnixTime,
}

impl Own {
    /// Reads them. Refuses, as ssh does, a key that others can read.
    fn load(dir: &Path) -> Result<Self, KeyError> {
        let bad = |name: &str, error: &dyn fmt::Display| bad(dir, name, error);
        let private = read_key(dir, KEY, true)?;
        let chain = CertificateDer::pem_slice_iter(&read_key(dir, CERTIFICATE, false)?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| bad(CERTIFICATE, &error))?;
        let own = chain.first().ok_or_else(|| bad(CERTIFICATE, &"it is empty"))?;
        let holder = Holder::of(own);
        let key = PrivateKeyDer::from_pem_slice(&private).map_err(|error| bad(KEY, &error))?;
        let key = CertifiedKey::from_der(chain.clone(), key, &provider())
            .map_err(|error| bad(KEY, &error))?;
        Ok(Self {
            chain,
            key: Arc::new(SingleCertAndKey::from(key)),
            holder,
            good_at: UnixTime::now(),
        })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}

impl Keys {
    /// Reads the keys; refuses those that are not valid now.
    fn load(dir: &Path) -> Result<Self, KeyError> {
        let own = Own::load(dir)?;
        let authority = Authority::load(dir, own.holder.is_named())?;
        let keys = Self::of(own, authority).map_err(|error| bad(dir, KEY, &error))?;
        keys.check(&keys.own.chain).map_err(|why| bad(dir, CERTIFICATE, &why))?;
        Ok(keys)
    }

    /// The same keys of our own with what the authority says now: whom it has revoked counts, whatever is wrong with
    /// our own files.
    fn with_new_authority(&self, dir: &Path) -> Result<Self, KeyError> {
        let authority = Authority::load(dir, self.own.holder.is_named())?;
        let (own, above) =
            self.own.chain.split_first().ok_or_else(|| bad(dir, CERTIFICATE, &"it is empty"))?;
        // A list is checked when it is used: with a certificate that was good and may be on it.
        match authority.callers.verify_client_cert(own, above, self.own.good_at) {
            Ok(_) | Err(rustls::Error::InvalidCertificate(CertificateError::Revoked)) => {}
            Err(error) => return Err(bad(dir, REVOKED, &unusable(&error))),
        }
        Self::of(self.own.clone(), authority).map_err(|error| bad(dir, KEY, &error))
    }

    fn of(own: Own, authority: Authority) -> Result<Self, rustls::Error> {
        let key = || Arc::clone(&own.key);
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_webpki_verifier(authority.servers)
            .with_client_cert_resolver(key());
        let server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(Arc::clone(&authority.callers))
            .with_cert_resolver(key());
        let verifier = authority.callers;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), verifier, own })
    }

    /// Configuration of the end that connects.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// Configuration of the end that listens; it lets nobody in without a certificate of the same authority.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// Our own certificate, and those above it.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.own.chain
    }

    /// Checks a certificate of another node, as of now.
    ///
    /// # Errors
    /// It is not good: of another authority, revoked, expired.
    pub fn check(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (own, above) = chain.split_first().ok_or("there is no certificate")?;
        self.verify(own, above, UnixTime::now()).map_err(|error| unusable(&error))
    }

    /// Checks a certificate, and those above it, as of a time.
    pub(crate) fn verify(
        &self,
        own: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        at: UnixTime,
    ) -> Result<(), rustls::Error> {
        self.verifier.verify_client_cert(own, above, at).map(drop)
    }
}
