//! `itg-cluster keys`: one certificate that all nodes share, or an authority that gives each node its own.
//!
//! An authority is a directory that stays on one host: `ca.pem`, `ca.key`, the record of what it has issued
//! (`issued.toml`), the list of what it has revoked (`revoked.pem`), and for each node a directory to copy to it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use itg_cli::{refuse, say};
use itg_socket::host::random_u64;
use itg_trust::{CA, CERTIFICATE, KEY, NAME, REVOKED, Role, node_label, node_name, read_key};
use jiff::civil::Date;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SerialNumber,
};
use serde::{Deserialize, Serialize};

const CA_KEY: &str = "ca.key";
const ISSUED: &str = "issued.toml";
/// Mode of files that only their owner reads.
const SECRET: u32 = 0o600;
/// Mode of files that everybody may read.
const OPEN: u32 = 0o644;

/// Arguments of `keys`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct KeysArgs {
    #[command(subcommand)]
    action: Option<Action>,
    /// New directory for one certificate that all nodes share; copy it to every node, readable by the agents alone
    #[arg(required = true)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    days: Days,
}

impl KeysArgs {
    /// Keys for a cluster whose nodes share one certificate.
    #[must_use]
    pub fn shared(dir: PathBuf, days: u32) -> Self {
        Self { action: None, dir: Some(dir), days: Days { days } }
    }
}

/// Time for which keys are good.
#[derive(Debug, Args)]
struct Days {
    /// Days until the keys expire
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(0..=36_500))]
    days: u32,
}

/// Directory of an authority.
#[derive(Debug, Args)]
struct Authority {
    /// Directory of the authority; keep it on one host, off the network
    #[arg(long = "authority", value_name = "DIR", default_value = "itg-authority")]
    dir: PathBuf,
}

