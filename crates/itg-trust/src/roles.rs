//! Roles of the nodes of a cluster: who may ask whom for what.
//!
//! A certificate names its roles and its node among its host names (`agent.itg-cluster`, `h3.node.itg-cluster`), which
//! every library of TLS reads. A certificate that all nodes share names none: its holders have all roles.

use std::fmt;

use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};
use webpki::EndEntityCert;

/// The name that every certificate of every cluster is made out to.
pub const NAME: &str = "itg-cluster";
const NODES: &str = "node";
/// Longest name of a node.
const MOST_NAME: usize = 40;

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves experiments: is called, takes part in runs that a console began, and sends logs.
    Agent,
    /// Begins experiments, commands them, sends logs, and all that a reader does.
    Console,
    /// Looks at status and logs.
    Reader,
    /// Keeps the logs that nodes send it.
    Log,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Console, Self::Reader, Self::Log];

    /// Its name, in options and certificates.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Console => "console",
            Self::Reader => "reader",
            Self::Log => "log",
        }
    }

    /// Its meaning, in words for users.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Agent => {
                "Serves experiments: is called, takes part in runs that a console began, and sends logs"
            }
            Self::Console => {
                "Begins experiments, commands them, sends logs, and all that a reader does"
            }
            Self::Reader => "Looks at status and logs",
            Self::Log => "Keeps the logs that nodes send it (itg-log --keys)",
        }
    }

    /// The host name by which a certificate has this role.
    #[must_use]
    pub fn host_name(self) -> String {
        format!("{}.{NAME}", self.name())
    }
}

/// Returns true if a node's name is not empty and has only letters, digits, `-` and `_`.
#[must_use]
pub fn plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Returns true if a node may have this name: it is a label of a host name, and a directory.
#[must_use]
pub fn node_label(name: &str) -> bool {
    name.len() <= MOST_NAME && plain(name)
}

/// The host name by which a certificate has a node.
#[must_use]
pub fn node_name(node: &str) -> String {
    format!("{node}.{NODES}.{NAME}")
}

/// Holder of a certificate, as that says; the certificate has been verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    node: Option<String>,
    roles: Vec<Role>,
}

impl Holder {
    /// Reads the names of a certificate; one that cannot be read has no role.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let Ok(read) = EndEntityCert::try_from(certificate) else { return Self::default() };
        let names: Vec<&str> = read.valid_dns_names().collect();
        let node = names.iter().find_map(|name| {
            name.strip_suffix(NAME)?.strip_suffix('.')?.strip_suffix(NODES)?.strip_suffix('.')
        });
        let named = |role: &Role| names.contains(&role.host_name().as_str());
        let roles: Vec<Role> = match node {
            Some(_) => Role::ALL.into_iter().filter(named).collect(),
            None => Role::ALL.to_vec(),
        };
        Self { node: node.map(str::to_owned), roles }
    }

    /// The holder of the other end of a connection, by the certificates that it has shown.
    #[must_use]
    pub fn of_chain(chain: Option<&[CertificateDer<'_>]>) -> Self {
        chain.and_then(<[_]>::first).map(Self::of).unwrap_or_default()
    }

    /// True if the certificate is that of one node, from an authority.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        self.node.is_some()
    }

    /// Checks that the holder has one of these roles.
    ///
    /// # Errors
    /// It has none of them.
    pub fn must_be(&self, roles: &[Role]) -> Result<(), String> {
        if self.roles.iter().any(|role| roles.contains(role)) {
            return Ok(());
        }
        let wanted: Vec<&str> = roles.iter().map(|role| role.name()).collect();
        let wanted = wanted.join(" or ");
        let option = roles.first().map_or("agent", |role| role.name());
        Err(format!(
            "{self} is no {wanted} (`itg-cluster keys add NODE --role {option}` makes keys of one)"
        ))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roles: Vec<&str> = self.roles.iter().map(|role| role.name()).collect();
        let roles = if roles.is_empty() { "no role".to_owned() } else { roles.join(", ") };
        match &self.node {
            Some(node) => write!(f, "node `{node}` ({roles})"),
            None => write!(f, "a node of the cluster ({roles})"),
        }
    }
}
