//! Knowledge of the kernel about a way: the device that leads to an address, and the Ethernet address
//! of the next hop. Asked over rtnetlink (rtnetlink(7)), one question, one answer.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small constants of C headers"
)]

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{
    DefaultNla, Emitable, ErrorBuffer, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NlasIterator,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::frame::Mac;

/// Bytes before the attributes: `rtmsg`, `ndmsg`, `ifinfomsg`, `tcmsg` (linux/rtnetlink.h, linux/neighbour.h).
const ROUTE_BODY: usize = 12;
const NEIGHBOUR_BODY: usize = 12;
const LINK_BODY: usize = 16;
const DISCIPLINE_BODY: usize = 20;
/// Counts of a queue among the statistics of a discipline (linux/gen_stats.h).
const TCA_STATS_QUEUE: u16 = 3;
/// Attributes that libc does not name (linux/rtnetlink.h, linux/veth.h, linux/pkt_sched.h).
const RTA_VIA: u16 = 18;
const RTA_ENCAP: u16 = 22;
const VETH_INFO_PEER: u16 = 1;
const TCA_ETF_PARMS: u16 = 1;
/// States of a neighbour whose address may be used.
const NUD_VALID: u16 = libc::NUD_REACHABLE
    | libc::NUD_STALE
    | libc::NUD_DELAY
    | libc::NUD_PROBE
    | libc::NUD_NOARP
    | libc::NUD_PERMANENT;
/// Longest wait for the answer of a neighbour: 3 s, as long as the kernel asks.
const NEIGHBOUR_WAIT: Duration = Duration::from_secs(3);
const NEIGHBOUR_LOOK: Duration = Duration::from_millis(10);

/// A device and the next hop behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) device: u32,
    pub(super) next_hop: IpAddr,
}

/// An Ethernet device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) mac: Mac,
    pub(super) mtu: usize,
    pub(super) up: bool,
}

/// A question and its answer's shape.
struct Question {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Question {
    fn new(kind: u16, body: &[u8]) -> Self {
        Self { kind, flags: libc::NLM_F_REQUEST as u16, body: body.to_vec() }
    }

    /// With an acknowledgement as its answer.
    fn change(kind: u16, flags: i32, body: &[u8]) -> Self {
        let mut change = Self::new(kind, body);
        change.flags |= (libc::NLM_F_ACK | flags) as u16;
        change
    }

    fn with(mut self, attribute: u16, value: &[u8]) -> Self {
        self.body.extend(packed(attribute, value));
        self
    }

    /// Asks; the answer behind its netlink header, empty for a mere acknowledgement.
    fn ask(self, socket: &Socket) -> io::Result<Vec<u8>> {
        // One question at a time needs no sequence number.
        let mut header = NetlinkHeader::default();
        header.length =
            u32::try_from(header.buffer_len() + self.body.len()).expect("a short question");
        header.message_type = self.kind;
        header.flags = self.flags;
        let mut message = emitted(&header);
        message.extend(&self.body);
        socket.send(&message)?;
        let short = |_| io::Error::new(io::ErrorKind::InvalidData, "a short answer of the kernel");
        let acknowledged = i32::from(self.flags) & libc::NLM_F_ACK != 0;
        let (mut answer, mut found) = (vec![0; 1 << 16], Vec::new());
        loop {
            let flags = nix::sys::socket::MsgFlags::empty();
            let got = nix::sys::socket::recv(socket.as_raw_fd(), &mut answer, flags)?;
            let answer = NetlinkBuffer::new_checked(&answer[..got]).map_err(short)?;
            if answer.message_type() != NLMSG_ERROR {
                found = answer.payload().to_vec();
                if acknowledged {
                    // The acknowledgement is not to be the answer to the next question.
                    continue;
                }
                return Ok(found);
            }
            return match ErrorBuffer::new_checked(answer.payload()).map_err(short)?.code() {
                None => Ok(found),
                Some(error) => Err(io::Error::from_raw_os_error(-error.get())),
            };
        }
    }
}

fn emitted(part: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; part.buffer_len()];
    part.emit(&mut bytes);
    bytes
}

