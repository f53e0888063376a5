//! Identity of this host: name, system, boot.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nameindex;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::SockaddrStorage;
use rand::TryRng;
use rand::rngs::SysRng;

use crate::xdp::netlink::Netlink;

/// Name of this host.
#[must_use]
pub fn name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Operating system and kernel release.
#[must_use]
pub fn os() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| "unknown".to_owned(),
        |u| {
            let word = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            format!("{} {} {}", word(u.sysname()), word(u.release()), word(u.machine()))
        },
    )
}

/// Number and model of the processors that this process may use.
#[must_use]
pub fn processors() -> String {
    let number = std::thread::available_parallelism();
    let number = number.map_or_else(|_| "unknown".to_owned(), |number| number.to_string());
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == "model name").then(|| value.trim())
    });
    format!("{number} x {}", model.unwrap_or("unknown"))
}

/// Frequency governors of the processors, each once; `none` where their frequency is not the kernel's to choose.
#[must_use]
pub fn governors() -> String {
    let processors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    let governors = processors.filter_map(|entry| {
        let file = entry.path().join("cpufreq/scaling_governor");
        fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
    });
    let all: BTreeSet<String> = governors.collect();
    if all.is_empty() { "none".to_owned() } else { Vec::from_iter(all).join(" ") }
}

/// Queueing discipline of each device of this host, as `lo noqueue, eth0 fq`, in the order of the devices.
#[must_use]
pub fn queueing_disciplines() -> String {
    let (Ok(devices), Ok(netlink)) = (if_nameindex(), Netlink::open()) else {
        return "unknown".to_owned();
    };
    let all = devices.iter().map(|device| {
        let found = netlink.discipline(device.index());
        let kind = match &found {
            Ok(Some(found)) => &found.kind,
            Ok(None) => "none",
            Err(_) => "unknown",
        };
        format!("{} {kind}", device.name().to_string_lossy())
    });
    all.collect::<Vec<_>>().join(", ")
}

/// Returns true if packets to this address reach this host: one of its interfaces has it, or it is a loopback
/// address.
#[must_use]
pub fn has_address(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_loopback()
        || ip.is_unspecified()
        || interface_addresses().iter().any(|(_, address)| *address == ip)
}

/// Addresses of the interfaces of this host, each with the name of its interface, in the order of the system.
#[must_use]
pub fn interface_addresses() -> Vec<(String, IpAddr)> {
    let of = |address: &SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    };
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|found| Some((found.interface_name, found.address.as_ref().and_then(of)?)))
        .collect()
}

/// Lets this process open as many files as it may without asking: each flow has a socket of its own.
pub fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

/// Identifier of this boot of this kernel: two programs that see the same one share their clocks.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Identifier of the network of this process: two programs on one kernel that see the same one reach each other over
/// loopback. Containers on one machine have different ones.
#[must_use]
pub fn network_id() -> String {
    fs::read_link("/proc/self/ns/net")
        .map_or_else(|_| String::new(), |link| link.display().to_string())
}

/// A number that cannot be guessed: for run ids, seeds that were not given, and handles.
///
/// # Panics
/// When the system has no source of randomness.
#[must_use]
pub fn random_u64() -> u64 {
    SysRng.try_next_u64().expect("the system has a source of randomness")
}
