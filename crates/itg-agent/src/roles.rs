//! Roles of the nodes of a cluster: who may ask an agent for what.
//!
//! A certificate names its roles and its node among its host names (`agent.itg-cluster`, `h3.node.itg-cluster`), which
//! every library of TLS reads. A certificate that all nodes share names none: its holders have all roles.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::wire::{Call, Join};

/// The name that every certificate of every cluster is made out to.
pub(crate) const NAME: &str = "itg-cluster";
const NODES: &str = "node";
/// Longest name of a node.
const MOST_NAME: usize = 40;

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Serves experiments: is called, and takes part in runs that a console began
    Agent,
    /// Begins experiments, commands them, and all that a reader does
    Console,
    /// Looks at status and logs
    Reader,
}

impl Role {
    const ALL: [Self; 3] = [Self::Agent, Self::Console, Self::Reader];

    fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Console => "console",
            Self::Reader => "reader",
        }
    }

    /// The host name by which a certificate has this role.
    pub(crate) fn host_name(self) -> String {
        format!("{}.{NAME}", self.name())
    }
}

/// Returns true if a node's name is not empty and has only letters, digits, `-` and `_`.
pub(crate) fn plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// Returns true if a node may have this name: it is a label of a host name, and a directory.
pub(crate) fn node_label(name: &str) -> bool {
    name.len() <= MOST_NAME && plain(name)
}

/// The host name by which a certificate has a node.
pub(crate) fn node_name(node: &str) -> String {
    format!("{node}.{NODES}.{NAME}")
}

/// Holder of a certificate, as that says; the certificate has been verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holder {
    node: Option<String>,
    roles: Vec<Role>,
}

impl Holder {
    /// Reads the names of a certificate; one that cannot be read has no role.
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
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

    /// True if the certificate is that of one node, from an authority.
    pub(crate) fn is_named(&self) -> bool {
        self.node.is_some()
    }

    /// Checks that the holder has one of these roles.
    ///
    /// # Errors
    /// It has none of them.
    pub(crate) fn must_be(&self, roles: &[Role]) -> Result<(), String> {
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

    /// Checks that the holder may ask for this.
    ///
    /// # Errors
    /// None of its roles allows it.
    pub(crate) fn may(&self, call: &Call) -> Result<(), String> {
        match call {
            Call::Clock => Ok(()),
            Call::Join(join) if from_console(join) => self.must_be(&[Role::Console]),
            Call::Join(_) => self.must_be(&[Role::Agent]),
            Call::Status | Call::List(_) | Call::Fetch { .. } => {
                self.must_be(&[Role::Reader, Role::Console])
            }
            Call::Forget(_) | Call::Command(_) | Call::Rate { .. } => {
                self.must_be(&[Role::Console])
            }
        }
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

/// True if the caller says that it is the console of the run, its last member.
fn from_console(join: &Join) -> bool {
    join.from as usize + 1 >= join.addresses.len()
}