/// Action of an authority.
#[derive(Debug, Subcommand)]
enum Action {
    /// Make an authority, which gives each node keys of its own
    Init {
        #[command(flatten)]
        authority: Authority,
        /// Days until the authority expires, and all its keys with it
        #[arg(long, value_name = "N", default_value_t = 3650, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make the keys of a node: a directory below that of the authority, to copy there
    Add {
        /// Name of the node: letters, digits, `-` and `_`
        node: String,
        /// Role of the node; several are given one by one
        #[arg(long, value_parser = role_parser(), default_value = "agent")]
        role: Vec<Role>,
        #[command(flatten)]
        days: Days,
        #[command(flatten)]
        authority: Authority,
    },
    /// Make new keys for a node; its earlier ones are good until they expire
    Renew {
        /// Name of the node
        node: String,
        #[command(flatten)]
        days: Days,
        #[command(flatten)]
        authority: Authority,
    },
    /// Revoke all keys that a node has
    Revoke {
        /// Name of the node
        node: String,
        #[command(flatten)]
        authority: Authority,
    },
}

/// Reads the name of a role, and shows all of them in the help.
fn role_parser() -> impl TypedValueParser<Value = Role> {
    let names = Role::ALL.map(|role| PossibleValue::new(role.name()).help(role.meaning()));
    PossibleValuesParser::new(names).map(|name| {
        let named = Role::ALL.into_iter().find(|role| role.name() == name);
        named.expect("a possible value")
    })
}

/// Makes, renews or revokes keys.
///
/// # Errors
/// There are keys already, or none, or the directory cannot be written.
pub fn keys(args: &KeysArgs) -> Result<ExitCode> {
    match (&args.action, &args.dir) {
        (Some(Action::Init { authority, days }), _) => init(&authority.dir, *days)?,
        (Some(Action::Add { node, role, days, authority }), _) => {
            let added = Record::load(&authority.dir)?;
            if !node_label(node) {
                return Err(refuse(format!(
                    "node `{node}`: use letters, digits, `-` and `_`, 40 at most"
                )));
            }
            if added.good(node).next().is_some() {
                return Err(refuse(format!(
                    "node `{node}` has keys already: `itg-cluster keys renew {node}` makes new ones, `revoke` ends them"
                )));
            }
            issue(added, node, role.clone(), days.days)?;
        }
        (Some(Action::Renew { node, days, authority }), _) => {
            let record = Record::load(&authority.dir)?;
            let roles = record.good(node).last().ok_or_else(|| record.unknown(node))?.roles.clone();
            issue(record, node, roles, days.days)?;
        }
        (Some(Action::Revoke { node, authority }), _) => revoke(&authority.dir, node)?,
        (None, Some(dir)) => shared(dir, args.days.days)?,
        (None, None) => return Err(refuse("name a directory for the keys")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a directory for keys, where none are yet.
fn fresh(dir: &Path, key: &str) -> Result<()> {
    let name = dir.display();
    if dir.join(key).exists() {
        return Err(refuse(format!("directory {name} holds keys already: choose another one")));
    }
    fs::create_dir_all(dir).map_err(|error| refuse(format!("directory {name}: {error}")))
}

fn shared(dir: &Path, days: u32) -> Result<()> {
    fresh(dir, KEY)?;
    let name = dir.display();
    make_shared(dir, days).with_context(|| format!("keys in {name}"))?;
    say(format_args!(
        "keys of a new cluster are in {name}, for {days} days: copy the directory to every node and keep it secret"
    ));
    Ok(())
}

/// A date as the certificates have it.
macro_rules! rcgen_date {
    ($date:expr) => {{
        let date: Date = $date;
        rcgen::date_time_ymd(
            date.year().into(),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    }};
}

fn today() -> Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}

fn after(days: u32) -> Result<Date> {
    Ok(today().checked_add(jiff::Span::new().try_days(days)?)?)
}

/// The parameters of an authority; its name and uses are the same in all clusters.
fn authority_until(until: Date) -> Result<CertificateParams> {
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.distinguished_name.push(DnType::CommonName, "ITG cluster");
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut ca, until)?;
    Ok(ca)
}

/// A certificate is good from yesterday on: clocks differ.
fn limit(params: &mut CertificateParams, until: Date) -> Result<()> {
    params.not_before = rcgen_date!(today().yesterday()?);
    params.not_after = rcgen_date!(until);
    Ok(())
}

/// The parameters of a node's certificate, with these names.
fn node_until(common_name: &str, names: Vec<String>, until: Date) -> Result<CertificateParams> {
    let mut node = CertificateParams::new(names)?;
    node.distinguished_name.push(DnType::CommonName, common_name);
    node.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    node.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    limit(&mut node, until)?;
    Ok(node)
}

/// Writes the keys of a new cluster whose nodes share one certificate.
fn make_shared(dir: &Path, days: u32) -> Result<()> {
    let until = after(days)?;
    let ca = authority_until(until)?;
    let ca_key = KeyPair::generate()?;
    let ca_certificate = ca.self_signed(&ca_key)?;
    // Its private key is forgotten: no certificate can be added to this cluster; new keys are a new one.
    let issuer = Issuer::new(ca, ca_key);
    let node_key = KeyPair::generate()?;
    let certificate =
        node_until(NAME, vec![NAME.to_owned()], until)?.signed_by(&node_key, &issuer)?;
    replace(&dir.join(CA), &ca_certificate.pem(), OPEN)?;
    replace(&dir.join(CERTIFICATE), &certificate.pem(), OPEN)?;
    replace(&dir.join(KEY), &node_key.serialize_pem(), SECRET)
}

fn init(dir: &Path, days: u32) -> Result<()> {
    fresh(dir, CA_KEY)?;
    let until = after(days)?;
    let ca_key = KeyPair::generate()?;
    let ca_certificate = authority_until(until)?.self_signed(&ca_key)?;
    replace(&dir.join(CA), &ca_certificate.pem(), OPEN)?;
    replace(&dir.join(CA_KEY), &ca_key.serialize_pem(), SECRET)?;
    let issued = Issued { until: until.to_string(), ..Issued::default() };
    Record { dir: dir.to_owned(), issued }.save()?;
    let name = dir.display();
    say(format_args!(
        "an authority is in {name}, for {days} days: keep it on this host; `itg-cluster keys add NODE` makes keys"
    ));
    Ok(())
}

/// Record of an authority.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Issued {
    /// Date on which the authority expires.
    until: String,
    /// Number of the last list of revoked certificates.
    lists: u64,
    #[serde(default)]
    certificate: Vec<Given>,
}

/// A certificate that was given to a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    node: String,
    roles: Vec<Role>,
    /// Its number, in hexadecimal digits.
    serial: String,
    /// Date on which it expires.
    until: String,
    /// Date on which it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
}

/// An authority and its record.
struct Record {
    dir: PathBuf,
    issued: Issued,
}

impl Record {
    fn load(dir: &Path) -> Result<Self> {
        let path = dir.join(ISSUED);
        let name = path.display();
        let text = fs::read_to_string(&path).map_err(|error| {
            refuse(format!("{name}: {error}; `itg-cluster keys init` makes an authority"))
        })?;
        let issued = toml::from_str(&text).map_err(|error| refuse(format!("{name}: {error}")))?;
        Ok(Self { dir: dir.to_owned(), issued })
    }

