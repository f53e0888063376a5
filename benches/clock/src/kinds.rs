//! Kinds of cases: what somebody would do who wants to fool the estimate.

use crate::random::Random;
use crate::world::{Bloat, Host, Jump, Setting, Way};

/// Kinds, as they are printed.
pub(crate) const KINDS: [&str; 13] = [
    "asymmetric base delays",
    "standing queues one way",
    "route changes",
    "steps the hosts see",
    "steps nobody sees",
    "slewing up to 500 ppm",
    "temperature ramps",
    "busy hosts",
    "1 to 8 probes",
    "lost probes and gaps",
    "coarse clocks",
    "machines that stand still",
    "all at once",
];

/// Draws a case.
pub(super) fn draw(kind: &str, random: &mut Random) -> Setting {
    let mut setting = plain(random);
    match kind {
        "asymmetric base delays" => {
            setting.ways[0].base[0].1 = random.scale(2e-6, 1e-3);
            setting.ways[1].base[0].1 = random.scale(1e-3, 0.2);
            if random.happens(0.5) {
                setting.ways.swap(0, 1);
            }
        }
        "standing queues one way" => bloat(&mut setting, random),
        "route changes" => reroute(&mut setting, random),
        "steps the hosts see" => step(&mut setting, false, random),
        "steps nobody sees" => step(&mut setting, true, random),
        "slewing up to 500 ppm" => slew(&mut setting, random),
        "temperature ramps" => warm(&mut setting, random),
        "busy hosts" => busy(&mut setting, random),
        "1 to 8 probes" => {
            setting.few = 1 + random.below(8);
            setting.seconds = random.scale(0.01, 60.0);
        }
        "lost probes and gaps" => lose(&mut setting, random),
        "coarse clocks" => {
            for host in &mut setting.hosts {
                host.tick_ns = [1.0, 1e3, 1e6, 4e6][random.below(4)];
            }
        }
        "machines that stand still" => pause(&mut setting, random),
        _ => {
            let rates = if random.happens(0.5) { slew } else { warm };
            let changes: [fn(&mut Setting, &mut Random); 6] =
                [bloat, reroute, |setting, random| step(setting, false, random), rates, busy, lose];
            for change in changes {
                if random.happens(0.4) {
                    change(&mut setting, random);
                }
            }
        }
    }
    for host in &mut setting.hosts {
        host.jumps.sort_by(|a, b| a.at.total_cmp(&b.at));
    }
    setting
}

/// Drifts of 0 to 500 ppm at each host, base delays and queues of all sizes, short and long runs.
fn plain(random: &mut Random) -> Setting {
    let hosts = [(); 2].map(|()| {
        let most = if random.happens(0.8) { 50.0 } else { 500.0 };
        let ppm = random.between(-most, most);
        Host { rates: vec![(-10.0, ppm)], tick_ns: 1.0, ..Host::default() }
    });
    let mean = random.scale(1e-6, 5e-3);
    let heavy = random.happens(0.2);
    let one_sided = random.happens(0.3);
    let mut ways = [(); 2].map(|()| Way {
        base: vec![(-10.0, random.scale(5e-6, 2e-2))],
        queue: mean * random.between(0.3, 1.0),
        heavy,
        bloats: Vec::new(),
    });
    if one_sided {
        ways[random.below(2)].queue = 1e-6;
    }
    Setting { seconds: random.scale(0.5, 200.0), hosts, ways, ..Setting::default() }
}

/// Queue that stands in one direction: all the time, for a part, while the bursts of probes are on their way, or around
/// an instant where something else happens.
fn bloat(setting: &mut Setting, random: &mut Random) {
    let seconds = setting.seconds;
    let floor = random.scale(1e-4, 0.3);
    let mean = floor * random.between(0.01, 0.5);
    let spans = match random.below(4) {
        0 => vec![(-10.0, seconds + 100.0)],
        1 => {
            let from = random.between(0.0, seconds);
            vec![(from, random.between(from, seconds + 10.0))]
        }
        2 => vec![(-10.0, 0.0), (seconds, seconds + 100.0)],
        _ => {
            let cycle = random.scale(0.3, 20.0);
            let share = random.between(0.1, 0.95);
            let times =
                (0..).map(|i| cycle * f64::from(i)).take_while(|at| *at < seconds).take(400);
            times.map(|at| (at, at + share * cycle)).collect()
        }
    };
    let bloats = spans.into_iter().map(|(from, to)| Bloat { from, to, floor, mean });
    setting.ways[random.below(2)].bloats.extend(bloats);
}

/// Queue in one direction around an instant, where the other one is quick: it hides what happens there.
fn cover(setting: &mut Setting, at: f64, random: &mut Random) {
    if random.happens(0.5) {
        let (from, to) = (at - random.scale(0.2, 20.0), at + random.scale(0.2, 20.0));
        let floor = random.scale(1e-4, 0.1);
        let way = random.below(2);
        setting.ways[way].bloats.push(Bloat { from, to, floor, mean: floor / 10.0 });
        if random.happens(0.5) {
            setting.ways[1 - way].base[0].1 = random.scale(2e-6, 1e-4);
        }
    }
}

