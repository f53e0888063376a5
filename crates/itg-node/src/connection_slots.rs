//! Places for connections: so many in all, so many of one address. Where there is none left, the oldest
//! connection that is still *silent* (it has agreed to nothing yet) gives its place to the newcomer.
//!
//! In a crowd the address with the most connections loses one first: its oldest silent one, or else its newest. So a
//! host that opens connections displaces its own, and those of somebody with fewer ones stay.

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
    /// Of one address; of IPv6, of one network of 64 bits.
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

/// No place for a connection: all are held by those that have agreed to something, none of whom has many more.
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
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        v4 => v4,
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

    /// Gives a place to a connection from this address, if need be that of a silent one, or one of the address that has
    /// most.
    ///
    /// # Errors
    /// The connections that hold the places are not silent, and no address has two more than this one.
    pub fn take(&self, address: IpAddr) -> Result<ConnectionSlot, NoSlot> {
        let address = counted(address);
        let mut table = lock(&self.table);
        let SlotLimits { total, per_address } = self.limits;
        if table.of(address) >= per_address {
            table.displace(|held| held.address == address).ok_or(NoSlot::Address(per_address))?;
        }
        if table.held.len() >= total {
            table.make_room(address).ok_or(NoSlot::All(total))?;
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

    /// Takes the place of a connection for one of a newcomer's: of the address that has most, as long as it keeps more
    /// than the newcomer gets, or else of the one that has most of those with a silent one.
    fn make_room(&mut self, newcomer: IpAddr) -> Option<()> {
        let mut counts = BTreeMap::<IpAddr, (usize, bool)>::new();
        for held in self.held.values() {
            let (count, silent) = counts.entry(held.address).or_default();
            *count += 1;
            *silent |= held.silent;
        }
        let most = |of: &(&IpAddr, &(usize, bool))| of.1.0;
        let own = self.of(newcomer);
        let crowd = counts.iter().max_by_key(most).filter(|of| most(of) > own + 1);
        let (&crowd, &(_, silent)) =
            crowd.or_else(|| counts.iter().filter(|(_, (_, silent))| *silent).max_by_key(most))?;
        if silent {
            return self.displace(|held| held.address == crowd);
        }
        let (&newest, _) = self.held.iter().rev().find(|(_, held)| held.address == crowd)?;
        self.held.remove(&newest)?.displaced.notify_one();
        Some(())
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
        let new = places.take(v4(3)).expect("a place of the address that has most");
        new.settle();
        assert_eq!(held.iter().map(is_lost).collect::<Vec<_>>(), [false, false, true]);
        assert!(!is_lost(&last));
        let another = places.take(v4(4)).expect("another one of its");
        another.settle();
        assert!(is_lost(&held[1]) && !is_lost(&last) && !is_lost(&new));
        // Nobody has more than one now.
        assert_eq!(places.take(v4(5)).err(), Some(NoSlot::All(4)));
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
        let _another = places.take(v4(4)).expect("another place of the crowd");
        assert!(!is_lost(&honest) && !is_lost(&newcomer) && is_lost(&crowd[8]));
    }

    #[test]
    fn addresses_are_counted_by_host_or_network() {
        for (a, b, same) in [
            ("10.0.0.1", "::ffff:10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("2001:db8::1", "2001:db8::ffff:2", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("fe80::1", "fe80::2", true),
            ("fd00::1", "fd00::2", true),
            ("fd00::1", "fd00:0:0:1::1", false),
        ] {
            let [a, b] = [a, b].map(|text| text.parse::<IpAddr>().expect("an address"));
            assert_eq!(counted(a) == counted(b), same, "{a} {b}");
        }
    }
}