/// An attribute as it is sent.
fn packed(attribute: u16, value: &[u8]) -> Vec<u8> {
    emitted(&DefaultNla::new(attribute, value.to_vec()))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// An attribute of an answer whose body has `skip` bytes before the first one.
fn attribute(answer: &[u8], skip: usize, wanted: u16) -> Option<Vec<u8>> {
    let mut attributes = NlasIterator::new(answer.get(skip..)?).map_while(Result::ok);
    attributes.find(|found| found.kind() == wanted).map(|found| found.value().to_vec())
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|four| IpAddr::from(*four)),
        16 => bytes.first_chunk::<16>().map(|all| IpAddr::from(*all)),
        _ => None,
    }
}

fn family(ip: IpAddr) -> u8 {
    // AF_INET and AF_INET6 are 2 and 10.
    (if ip.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

/// A connection to the kernel's routing.
#[derive(Debug)]
pub struct Netlink(Socket);

/// A queueing discipline.
#[derive(Debug)]
pub struct Discipline {
    /// Its name.
    pub kind: String,
    /// Time by which it lets packets go before the times that it keeps for them, in nanoseconds.
    pub early_ns: u64,
}

impl Netlink {
    /// Opens a connection to the kernel's tables.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn open() -> io::Result<Self> {
        let protocol = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(protocol))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        Ok(Self(socket))
    }

    /// Asks the kernel for a route.
    fn route_to(&self, from: IpAddr, to: IpAddr, device: Option<u32>) -> Result<Vec<u8>, String> {
        let bits = if to.is_ipv4() { 32 } else { 128 };
        let body = [family(to), bits, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut question = Question::new(libc::RTM_GETROUTE, &body)
            .with(libc::RTA_DST, &octets(to))
            .with(libc::RTA_SRC, &octets(from));
        if let Some(device) = device {
            question = question.with(libc::RTA_OIF, &device.to_ne_bytes());
        }
        question.ask(&self.0).map_err(|error| format!("no route to {to}: {error}"))
    }

    /// The way from an address of this host to another one, through a certain device where one is given;
    /// `Err` with words when it does not lead through a device to another host.
    pub(super) fn route(
        &self,
        from: IpAddr,
        to: IpAddr,
        device: Option<u32>,
    ) -> Result<Route, String> {
        let answer = self.route_to(from, to, device)?;
        let kind = answer.get(7).copied().unwrap_or(0);
        if kind == libc::RTN_LOCAL {
            return Err(format!("{to} is this host itself: packets to it pass no Ethernet device"));
        }
        if kind != libc::RTN_UNICAST {
            return Err(format!("the route to {to} is not that of one other host"));
        }
        if attribute(&answer, ROUTE_BODY, RTA_ENCAP).is_some() {
            return Err(format!("the route to {to} wraps packets, which this engine does not"));
        }
        let device =
            attribute(&answer, ROUTE_BODY, libc::RTA_OIF).and_then(|value| u32_at(&value, 0));
        let gateway =
            attribute(&answer, ROUTE_BODY, libc::RTA_GATEWAY).and_then(|value| address(&value));
        // A gateway of the other IP version has its family in front.
        let via = || attribute(&answer, ROUTE_BODY, RTA_VIA).and_then(|v| address(v.get(2..)?));
        let device = device.ok_or_else(|| format!("the route to {to} leads through no device"))?;
        Ok(Route { device, next_hop: gateway.or_else(via).unwrap_or(to) })
    }

    /// The device through which packets from an address of this host to another one leave; that of one's own
    /// addresses is the loopback device.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn way_out(&self, from: IpAddr, to: IpAddr, device: Option<u32>) -> Result<u32, String> {
        let answer = self.route_to(from, to, device)?;
        let device =
            attribute(&answer, ROUTE_BODY, libc::RTA_OIF).and_then(|value| u32_at(&value, 0));
        device.ok_or_else(|| format!("the route to {to} leads through no device"))
    }

    /// The queueing discipline of a device, the outermost one; `None` when it has none that has a name.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn discipline(&self, device: u32) -> io::Result<Option<Discipline>> {
        let question =
            Question::change(libc::RTM_GETQDISC, libc::NLM_F_ECHO, &discipline_body(device));
        let answer = question.ask(&self.0)?;
        let kind = attribute(&answer, DISCIPLINE_BODY, libc::TCA_KIND).unwrap_or_default();
        let kind = String::from_utf8_lossy(&kind).trim_end_matches('\0').to_owned();
        let early_ns = match kind.as_str() {
            "etf" => etf_delta(&answer).unwrap_or(0),
            _ => 0,
        };
        Ok((!kind.is_empty()).then_some(Discipline { kind, early_ns }))
    }

    /// Packets that the queueing disciplines of a device have dropped since they were made, modulo 2^32; 0 without any.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn dropped(&self, device: u32) -> io::Result<u32> {
        let question =
            Question::change(libc::RTM_GETQDISC, libc::NLM_F_ECHO, &discipline_body(device));
        let answer = question.ask(&self.0)?;
        // The third number of `struct gnet_stats_queue`: a discipline counts what those below it drop.
        let counts = attribute(&answer, DISCIPLINE_BODY, libc::TCA_STATS2)
            .and_then(|stats| attribute(&stats, 0, TCA_STATS_QUEUE));
        Ok(counts.and_then(|counts| u32_at(&counts, 8)).unwrap_or(0))
    }

    /// Gives a device another queueing discipline, with its usual parameters.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn set_discipline(&self, device: u32, kind: &str) -> io::Result<()> {
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        Question::change(libc::RTM_NEWQDISC, flags, &discipline_body(device))
            .with(libc::TCA_KIND, &[kind.as_bytes(), &[0]].concat())
            .ask(&self.0)
            .map(drop)
    }

    /// A device; `Err` with words when it is not an Ethernet one.
    pub(super) fn link(&self, device: u32) -> Result<Link, String> {
        let mut body = [0; LINK_BODY];
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        let answer = Question::new(libc::RTM_GETLINK, &body)
            .ask(&self.0)
            .map_err(|error| format!("device {device}: {error}"))?;
        let name = attribute(&answer, LINK_BODY, libc::IFLA_IFNAME).unwrap_or_default();
        let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        let mac = attribute(&answer, LINK_BODY, libc::IFLA_ADDRESS).and_then(|v| v.try_into().ok());
        let flags = u32_at(&answer, 8).unwrap_or(0).cast_signed();
        let ether =
            u16_at(&answer, 2) == Some(libc::ARPHRD_ETHER) && flags & libc::IFF_LOOPBACK == 0;
        let (true, Some(mac)) = (ether, mac) else {
            return Err(format!("{name} is not an Ethernet device"));
        };
        let mtu = attribute(&answer, LINK_BODY, libc::IFLA_MTU).and_then(|value| u32_at(&value, 0));
        let up = flags & libc::IFF_UP != 0;
        Ok(Link { name, mac, mtu: mtu.unwrap_or(1500) as usize, up })
    }

    /// The Ethernet address of a neighbour; has the kernel ask for it when it is not known.
    pub(super) fn neighbour(&self, device: u32, ip: IpAddr) -> Result<Mac, String> {
        if let Some(mac) = self.known(device, ip) {
            return Ok(mac);
        }
        let body = neighbour_body(device, ip, libc::NTF_USE);
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let question = Question::change(libc::RTM_NEWNEIGH, flags, &body);
        let asked = question.with(libc::NDA_DST, &octets(ip)).ask(&self.0);
        asked.map_err(|error| format!("asking for the Ethernet address of {ip}: {error}"))?;
        let until = Instant::now() + NEIGHBOUR_WAIT;
        while Instant::now() < until {
            std::thread::sleep(NEIGHBOUR_LOOK);
            if let Some(mac) = self.known(device, ip) {
                return Ok(mac);
            }
        }
        let seconds = NEIGHBOUR_WAIT.as_secs();
        Err(format!("{ip} did not tell its Ethernet address within {seconds} s"))
    }

    /// Makes a pair of joined Ethernet devices of one name, the second one in the namespace of an open file.
    pub(super) fn join(&self, name: &str, namespace: i32) -> io::Result<()> {
        let name = packed(libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        let there = packed(libc::IFLA_NET_NS_FD, &namespace.to_ne_bytes());
        let peer = packed(VETH_INFO_PEER, &[&[0; LINK_BODY][..], &name, &there].concat());
        let info =
            [packed(libc::IFLA_INFO_KIND, b"veth"), packed(libc::IFLA_INFO_DATA, &peer)].concat();
        let body = [&[0; LINK_BODY][..], &name].concat();
        Question::change(libc::RTM_NEWLINK, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body)
            .with(libc::IFLA_LINKINFO, &info)
            .ask(&self.0)
            .map(drop)
    }

    /// Gives a device an address and switches it on.
    pub(super) fn configure(&self, device: u32, ip: IpAddr, prefix: u8) -> io::Result<()> {
        let [a, b, c, d] = device.to_ne_bytes();
        let body = [family(ip), prefix, 0, 0, a, b, c, d];
        Question::change(libc::RTM_NEWADDR, libc::NLM_F_CREATE, &body)
            .with(libc::IFA_LOCAL, &octets(ip))
            .with(libc::IFA_ADDRESS, &octets(ip))
            .ask(&self.0)?;
        let mut body = [0; LINK_BODY];
        body[4..8].copy_from_slice(&device.to_ne_bytes());
        // What is to be so, and what of it is meant.
        body[8..12].copy_from_slice(&libc::IFF_UP.to_ne_bytes());
        body[12..16].copy_from_slice(&libc::IFF_UP.to_ne_bytes());
        Question::change(libc::RTM_NEWLINK, 0, &body).ask(&self.0).map(drop)
    }

    fn known(&self, device: u32, ip: IpAddr) -> Option<Mac> {
        let question = Question::new(libc::RTM_GETNEIGH, &neighbour_body(device, ip, 0));
        // Not known is an error too.
        let answer = question.with(libc::NDA_DST, &octets(ip)).ask(&self.0).ok()?;
        let state = u16_at(&answer, 8)?;
        let mac = attribute(&answer, NEIGHBOUR_BODY, libc::NDA_LLADDR)?;
        (state & NUD_VALID != 0).then(|| mac.try_into().ok()).flatten()
    }
}

