//! The network: connections that break after any byte, and datagrams that are lost, doubled and overtaken.

use super::dice::{Dice, MS, SECOND};

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
struct Pipe {
    /// Arrival of the last byte.
    last_ns: u64,
    /// Bytes that still pass before the connection breaks.
    left: Option<usize>,
}

/// A connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub client: Client,
    pub alive: bool,
    /// To the server, to the client.
    pipes: [Pipe; 2],
    /// Bytes that have come and are no whole frame yet.
    pub arrived: [Vec<u8>; 2],
    /// Ends that have been told of the end, or have ended it: server, client.
    pub over: [bool; 2],
}

/// The side that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The sender, to the receiver.
    Sender,
    /// This log, to the log server.
    Log(usize),
}

/// Something that the network does later.
#[derive(Clone, Debug)]
pub enum Later {
    /// Bytes arrive, at the server or at the client.
    Bytes { connection: usize, at_server: bool, bytes: Vec<u8> },
    /// An end learns that the connection is gone.
    Gone { connection: usize, at_server: bool },
}

/// State of the network.
#[derive(Debug)]
pub struct Net {
    pub connections: Vec<Connection>,
    pub dice: Dice,
    pub delay_ns: u64,
    /// Parts of a million of datagrams lost, and doubled.
    pub loss: u32,
    pub twice: u32,
    /// Parts of a million of connections that break after some byte.
    pub breaks: u32,
    /// Connections are refused until then.
    pub refused_until: u64,
}

impl Net {
    /// No faults from now on.
    pub fn heal(&mut self) {
        (self.loss, self.twice, self.breaks, self.refused_until) = (0, 0, 0, 0);
        for connection in &mut self.connections {
            connection.pipes.iter_mut().for_each(|pipe| pipe.left = None);
        }
    }

    pub fn delay(&mut self) -> u64 {
        self.dice.below(self.delay_ns + 1)
    }

    pub fn connect(&mut self, client: Client, now: u64) -> usize {
        let mut pipe = || {
            let breaks = self.dice.happens(self.breaks);
            let longest = self.dice.pick(&[120, 1500, 12_000]);
            Pipe { last_ns: now, left: breaks.then(|| self.dice.upto(longest)) }
        };
        let pipes = [pipe(), pipe()];
        let (arrived, over) = Default::default();
        self.connections.push(Connection { client, alive: true, pipes, arrived, over });
        self.connections.len() - 1
    }

    /// Instant at which something said now arrives, in its order.
    pub fn arrival(&mut self, connection: usize, at_server: bool, now: u64) -> u64 {
        let delay = self.delay();
        let pipe = &mut self.connections[connection].pipes[usize::from(!at_server)];
        pipe.last_ns = pipe.last_ns.max(now + delay);
        pipe.last_ns
    }

    /// Bytes leave in pieces; the connection may break with any of them.
    pub fn write(
        &mut self,
        connection: usize,
        at_server: bool,
        bytes: &[u8],
        now: u64,
    ) -> Vec<(u64, Later)> {
        let mut later = Vec::new();
        let line = &mut self.connections[connection];
        if !line.alive {
            return later;
        }
        let pipe = &mut line.pipes[usize::from(!at_server)];
        let passes = pipe.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        let breaks = passes < bytes.len();
        pipe.left = pipe.left.map(|left| left - passes);
        let mut rest = &bytes[..passes];
        while !rest.is_empty() {
            let most = self.dice.pick(&[usize::MAX, usize::MAX, 64, 5]);
            let (piece, behind) = rest.split_at(rest.len().min(most));
            let at = self.arrival(connection, at_server, now);
            later.push((at, Later::Bytes { connection, at_server, bytes: piece.to_vec() }));
            rest = behind;
        }
        if breaks {
            later.extend(self.sever(connection, now));
        }
        later
    }

    /// The connection breaks; each end learns of it soon, late or not at all.
    pub fn sever(&mut self, connection: usize, now: u64) -> Vec<(u64, Later)> {
        let mut later = Vec::new();
        if std::mem::replace(&mut self.connections[connection].alive, false) {
            for at_server in [true, false] {
                let late = self.dice.pick(&[Some(0), Some(0), Some(3 * SECOND), None]);
                if let Some(late) = late {
                    let at = self.arrival(connection, at_server, now) + late;
                    later.push((at, Later::Gone { connection, at_server }));
                }
            }
        }
        later
    }

    /// One end closes the connection: the other learns it behind all that was said.
    pub fn close(&mut self, connection: usize, by_server: bool, now: u64) -> Vec<(u64, Later)> {
        self.connections[connection].over[usize::from(!by_server)] = true;
        if !std::mem::replace(&mut self.connections[connection].alive, false) {
            return Vec::new();
        }
        let at = self.arrival(connection, !by_server, now);
        vec![(at, Later::Gone { connection, at_server: !by_server })]
    }

    /// Instants at which copies of a datagram arrive.
    pub fn datagram(&mut self, now: u64) -> Vec<u64> {
        let copies = 1 + usize::from(self.dice.happens(self.twice));
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            if !self.dice.happens(self.loss) {
                arrivals.push(now + self.delay() + MS / 100);
            }
        }
        arrivals
    }
}
