//! Places for connections: so many in all, so many of one address. Where there is none left, the oldest
//! connection that is still *silent* (it has agreed to nothing yet) gives its place to the newcomer.
//!
//! In a crowd the address with the most connections loses one first. So a host that opens connections
//! and says nothing displaces its own, and those that say something are never displaced.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;

/// Most connections at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Of all addresses together.
    pub total: usize,
    /// Of one address; of one network of 64 bits, where it is a global one of IPv6.
    pub per_address: usize,
}

/// The places of a server.
#[derive(Debug)]
pub struct ConnectionSlots {
    limits: SlotLimits,
    table: Arc<Mutex<Table>>,
}

/// Connections that have a place, in the order in which they came.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    held: BTreeMap<u64, TakenSlot>,
}

#[derive(Debug)]
struct TakenSlot {
    address: IpAddr,
    silent: bool,
    displaced: Arc<Notify>,
}

/// The place of a connection, given back when dropped.
#[derive(Debug)]
pub struct ConnectionSlot {
    number: u64,
    table: Arc<Mutex<Table>>,
    displaced: Arc<Notify>,
}

/// No place for a connection: all are held by those that have agreed to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// Its address has so many connections, the limit.
    Address(usize),
    /// There are so many connections, the limit.
    All(usize),
}

impl fmt::Display for NoSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(most) => write!(
                f,
                "your address has {most} connections already: the limit (--max-per-address); try \
                 later"
            ),
            Self::All(most) => {
                write!(f, "there are {most} connections already: the limit; try later")
            }
        }
    }
}

/// The address under which connections are counted.
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.segments()[0] & 0xe000 == 0x2000 => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

impl ConnectionSlots {
    /// Places within these limits; each is at least 1.
    #[must_use]
    pub fn new(limits: SlotLimits) -> Self {
        let SlotLimits { total, per_address } = limits;
        let limits = SlotLimits { total: total.max(1), per_address: per_address.max(1) };
        Self { limits, table: Arc::default() }
    }

    /// Gives a place to a connection from this address, if need be that of a silent one.
    ///
    /// # Errors
    /// The connections that hold the places are not silent.
    pub fn take(&self, address: IpAddr) -> Result<ConnectionSlot, NoSlot> {
        let address = counted(address);
        let mut table = lock(&self.table);
        let SlotLimits { total, per_address } = self.limits;
        if table.of(address) >= per_address {
            table.displace(|held| held.address == address).ok_or(NoSlot::Address(per_address))?;
        }
        if table.held.len() >= total {
            let crowd = table.largest_silent().ok_or(NoSlot::All(total))?;
            table.displace(|held| held.address == crowd).ok_or(NoSlot::All(total))?;
        }
        let number = table.next;
        table.next += 1;
        let displaced = Arc::new(Notify::new());
        let held = TakenSlot { address, silent: true, displaced: Arc::clone(&displaced) };
        table.held.insert(number, held);
        Ok(ConnectionSlot { number, table: Arc::clone(&self.table), displaced })
    }
}

impl Table {
    fn of(&self, address: IpAddr) -> usize {
        self.held.values().filter(|held| held.address == address).count()
    }

    /// The address with the most connections of those with a silent one.
    fn largest_silent(&self) -> Option<IpAddr> {
        let mut counts = BTreeMap::<IpAddr, (usize, bool)>::new();
        for held in self.held.values() {
            let (count, silent) = counts.entry(held.address).or_default();
            *count += 1;
            *silent |= held.silent;
        }
        let crowds = counts.into_iter().filter(|(_, (_, silent))| *silent);
        crowds.max_by_key(|(_, (count, _))| *count).map(|(address, _)| address)
    }

    /// Takes the place of the oldest silent connection among these.
    fn displace(&mut self, among: impl Fn(&TakenSlot) -> bool) -> Option<()> {
        let (&number, _) = self.held.iter().find(|(_, held)| held.silent && among(held))?;
        self.held.remove(&number)?.displaced.notify_one();
        Some(())
    }
}

impl ConnectionSlot {
    /// The connection has agreed to something: it keeps its place.
    pub fn settle(&self) {
        if let Some(held) = lock(&self.table).held.get_mut(&self.number) {
            held.silent = false;
        }
    }

    /// Waits until the connection has lost its place; comes true once.
    pub async fn lost(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.table).held.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt as _;

    use super::*;

    fn v4(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    fn places(total: usize, per_address: usize) -> ConnectionSlots {
        ConnectionSlots::new(SlotLimits { total, per_address })
    }

    fn is_lost(place: &ConnectionSlot) -> bool {
        place.lost().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_silent_connection_of_the_same_address_gives_way() {
        let places = places(100, 3);
        let [first, second, third] = [1, 1, 1].map(|n| places.take(v4(n)).expect("a place"));
        let other = places.take(v4(2)).expect("a place");
        first.settle();
        let _fourth = places.take(v4(1)).expect("the place of the second");
        assert!(!is_lost(&first) && is_lost(&second) && !is_lost(&third) && !is_lost(&other));
        drop(second);
        let _fifth = places.take(v4(1)).expect("the place of the third");
        assert!(is_lost(&third) && !is_lost(&other));
    }

    #[test]
    fn those_who_said_something_keep_their_places() {
        let places = places(4, 3);
        let held: Vec<_> = (0..3).map(|_| places.take(v4(1)).expect("a place")).collect();
        held.iter().for_each(ConnectionSlot::settle);
        assert_eq!(places.take(v4(1)).err(), Some(NoSlot::Address(3)));
        let last = places.take(v4(2)).expect("a place");
        last.settle();
        assert_eq!(places.take(v4(3)).err(), Some(NoSlot::All(4)));
        drop(held);
        assert!(places.take(v4(1)).is_ok());
    }

    #[test]
    fn of_all_the_address_with_the_most_connections_loses_one() {
        let places = places(10, 9);
        let honest = places.take(v4(2)).expect("a place");
        let crowd: Vec<_> = (0..9).map(|_| places.take(v4(1)).expect("a place")).collect();
        let newcomer = places.take(v4(3)).expect("a place");
        assert!(is_lost(&crowd[0]) && !is_lost(&honest) && !is_lost(&newcomer));
        for place in &crowd[1..] {
            place.settle();
        }
        let _another = places.take(v4(4)).expect("the place of a small address");
        let lost = [&honest, &newcomer].map(is_lost);
        assert_eq!(lost.iter().filter(|&&lost| lost).count(), 1, "{lost:?}");
    }

    #[test]
    fn addresses_are_counted_by_host_or_network() {
        for (a, b, same) in [
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("fe80::1", "fe80::2", false),
            ("fd00::1", "fd00::2", false),
        ] {
            let [a, b] = [a, b].map(|text| text.parse::<IpAddr>().expect("an address"));
            assert_eq!(counted(a) == counted(b), same, "{a} {b}");
        }
    }
}
