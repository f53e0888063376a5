//! Throughput of the ordered log in messages a second, in one process, on one core.
//!
//! `cargo bench -p itg-group --bench order` prints a table; numbers are medians of five runs. With `-- --burst N`
//! only the lines of that burst.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use itg_group::cast::log::{Log, LogMessage, Settings};
use itg_group::cast::{CastDelivery, CastRequest};
use itg_group::{Member, Rules, View};
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

/// Members of one group with queues between them; messages travel as values or as bytes.
struct Group {
    logs: Vec<Log>,
    queues: VecDeque<(usize, Slot, LogMessage)>,
    bytes: bool,
    delivered: u64,
    out: Vec<Action<Log>>,
}

impl Group {
    fn new(n: u32, bytes: bool) -> Self {
        let view = View::first(n, Rules::default());
        let log = |slot| Log::new(Member::new(Slot(slot), 1), view.clone(), Settings::default());
        let logs = (0..n).map(log).collect();
        Self { logs, queues: VecDeque::new(), bytes, delivered: 0, out: Vec::new() }
    }

    fn input(&mut self, at: usize, input: Input<Log>) {
        self.logs[at].handle(Time(0), input, &mut self.out);
        let src = Slot(u32::try_from(at).unwrap_or(0));
        for action in self.out.drain(..) {
            match action {
                Action::Send(dst, say) => {
                    let say = if self.bytes {
                        let (ty, body) = say.encode();
                        LogMessage::decode(ty, &body).expect("just written")
                    } else {
                        say
                    };
                    match dst {
                        Dest::One(to) => self.queues.push_back((to.index(), src, say)),
                        Dest::Many(slots) => {
                            for to in slots.iter() {
                                self.queues.push_back((to.index(), src, say.clone()));
                            }
                        }
                        Dest::All | Dest::AllButMe | Dest::View => {}
                    }
                }
                Action::Deliver(CastDelivery::Message { .. }) => self.delivered += 1,
                _ => {}
            }
        }
    }

    /// Casts in bursts at all members and lets everything happen in between.
    fn run(&mut self, messages: u64, burst: u64, payload: &Bytes) {
        let n = self.logs.len();
        let mut cast = 0;
        while cast < messages {
            for _ in 0..burst.min(messages - cast) {
                let at = usize::try_from(cast).unwrap_or(0) % n;
                self.input(at, Input::Request(CastRequest::Cast(payload.clone())));
                cast += 1;
            }
            while let Some((to, src, say)) = self.queues.pop_front() {
                self.input(to, Input::Message(src, say));
            }
            for at in 0..n {
                // Collects what all members have.
                if cast.is_multiple_of(64 * burst) {
                    self.input(at, Input::Timer(itg_group::cast::log::Timer::Status));
                }
            }
        }
    }
}

fn main() {
    let payload = Bytes::from(vec![7; 100]);
    println!("messages of 100 B ordered a second, delivered by all members, one core");
    println!("| members | messages travel as | burst | messages/s |");
    println!("|---|---|---|---|");
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == "--burst");
    let only = at.and_then(|at| words.get(at + 1)?.parse::<u64>().ok());
    for (n, burst) in [(3, 1), (3, 64), (3, 1024), (3, 3000), (5, 3000)] {
        if only.is_some_and(|only| only != burst) {
            continue;
        }
        for bytes in [false, true] {
            let messages = 600_000;
            let mut rates: Vec<f64> = (0..5)
                .map(|_| {
                    let mut group = Group::new(n, bytes);
                    let start = Instant::now();
                    group.run(messages, burst, &payload);
                    let seconds = start.elapsed().as_secs_f64();
                    assert_eq!(group.delivered, messages * u64::from(n), "everybody has all");
                    messages as f64 / seconds
                })
                .collect();
            rates.sort_by(f64::total_cmp);
            let form = if bytes { "bytes" } else { "values" };
            println!("| {n} | {form} | {burst} | {:.0} |", rates[2]);
        }
    }
}
