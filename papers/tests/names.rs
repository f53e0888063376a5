//! The layers of the thesis under its names: an algorithm written on the first one, the closed system of its
//! figure 25 on the second one, clients and servers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use itg_core::seed::RunSeed;
use itg_group::Member;
use itg_group::cast::service::{Case, Client, Replicated, Server};
use itg_group::cast::{self, Planted};
use itg_papers::names::{ClientLayer, FirstLayer, SecondLayer};
use itg_process::{Active, Build, Config, ConfigError, Layer, Registry, SECOND, Slot};
use itg_sim::World;

/// Deliveries of each process: slot, sender, content.
type Seen = Arc<Mutex<Vec<(u32, u32, u64)>>>;

fn world(text: &str, registry: &Registry, seed: u64) -> World {
    let config = Config::parse(text, "test.toml").expect("well written");
    World::new(&config, registry, RunSeed(seed)).expect("known layers and networks")
}

fn boxed(active: Active) -> Result<Box<dyn Layer>, ConfigError> {
    Ok(Box::new(active))
}

fn number(body: &[u8]) -> u64 {
    u64::from_le_bytes(body.try_into().expect("a number"))
}

const DATA: u32 = 1;
const ORDER: u32 = 2;

/// The thesis's sequencer as one reads it there: process 0 numbers the messages, all deliver by number.
async fn sequencer(mut first: FirstLayer, casts: u64, seen: Seen) {
    let me = first.me();
    for k in 0..casts {
        first.r_broadcast(DATA, &(u64::from(me.0) * 1000 + k).to_le_bytes());
    }
    let (mut got, mut order) =
        (std::collections::BTreeMap::new(), std::collections::BTreeMap::new());
    let (mut last, mut next) = (0_u64, 1_u64);
    loop {
        let message = first.receive_any(&[DATA, ORDER]).await;
        if message.ty == DATA {
            let id = number(&message.body);
            got.insert(id, message.sender);
            if me == Slot(0) {
                last += 1;
                first.set_time(last);
                first.r_broadcast(ORDER, &id.to_le_bytes());
            }
        } else {
            order.insert(message.time, number(&message.body));
        }
        while let Some(id) = order.get(&next)
            && let Some(sender) = got.get(id)
        {
            seen.lock().expect("one thread").push((me.0, sender.0, *id));
            next += 1;
        }
    }
}

#[test]
fn an_algorithm_on_the_first_layer_orders_with_the_messages_of_the_thesis() {
    let (n, casts) = (4, 5);
    for seed in 0..20 {
        let seen = Seen::default();
        let mine = Arc::clone(&seen);
        let registry = Registry::new().with("mine", move |_: &mut Build<'_>| {
            let seen = Arc::clone(&mine);
            boxed(Active::new(move |cx| sequencer(FirstLayer::connect(cx), casts, seen)))
        });
        let network = "kind = \"random\"\nmean = \"3ms\"";
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = [\"mine\"]"
        );
        let mut world = world(&text, &registry, seed);
        world.run(10 * SECOND);
        let seen = seen.lock().expect("one thread");
        let of = |slot| -> Vec<_> {
            seen.iter().filter(|(at, ..)| *at == slot).map(|(_, from, id)| (*from, *id)).collect()
        };
        let order = of(0);
        assert_eq!(order.len() as u64, u64::from(n) * casts, "seed {seed}");
        assert!(order.iter().all(|(from, id)| u64::from(*from) == id / 1000), "seed {seed}");
        for slot in 1..n {
            assert_eq!(of(slot), order, "seed {seed}, process {slot}");
        }
        let frames: u64 = world.networks().map(|(_, _, usage)| usage.frames).sum();
        assert_eq!(
            frames,
            2 * u64::from(n - 1) * u64::from(n) * casts,
            "seed {seed}: 2 (n - 1) each"
        );
    }
}

#[test]
fn the_first_layer_keeps_what_nobody_receives_until_its_buffers_are_emptied() {
    let done = Arc::new(Mutex::new(Vec::new()));
    let mine = Arc::clone(&done);
    let registry = Registry::new().with("mine", move |_: &mut Build<'_>| {
        let done = Arc::clone(&mine);
        boxed(Active::new(move |cx| async move {
            let mut first = FirstLayer::connect(cx);
            assert_eq!(first.get_server_num(), 2);
            if first.me() == Slot(1) {
                for time in 1..=6 {
                    first.set_time(time);
                    first.send(Slot(0), DATA, &time.to_le_bytes());
                }
                first.send(Slot(0), ORDER, &[0; 8]);
                return;
            }
            // The last message is received first; those before it wait.
            let last = first.receive(ORDER).await;
            assert_eq!((last.sender, last.time), (Slot(1), 6));
            first.empty_buffers(4);
            for _ in 4..=6 {
                let found = first.r_deliver(DATA).await.time;
                done.lock().expect("one thread").push(found);
            }
        }))
    });
    let text = "processes = 2\n[[network]]\nname = \"main\"\nkind = \"fixed\"\ndelay = \"1ms\"\n[[process]]\n\
                layers = [\"mine\"]";
    world(text, &registry, 1).run(SECOND);
    assert_eq!(*done.lock().expect("one thread"), [4, 5, 6]);
}

