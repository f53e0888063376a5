//! Plan of a world, drawn from its seed: which kinds of faults there are is drawn first.

use itg_session::logs::Transport;
use itg_session::logs::keep::Fsync;

use super::dice::{Dice, MS, SECOND};

/// The hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Sender,
    Receiver,
    Server,
}

impl Host {
    pub const ALL: [Self; 3] = [Self::Sender, Self::Receiver, Self::Server];
}

/// Place of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    File,
    Server { transport: Transport, spools: bool },
}

/// Fault of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program of a host is killed; with `power`, the host loses its power.
    Kill { host: Host, power: bool },
    /// The program of a host starts again.
    Start(Host),
    /// The log server is asked to end.
    ShutDown,
    /// The disk of a host is full, or has room again.
    Full(Host, bool),
    /// The clock of a host is set.
    Step(Host, i64),
    /// All connections break.
    Sever,
    /// New connections are refused until then.
    Refuse(u64),
    /// The user stops the sender.
    Stop,
    /// No more faults; everything is there again.
    Heal,
}

/// A world to be.
#[derive(Clone, Debug)]
pub struct Plan {
    pub runs: u64,
    pub flows: u32,
    pub packets: u64,
    pub idt_ns: u64,
    /// Of the sender, of the receiver.
    pub places: [Place; 2],
    pub block_records: usize,
    pub most_blocks: usize,
    /// At the log server, and of files.
    pub fsync: Fsync,
    pub delay_ns: u64,
    pub loss: u32,
    pub twice: u32,
    pub breaks: u32,
    /// Of datagrams with blocks.
    pub damage: u32,
    /// Of packets that the sender's system does not take.
    pub refused: u32,
    /// Longest time of a write.
    pub disk_ns: u64,
    /// The log server is killed in the middle of these writes, and is back so much later.
    pub kill_in: Vec<(u64, u64)>,
    pub ppm: [u64; 3],
    pub faults: Vec<(u64, Fault)>,
    /// Nothing goes wrong but clocks.
    pub calm: bool,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let dice = &mut Dice::new(seed, "plan");
        let calm = dice.below(8) == 0;
        let mut place = || match dice.below(4) {
            0 => Place::File,
            1 => Place::Server { transport: Transport::Udp, spools: dice.half() && !calm },
            _ => Place::Server { transport: Transport::Tcp, spools: dice.below(3) > 0 },
        };
        let places = [place(), place()];
        let mut has = |parts: u32| dice.happens(parts) && !calm;
        let kinds: [bool; 10] = std::array::from_fn(|_| has(400_000));
        let [loss, twice, breaks, damage, kills, powers, full, severs, refuses, stops] = kinds;
        let mut rate = |on: bool, most: u64| {
            if on { u32::try_from(dice.between(most / 20, most)).expect("small") } else { 0 }
        };
        let mut plan = Self {
            loss: rate(loss, 300_000),
            twice: rate(twice, 300_000),
            breaks: rate(breaks, 700_000),
            damage: rate(damage, 100_000),
            refused: rate(damage, 50_000),
            runs: dice.between(1, 3),
            flows: u32::try_from(dice.between(1, 3)).expect("small"),
            packets: if dice.below(3) == 0 { dice.between(80, 400) } else { dice.between(5, 60) },
            idt_ns: dice.pick(&[MS / 5, 5 * MS, 20 * MS, 40 * MS]),
            places,
            block_records: dice.pick(&[2, 5, 12]),
            most_blocks: dice.pick(&[3, 6, 40]),
            fsync: dice.pick(&[Fsync::Never, Fsync::Interval, Fsync::Block, Fsync::Block]),
            delay_ns: dice.pick(&[0, MS, 30 * MS]),
            disk_ns: dice.pick(&[0, 2 * MS, 60 * MS]),
            ppm: std::array::from_fn(|_| dice.below(100)),
            kill_in: Vec::new(),
            faults: Vec::new(),
            calm,
        };
        if calm {
            // Room for all that comes at once.
            (plan.most_blocks, plan.disk_ns) = (400, plan.disk_ns.min(2 * MS));
        }
        if !calm && dice.below(8) == 0 {
            plan.draw_outage(dice);
        }
        for _ in 0..if !calm && dice.below(4) == 0 { dice.between(1, 5) } else { 0 } {
            let most = dice.pick(&[6, 6, 60]);
            plan.kill_in.push((dice.between(1, most), dice.pick(&[10 * MS, SECOND])));
        }
        plan.draw_faults(dice, [kills, powers, full, severs, refuses, stops]);
        plan
    }

    /// The log server is away for longer than the sender has memory, which may be killed meanwhile.
    fn draw_outage(&mut self, dice: &mut Dice) {
        self.places[0] = Place::Server {
            transport: dice.pick(&[Transport::Tcp, Transport::Tcp, Transport::Udp]),
            spools: true,
        };
        self.most_blocks = dice.pick(&[3, 6]);
        (self.packets, self.idt_ns) = (dice.between(80, 400), dice.pick(&[10 * MS, 30 * MS]));
        let at = 200 * MS + dice.below(SECOND);
        let power = dice.below(3) == 0;
        let back = at + dice.pick(&[3 * SECOND, 12 * SECOND, 45 * SECOND]);
        self.faults.push((at, Fault::Kill { host: Host::Server, power }));
        self.faults.push((back, Fault::Start(Host::Server)));
        if dice.half() {
            let at = at + dice.between(SECOND, 5 * SECOND);
            self.faults.push((at, Fault::Kill { host: Host::Sender, power: dice.below(4) == 0 }));
        }
    }

    fn draw_faults(&mut self, dice: &mut Dice, kinds: [bool; 6]) {
        let [kills, powers, full, severs, refuses, stops] = kinds;
        let until = dice.pick(&[4 * SECOND, 4 * SECOND, 12 * SECOND]);
        let mut add = |at: u64, fault: Fault| self.faults.push((at, fault));
        let storm = kills && dice.below(4) == 0;
        for _ in 0..if storm {
            dice.between(4, 9)
        } else if kills {
            dice.between(1, 4)
        } else {
            0
        } {
            let (host, at) = (
                dice.pick(&[Host::Server, Host::Server, Host::Receiver, Host::Sender]),
                dice.pick(&[until, until, SECOND / 2]),
            );
            let at = dice.below(at);
            let host = if storm && dice.below(4) > 0 { Host::Server } else { host };
            let power = powers && dice.below(4) > 0;
            let down = dice.pick(&[50 * MS, SECOND, 4 * SECOND, 9 * SECOND]);
            let shut = host == Host::Server && dice.below(5) == 0;
            add(at, if shut { Fault::ShutDown } else { Fault::Kill { host, power } });
            if shut {
                add(at + 11 * SECOND, Fault::Kill { host, power: false });
            }
            add(at + down + if shut { 11 * SECOND } else { 0 }, Fault::Start(host));
        }
        for _ in 0..if full { dice.between(1, 3) } else { 0 } {
            let (host, at) = (dice.pick(&Host::ALL), dice.below(until));
            add(at, Fault::Full(host, true));
            add(at + dice.pick(&[100 * MS, 2 * SECOND, 8 * SECOND]), Fault::Full(host, false));
        }
        for _ in 0..if severs { dice.between(1, 4) } else { 0 } {
            add(dice.below(until), Fault::Sever);
        }
        for _ in 0..if refuses { dice.between(1, 2) } else { 0 } {
            let at = dice.below(until);
            add(at, Fault::Refuse(at + dice.pick(&[200 * MS, 3 * SECOND, 12 * SECOND])));
        }
        if stops {
            add(dice.below(until), Fault::Stop);
        }
        for _ in 0..if dice.half() { dice.between(1, 4) } else { 0 } {
            let by = i64::try_from(dice.between(SECOND, 30 * SECOND)).expect("small");
            let by = if dice.half() { by } else { -by };
            add(dice.below(until), Fault::Step(dice.pick(&Host::ALL), by));
        }
        let last = self.faults.iter().map(|(at, _)| *at).max().unwrap_or(0);
        self.faults.push((last.max(until) + dice.below(20 * SECOND), Fault::Heal));
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Instant from which on nothing fails any more.
    pub fn healed_ns(&self) -> u64 {
        self.faults.last().map_or(0, |(at, _)| *at)
    }
}
