//! Network namespaces for measurements, two with a virtual link between them, several with a switch, or one with
//! its loopback interface; needs root and `ip`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::programs::Location;

/// The receiver's address.
pub(crate) const RECEIVER: &str = "10.78.0.2";

/// One namespace, or two and the link between them; deleted when dropped.
#[derive(Debug)]
pub(crate) struct Link {
    names: Vec<String>,
}

fn ip(words: &str) -> Result<()> {
    let done = Command::new("ip").args(words.split_whitespace()).output();
    let done = done.context("running ip (package iproute2)")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "`ip {words}`: {}", said.trim());
    Ok(())
}

impl Link {
    /// Makes two with an MTU of 1500 between them, whose neighbours are known: a program that takes every frame
    /// answers no question for them.
    pub(crate) fn new() -> Result<Self> {
        let link = Self::namespaces(&["a", "b"])?;
        let [a, b] = [&link.names[0], &link.names[1]];
        let mac = |number: i32| format!("02:00:00:4e:00:0{number}");
        ip(&format!(
            "-n {a} link add link0 mtu 1500 address {} type veth peer name link0 mtu 1500 address {} netns {b}",
            mac(1),
            mac(2)
        ))?;
        for (name, number) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} address add 10.78.0.{number}/24 dev link0"))?;
            ip(&format!("-n {name} link set link0 up"))?;
        }
        for (name, other) in [(a, 2), (b, 1)] {
            let neighbour = format!("10.78.0.{other} lladdr {}", mac(other));
            ip(&format!("-n {name} neighbour replace {neighbour} dev link0 nud permanent"))?;
        }
        Ok(link)
    }

    /// Makes one, whose loopback interface no other program uses.
    pub(crate) fn loopback() -> Result<Self> {
        let link = Self::namespaces(&["lo"])?;
        ip(&format!("-n {} link set lo up", link.names[0]))?;
        Ok(link)
    }

    /// Makes so many hosts that are joined by a switch: the first place is in the switch itself, with the
    /// address 10.79.0.254, host *k* from 1 on has 10.79.0.*k*.
    pub(crate) fn switch(hosts: usize) -> Result<Self> {
        let ends: Vec<String> = (0..=hosts).map(|host| host.to_string()).collect();
        let link = Self::namespaces(&ends.iter().map(String::as_str).collect::<Vec<_>>())?;
        let Some((middle, hosts)) = link.names.split_first() else { return Ok(link) };
        ip(&format!("-n {middle} link set lo up"))?;
        ip(&format!("-n {middle} link add switch0 type bridge"))?;
        ip(&format!("-n {middle} address add 10.79.0.254/24 dev switch0"))?;
        ip(&format!("-n {middle} link set switch0 up"))?;
        for (host, number) in hosts.iter().zip(1..) {
            ip(&format!("-n {host} link set lo up"))?;
            ip(&format!(
                "-n {host} link add link0 type veth peer name port{number} netns {middle}"
            ))?;
            ip(&format!("-n {host} address add 10.79.0.{number}/24 dev link0"))?;
            ip(&format!("-n {host} link set link0 up"))?;
            ip(&format!("-n {middle} link set port{number} master switch0 up"))?;
        }
        Ok(link)
    }

    /// All places, in their order.
    pub(crate) fn all(&self) -> Vec<Location> {
        self.names.iter().cloned().map(Location::Namespace).collect()
    }

    fn namespaces(ends: &[&str]) -> Result<Self> {
        ensure!(nix::unistd::geteuid().is_root(), "only root may make network namespaces");
        let mut link = Self { names: Vec::new() };
        for end in ends {
            let name = format!("itg-bench-{}-{end}", std::process::id());
            ip(&format!("netns add {name}"))?;
            link.names.push(name);
        }
        Ok(link)
    }

    /// The sender's place and the receiver's.
    pub(crate) fn places(&self) -> (Location, Location) {
        let place = |index: usize| Location::Namespace(self.names[index].clone());
        (place(0), place(self.names.len() - 1))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&format!("netns delete {name}")) {
                itg_cli::say(format_args!("itg-bench: {error:#}"));
            }
        }
    }
}