/// Figure 25: in round r process r mod n broadcasts, and all deliver, that process too.
async fn closed_system(mut second: SecondLayer, rounds: u64, seen: Seen) {
    let me = second.active().me();
    for round in 0..rounds {
        if round % u64::from(second.get_server_num()) == u64::from(me.0) {
            second.to_broadcast(round.to_le_bytes().to_vec());
        }
        let found = second.to_deliver().await.expect("the window is never full");
        assert_eq!(found.position, round);
        seen.lock().expect("one thread").push((me.0, found.sender.0, number(&found.body)));
    }
}

#[test]
fn the_closed_system_of_figure_25_runs_on_the_second_layer_above_every_broadcast() {
    let (n, rounds) = (3_u32, 30_u64);
    for algorithm in
        ["sequencer", "skeen", "chandra-toueg", "log", "uniform-sequencer", "uniform-skeen"]
    {
        let seen = Seen::default();
        let mine = Arc::clone(&seen);
        let registry = cast::layers(Registry::new(), Planted::default()).with("mine", move |_| {
            let seen = Arc::clone(&mine);
            boxed(Active::new(move |cx| closed_system(SecondLayer::connect(cx), rounds, seen)))
        });
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"main\"\nkind = \"random\"\nmean = \"2ms\"\n[[process]]\nlayers = \
             [\"{algorithm}\", \"mine\"]"
        );
        world(&text, &registry, 7).run(60 * SECOND);
        let seen = seen.lock().expect("one thread");
        for slot in 0..n {
            let own: Vec<_> = seen.iter().filter(|(at, ..)| *at == slot).collect();
            let want =
                (0..rounds).map(|round| (slot, u32::try_from(round % 3).expect("small"), round));
            assert!(own.into_iter().copied().eq(want), "{algorithm}, process {slot}");
        }
    }
}

/// Counts what it is asked, and answers with the sum so far.
struct Sum(u64);

impl Replicated for Sum {
    fn apply(&mut self, _client: Member, command: &Bytes) -> Bytes {
        self.0 += number(command);
        self.0.to_le_bytes().to_vec().into()
    }

    fn save(&self) -> Bytes {
        self.0.to_le_bytes().to_vec().into()
    }

    fn load(&mut self, state: &Bytes) {
        self.0 = number(state);
    }
}

#[test]
fn a_client_asks_and_gets_replies_in_both_cases() {
    for case in [Case::All, Case::One] {
        let seen = Seen::default();
        let mine = Arc::clone(&seen);
        let registry = cast::layers(Registry::new(), Planted::default())
            .with("server", |_| {
                let server = Server::new(Box::new(Sum(0)), 3, Planted::default());
                Ok(Box::new(server) as Box<dyn Layer>)
            })
            .with("client", move |_| {
                Ok(Box::new(Client::new(case, 3, Duration::from_secs(1), false)) as Box<dyn Layer>)
            })
            .with("mine", move |_| {
                let seen = Arc::clone(&mine);
                boxed(Active::new(move |cx| async move {
                    let mut client = ClientLayer::connect(cx);
                    for k in 1..=10_u64 {
                        client.send_request(k.to_le_bytes().to_vec());
                        let sum = client.get_reply().await.expect("one request at a time");
                        seen.lock().expect("one thread").push((3, 0, number(&sum)));
                    }
                }))
            });
        let text = "processes = 4\n[[network]]\nname = \"main\"\nkind = \"random\"\nmean = \"2ms\"\n[[process]]\n\
                    slots = [3, 3]\nlayers = [\"client\", \"mine\"]\n[[process]]\nlayers = [{ layer = \"log\", \
                    members = 3 }, \"server\"]";
        world(text, &registry, 5).run(30 * SECOND);
        let sums: Vec<u64> = seen.lock().expect("one thread").iter().map(|seen| seen.2).collect();
        assert_eq!(sums, [1, 3, 6, 10, 15, 21, 28, 36, 45, 55], "{case:?}");
    }
}