fn reroute(setting: &mut Setting, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.between(0.0, setting.seconds);
        let delay = random.scale(5e-6, 5e-2);
        let base = &mut setting.ways[random.below(2)].base;
        base.push((at, delay));
        base.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
}

/// Steps of 1 µs to 10 s: one to three, one that is taken back, or one right before the last probes.
fn step(setting: &mut Setting, hidden: bool, random: &mut Random) {
    let seconds = setting.seconds;
    let draw = |random: &mut Random| random.sign() * random.scale(1e3, 1e10);
    let (host, first) = (random.below(2), random.between(0.0, seconds));
    let mut jumps = vec![(host, first, draw(random))];
    match random.below(3) {
        0 => {
            for _ in 0..random.below(3) {
                jumps.push((random.below(2), random.between(0.0, seconds), draw(random)));
            }
        }
        1 => jumps.push((host, first + random.scale(0.5, 30.0), -jumps[0].2)),
        _ => jumps[0].1 = seconds - random.scale(1e-3, 0.5).min(seconds),
    }
    for (host, at, by_ns) in jumps {
        // A monotonic clock never goes back, and the sender's orders the probes.
        let by_ns = if hidden && host == 0 { by_ns.abs() } else { by_ns };
        setting.hosts[host].jumps.push(Jump { at, by_ns, hidden });
        cover(setting, at, random);
    }
}

/// A clock that is slewed: NTP's daemon turns it on and off, at 500 ppm (the kernel's limit) or less.
fn slew(setting: &mut Setting, random: &mut Random) {
    let host = random.below(2);
    quieten(setting);
    let own = setting.hosts[host].rates[0].1;
    let mut at = random.between(0.0, setting.seconds);
    for _ in 0..=random.below(3) {
        let by = random.sign() * if random.happens(0.5) { 500.0 } else { random.scale(1.0, 500.0) };
        let until = at + random.scale(2.0, 60.0);
        setting.hosts[host].rates.extend([(at, own + by), (until, own)]);
        cover(setting, at, random);
        if random.happens(0.3) {
            cover(setting, until, random);
        }
        at = until + random.scale(2.0, 60.0);
    }
}

/// Rate that follows a temperature: up to 10 ppm a minute, up and down.
fn warm(setting: &mut Setting, random: &mut Random) {
    let host = random.below(2);
    let mut ppm = setting.hosts[host].rates[0].1.clamp(-400.0, 400.0);
    setting.hosts[host].rates[0].1 = ppm;
    let mut a_second = random.sign() * random.scale(0.1, 10.0) / 60.0;
    let mut at = 0.0;
    while at < setting.seconds {
        setting.hosts[host].rates.push((at, ppm));
        ppm += a_second * 0.25;
        at += 0.25;
        if random.happens(0.25 / 30.0) {
            a_second = -a_second;
        }
    }
    cover(setting, random.between(0.0, at), random);
}

/// Interrupts and a full run queue: between stamps and the wire, on one side or both.
fn busy(setting: &mut Setting, random: &mut Random) {
    let both = random.happens(0.3);
    let one = random.below(2);
    for (number, host) in setting.hosts.iter_mut().enumerate() {
        if both || number == one {
            host.busy = (random.between(0.05, 1.0), random.scale(1e-5, 2e-2));
        }
    }
}

/// Probes that are lost, and times of silence: within, or until the end.
fn lose(setting: &mut Setting, random: &mut Random) {
    let seconds = setting.seconds;
    setting.loss = if random.happens(0.5) { random.between(0.0, 0.98) } else { 0.0 };
    if random.happens(0.7) {
        let from = random.between(0.0, seconds);
        let to = if random.happens(0.3) { seconds + 100.0 } else { random.between(from, seconds) };
        setting.silent.push((from, to));
        if random.happens(0.3) {
            // The clock changes its rate where nobody looks.
            let host = random.below(2);
            let at = random.between(from, to.min(seconds));
            let by = random.sign() * random.between(10.0, 500.0);
            if setting.hosts[host].rates.len() == 1 {
                quieten(setting);
                let own = setting.hosts[host].rates[0].1;
                setting.hosts[host].rates.push((at, own + by));
            }
        }
    }
}

/// Keeps drifts so small that 500 ppm more do not make them more than clocks have.
fn quieten(setting: &mut Setting) {
    for host in &mut setting.hosts {
        host.rates[0].1 = host.rates[0].1.clamp(-100.0, 100.0);
    }
}

/// A host that stands still as a virtual machine does, with its clocks or without, and whose clock is set right a while
/// later.
fn pause(setting: &mut Setting, random: &mut Random) {
    let host = &mut setting.hosts[random.below(2)];
    let from = random.between(0.0, setting.seconds);
    let to = from + random.scale(1e-3, 3.0);
    host.pauses.push((from, to));
    if random.happens(0.7) {
        let by_ns = (to - from) * 1e9;
        host.jumps.push(Jump { at: to, by_ns: -by_ns, hidden: true });
        if random.happens(0.5) {
            host.jumps.push(Jump { at: to + random.scale(0.01, 10.0), by_ns, hidden: false });
        }
    }
}