/// Returns the time by which `etf` lets packets go before their times, in nanoseconds (struct tc_etf_qopt:
/// delta, clock, flags).
fn etf_delta(answer: &[u8]) -> Option<u64> {
    let options = attribute(answer, DISCIPLINE_BODY, libc::TCA_OPTIONS)?;
    let parameters = attribute(&options, 0, TCA_ETF_PARMS)?;
    u64::try_from(u32_at(&parameters, 0)?.cast_signed()).ok()
}

fn discipline_body(device: u32) -> [u8; DISCIPLINE_BODY] {
    let mut body = [0; DISCIPLINE_BODY];
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    // Its parent is the device itself (TC_H_ROOT).
    body[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    body
}

fn neighbour_body(device: u32, ip: IpAddr, flags: u8) -> [u8; NEIGHBOUR_BODY] {
    let mut body = [0; NEIGHBOUR_BODY];
    body[0] = family(ip);
    body[4..8].copy_from_slice(&device.to_ne_bytes());
    body[10] = flags;
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_itself_is_no_way_out() {
        let netlink = Netlink::open().expect("everybody may ask");
        let loopback: IpAddr = "127.0.0.1".parse().expect("an address");
        let error = netlink.route(loopback, loopback, None).expect_err("loopback");
        assert!(error.starts_with("127.0.0.1 is this host itself"), "{error}");
        let device = nix::net::if_::if_nametoindex("lo").expect("every host has it");
        assert_eq!(netlink.link(device), Err("lo is not an Ethernet device".to_owned()));
    }

    /// An acknowledgement is not taken for the answer to the question behind it.
    #[test]
    fn questions_have_their_own_answers() {
        let netlink = Netlink::open().expect("everybody may ask");
        let device = nix::net::if_::if_nametoindex("lo").expect("every host has it");
        let kinds = [0; 3].map(|_| {
            let found = netlink.discipline(device).expect("an answer");
            found.map(|found| found.kind)
        });
        assert!(kinds.iter().all(|kind| *kind == kinds[0]), "{kinds:?}");
        assert!((0..3).all(|_| netlink.dropped(device).is_ok()));
        assert_eq!(netlink.link(device), Err("lo is not an Ethernet device".to_owned()));
    }

    #[test]
    fn attributes_are_found_and_broken_ones_are_not() {
        let answer = Question::new(0, &[9; 4]).with(3, b"abc").with(7, &[1, 2, 3, 4]).body;
        for (body, wanted, want) in [
            (&answer[..], 3, Some(&b"abc"[..])),
            (&answer[..], 7, Some(&[1, 2, 3, 4][..])),
            (&answer[..], 8, None),
            (&answer[..answer.len() - 1], 7, None),
            (&answer[..2], 3, None),
            (&[0; 64], 1, None),
        ] {
            assert_eq!(attribute(body, 4, wanted).as_deref(), want, "{wanted} in {body:?}");
        }
    }
}