    /// Writes the record, then the list that follows from it.
    fn save(&mut self) -> Result<()> {
        self.issued.lists += 1;
        let text = toml::to_string(&self.issued)?;
        replace(&self.dir.join(ISSUED), &text, OPEN)?;
        let revoked = self.issued.certificate.iter().filter_map(|given| {
            let on: Date = given.revoked.as_ref()?.parse().ok()?;
            Some(RevokedCertParams {
                serial_number: serial_number(&given.serial)?,
                revocation_time: rcgen_date!(on),
                reason_code: None,
                invalidity_date: None,
            })
        });
        let list = CertificateRevocationListParams {
            this_update: rcgen_date!(today()),
            // There is no other list to wait for: the last one is good.
            next_update: rcgen::date_time_ymd(9999, 12, 31),
            crl_number: SerialNumber::from(self.issued.lists),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        replace(&self.dir.join(REVOKED), &list.signed_by(&self.issuer()?)?.pem()?, OPEN)
    }

    fn until(&self) -> Result<Date> {
        self.issued.until.parse().with_context(|| format!("{ISSUED}: until"))
    }

    fn issuer(&self) -> Result<Issuer<'static, KeyPair>> {
        let pem = String::from_utf8(read_key(&self.dir, CA_KEY, true).map_err(refuse)?)?;
        Ok(Issuer::new(authority_until(self.until()?)?, KeyPair::from_pem(&pem)?))
    }

    /// Certificates of a node that are not revoked.
    fn good(&self, node: &str) -> impl Iterator<Item = &Given> {
        self.issued
            .certificate
            .iter()
            .filter(move |given| given.node == node && given.revoked.is_none())
    }

    fn unknown(&self, node: &str) -> anyhow::Error {
        let known = self.issued.certificate.iter().map(|given| given.node.as_str());
        let hint = itg_process::suggestion(node, known);
        refuse(format!("node `{node}` has no keys of this authority that are good: {hint}"))
    }
}

/// The number of a certificate, from its hexadecimal digits.
fn serial_number(digits: &str) -> Option<SerialNumber> {
    u128::from_str_radix(digits, 16).ok().map(|n| SerialNumber::from(n.to_be_bytes().to_vec()))
}

/// Makes keys for a node.
fn issue(mut record: Record, node: &str, roles: Vec<Role>, days: u32) -> Result<()> {
    let until = after(days)?.min(record.until()?);
    // Positive and without a leading zero, as RFC 5280 wants it.
    let number = u128::from(random_u64()) << 64 | u128::from(random_u64());
    let serial = format!("{:032x}", number >> 2 | 1 << 126);
    let names = roles.iter().map(|role| role.host_name()).chain([node_name(node)]);
    let mut params = node_until(node, [NAME.to_owned()].into_iter().chain(names).collect(), until)?;
    params.serial_number = serial_number(&serial);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &record.issuer()?)?;
    let given =
        Given { node: node.to_owned(), roles, serial, until: until.to_string(), revoked: None };
    // What is not in the record could not be revoked.
    record.issued.certificate.push(given);
    record.save()?;
    let dir = record.dir.join(node);
    fs::create_dir_all(&dir).with_context(|| format!("directory {}", dir.display()))?;
    for name in [CA, REVOKED] {
        replace(&dir.join(name), &fs::read_to_string(record.dir.join(name))?, OPEN)?;
    }
    replace(&dir.join(CERTIFICATE), &certificate.pem(), OPEN)?;
    replace(&dir.join(KEY), &key.serialize_pem(), SECRET)?;
    say(format_args!(
        "keys of node `{node}` are in {}, until {until}: copy the directory there and keep it secret",
        dir.display()
    ));
    Ok(())
}

fn revoke(dir: &Path, node: &str) -> Result<()> {
    let mut record = Record::load(dir)?;
    if record.good(node).next().is_none() {
        return Err(record.unknown(node));
    }
    let on = today().to_string();
    for given in record.issued.certificate.iter_mut().filter(|given| given.node == node) {
        given.revoked.get_or_insert_with(|| on.clone());
    }
    record.save()?;
    let list = fs::read_to_string(dir.join(REVOKED))?;
    for given in &record.issued.certificate {
        let there = dir.join(&given.node);
        if there.is_dir() {
            replace(&there.join(REVOKED), &list, OPEN)?;
        }
    }
    say(format_args!(
        "keys of node `{node}` are revoked: copy {} into the directory of keys of every other node; programs that run \
         take it without a restart",
        dir.join(REVOKED).display()
    ));
    Ok(())
}

/// Writes a file that is whole at every instant.
fn replace(path: &Path, text: &str, mode: u32) -> Result<()> {
    let fresh = path.with_extension("new");
    let context = || format!("cannot write {}", path.display());
    drop(fs::remove_file(&fresh));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&fresh)
        .with_context(context)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(context)?;
    fs::rename(&fresh, path).with_context(context)
}
