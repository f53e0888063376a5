#!/usr/bin/env python3
"""The cells of the lab: ITG under a kernel that has SCTP, DCCP, netem, fq, etf and dm-flakey.

Usage: cells.py PROGRAMS [WORD...], as root, in a machine of its own (see boot). Prints a line a cell, `ok NAME` or
`FAILED NAME: WHY`, and `N passed, N failed`; exit status 1 when a cell failed or none ran. Each cell has network
namespaces and a directory of its own. Nothing here waits for a certain time: what depends on chance is held to five
standard deviations, and, where the kernel counts it, to the kernel's number.
"""
import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

PROGRAMS = sys.argv[1]
LIMIT_S = 150  # of one program, on a busy machine
WORKERS = 3
NUMBERS = iter(range(1, 10_000))
LOCK = threading.Lock()


class Failure(Exception):
    """What is not as it should be, in words."""


def check(good, *words):
    if not good:
        raise Failure(" ".join(str(word) for word in words))


def ours(name):
    return os.path.join(PROGRAMS, name)


def plain(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    check(done.returncode == 0, f"`{' '.join(command)}`:", done.stderr.strip())
    return done.stdout


class Done:
    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    def exits(self, code):
        check(self.code == code, f"exit code {self.code}, not {code}, of {self}")
        return self

    def __str__(self):
        return f"`{' '.join(self.command)}`\n-- stdout\n{self.out}-- stderr\n{self.err}"


class Running:
    """A program in a network namespace; what it says is kept."""

    def __init__(self, host, command, cwd):
        self.command = list(map(str, command))
        self.out = tempfile.TemporaryFile("w+", dir=cwd)
        self.err = tempfile.TemporaryFile("w+", dir=cwd)
        enter = ["nsenter", f"--net=/run/netns/{host}"]
        self.child = subprocess.Popen(
            enter + self.command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err
        )

    def said(self):
        texts = []
        for file in (self.out, self.err):
            texts.append(os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace"))
        return texts

    def until(self, words):
        end = time.monotonic() + LIMIT_S
        while not any(words in text for text in self.said()):
            check(self.child.poll() is None and time.monotonic() < end,
                  f"`{self.command[0]}` did not say `{words}`:", *self.said())
            time.sleep(0.05)
        return self

    def finish(self):
        try:
            code = self.child.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure(f"no end within {LIMIT_S} s: {Done(self.command, None, *self.said())}") from None
        return Done(self.command, code, *self.said())

    def stop(self, number=signal.SIGINT):
        self.child.send_signal(number)
        return self.finish()

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


class Cell:
    """Network namespaces, a directory and programs; all gone at the end."""

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="lab-")
        self.path = self.directory.name
        self.hosts, self.programs = [], []
        return self

    def __exit__(self, *_):
        for program in self.programs:
            program.kill()
        for host in self.hosts:
            subprocess.run(["ip", "netns", "delete", host], capture_output=True)
        self.directory.cleanup()

    def host(self):
        with LOCK:
            name = f"lab{next(NUMBERS)}"
        plain("ip", "netns", "add", name)
        self.hosts.append(name)
        plain("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def pair(self):
        """Two hosts, 10.77.0.1 and 10.77.0.2, joined by a link that is called link0 on both."""
        one, two = self.host(), self.host()
        plain("ip", "-n", one, "link", "add", "link0", "type", "veth", "peer", "name", "link0", "netns", two)
        for number, host in enumerate((one, two), 1):
            plain("ip", "-n", host, "address", "add", f"10.77.0.{number}/24", "dev", "link0")
            plain("ip", "-n", host, "link", "set", "link0", "up")
        return one, two

    def at(self, *parts):
        return os.path.join(self.path, *parts)

    def start(self, host, *command, cwd=None):
        running = Running(host, command, cwd or self.path)
        self.programs.append(running)
        return running

    def run(self, host, *command, cwd=None):
        return self.start(host, *command, cwd=cwd).finish()

    def directory_of(self, name):
        path = self.at(name)
        os.makedirs(path, exist_ok=True)
        return path

    def receiver(self, host):
        """An `itg-recv` that keeps the logs that senders ask for in `theirs`."""
        theirs = self.directory_of("theirs")
        running = self.start(host, ours("itg-recv"), "--log-dir", theirs)
        return running.until("waiting for senders on")

    def classic_receiver(self, host, program):
        # D-ITG's own has no such option, and does not need it.
        trusting = ["--trust-peers"] if program == ours("ITGRecv") else []
        running = self.start(host, program, *trusting, cwd=self.directory_of("theirs"))
        end = time.monotonic() + LIMIT_S
        while "0A" not in [line.split()[3] for line in self.listeners(host)]:
            check(running.child.poll() is None and time.monotonic() < end, *running.said())
            time.sleep(0.05)
        return running

    @staticmethod
    def listeners(host):
        enter = ["nsenter", f"--net=/run/netns/{host}", "cat"]
        text = plain(*enter, "/proc/net/tcp", "/proc/net/tcp6")
        return [line for line in text.splitlines() if re.search(r"^ *\d+: [0-9A-F]+:2328 ", line)]

    def decode(self, *logs):
        """The report on logs: its flows by side."""
        done = self.run(self.hosts[0], ours("itg-decode"), *logs, "--format", "json").exits(0)
        report = json.loads(done.out)
        return {flow["side"]: flow for flow in report["flows"]}

    def packets(self, log):
        done = self.run(self.hosts[0], ours("itg-decode"), log, "--packets", "--format", "csv").exits(0)
        return list(csv.DictReader(io.StringIO(done.out)))


# -- SCTP and DCCP ---------------------------------------------------------------------------------------------------

PACKETS = 120
ADDRESS = {4: "127.0.0.1", 6: "::1"}


def sizes(proto):
    # SCTP messages longer than a link's packets are cut up and put together; DCCP packets are not.
    return "uniform(24,9000)" if proto == "sctp" else "uniform(24,1400)"


def amount(done, pattern):
    found = re.search(pattern + r" (\d+) packets \((\d+) bytes\)", done.out)
    check(found, f"no `{pattern}` in {done}")
    return int(found[1]), int(found[2])


def carries(flow, packets, size, what):
    if size is None:
        size = flow["bytes"]
    got = (flow["packets"], flow["bytes"], flow["lost"] or 0, flow.get("duplicated") or 0)
    check(got == (packets, size, 0, 0), f"{what}: packets, bytes, lost, duplicated are {got}, sent {packets}, {size}")
    cut = [notice for notice in flow.get("notices", []) if "did not arrive with the size" in notice]
    check(not cut, what, *cut)


def came_back(done, packets):
    check(f"{packets} replies came back, 0 did not" in done.out and "they had" not in done.out, done)


def native(proto, version, meter, size=None, count=PACKETS, idt="constant(10ms)"):
    with Cell() as cell:
        host = cell.host()
        cell.receiver(host)
        done = cell.run(
            host, ours("itg-send"), "-v", ADDRESS[version], "--proto", proto, "--meter", meter, "--idt", idt,
            "--size", size or sizes(proto), "--packets", count, "--seed", 7, "--log", "s.itg", "--recv-log", "r.itg",
        ).exits(0)
        arrived = re.search(r": (\d+) packets \((\d+) bytes\) sent, (\d+) \((\d+) bytes\) received: (\d+) packets? lost", done.out)
        if proto == "dccp" and arrived:
            at_the_end(cell, count, *map(int, arrived.groups()))
            return f"{arrived[5]} packets were in DCCP's queue at the end"
        packets, length = amount(done, "both sides agree on")
        check(packets == count, f"{packets} packets of {count}")
        if meter == "rtt":
            came_back(done, count)
        sides = cell.decode(cell.at("s.itg"), cell.at("theirs", "r.itg"))
        for side in ("sender", "receiver"):
            carries(sides[side], packets, length, f"the {side}'s log")


def slow_way_back(count=200):
    """What the receiver's socket has no room for yet is sent back when the flow is over, too."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        plain("tc", "-n", receiver, *"qdisc add dev link0 root netem rate 500kbit limit 10000".split())
        cell.receiver(receiver)
        done = cell.run(
            sender, ours("itg-send"), "-v", "10.77.0.2", "--proto", "sctp", "--meter", "rtt", "--idt", "constant(5ms)",
            "--size", 1000, "--packets", count,
        ).exits(0)
        came_back(done, count)


def at_the_end(cell, count, packets, length, arrived, arrived_length, lost):
    """DCCP drops what waits in its queue (net.dccp.default.tx_qlen, 5) when its sender closes: it counts as lost."""
    check(packets == count and lost == packets - arrived <= 5, f"{packets} packets sent, {arrived} arrived, {lost} lost")
    sides = cell.decode(cell.at("s.itg"), cell.at("theirs", "r.itg"))
    got = [(sides[side]["packets"], sides[side]["bytes"], sides[side]["lost"]) for side in ("sender", "receiver")]
    check(got[1] == (arrived, arrived_length, lost), f"the receiver's log has {got[1]}, told were {arrived}, {arrived_length}, {lost}")
    check(got[0][:2] in ((packets, length), (arrived, arrived_length)), f"the sender's log has {got[0]}")


class DccpCounter:
    """Packets with data that come to the port of ITGRecv on a host, as its kernel counts them."""

    def __init__(self, host):
        self.nft = ["nsenter", f"--net=/run/netns/{host}", "nft"]
        plain(*self.nft, "add table inet lab { chain arriving { type filter hook input priority 0; dccp dport 8999 dccp type { data, dataack } counter; }; }")

    def packets(self):
        rules = json.loads(plain(*self.nft, "-j", "list", "ruleset"))["nftables"]
        return next(part["counter"]["packets"] for entry in rules if "rule" in entry for part in entry["rule"]["expr"] if "counter" in part)


def to_classic(proto, version, meter, sender, receiver):
    """Between a program of D-ITG's and one of ours, or ours in D-ITG's protocol."""
    with Cell() as cell:
        host = cell.host()
        recv = cell.classic_receiver(host, receiver)
        log = cell.at("theirs", "r.log")
        counter = DccpCounter(host) if proto == "dccp" else None
        if os.path.basename(sender) == "itg-send":
            done = cell.run(
                host, sender, "--classic", ADDRESS[version], "--proto", proto, "--meter", meter, "--idt",
                "constant(10ms)", "--size", sizes(proto), "--packets", PACKETS, "--seed", 7, "--log", "s.log",
                "--recv-log", log,
            ).exits(0)
            packets, length = amount(done, "sent")
            if meter == "rtt":
                came_back(done, packets)
        else:
            kind = ["SCTP", "3", "1"] if proto == "sctp" else ["DCCP"]
            cell.run(
                host, sender, "-a", ADDRESS[version], "-T", *kind, "-m", f"{meter}m", "-C", "100", "-u", "100", "1400",
                "-z", PACKETS, "-l", cell.at("s.log"), "-x", log,
            ).exits(0)
            packets, length = PACKETS, None
        recv.stop()
        theirs = list(cell.decode(log).values())
        check(len(theirs) == 1, f"{len(theirs)} flows in the receiver's log")
        if length is None:
            length = theirs[0]["bytes"]
            check(PACKETS * 100 <= length <= PACKETS * 1400, f"{length} bytes in the receiver's log")
        if proto == "dccp":
            arrived = counter.packets()
            got = theirs[0]["packets"]
            check(got == arrived <= packets and theirs[0]["bytes"] <= length, f"{got} packets in the receiver's log, {arrived} arrived")
            if os.path.basename(sender) == "itg-send":
                # DCCP drops what waits in its queue (net.dccp.default.tx_qlen) when its sender closes.
                check(packets - got <= 5, f"{packets - got} of {packets} packets are not in the receiver's log")
            if got < packets:
                # A full queue (tx_qlen) refuses packets, which D-ITG's own sender leaves out then.
                return f"{packets - got} of {packets} packets did not come to the receiver's host"
        else:
            carries(theirs[0], packets, length, "the receiver's log")
        # D-ITG's sender logs replies that come after its last packet left with the size of one before, whoever replies.
        stale = sender == "ITGSend" and meter == "rtt"
        for flow in cell.decode(cell.at("s.log")).values():
            if proto != "dccp":
                carries(flow, packets, None if stale else length, "the sender's log")


# -- netem -----------------------------------------------------------------------------------------------------------

IMPAIRED = 1000


def impair(sender, words):
    """UDP goes through netem; signalling goes past it."""
    tc = ["tc", "-n", sender]
    plain(*tc, "qdisc", "add", "dev", "link0", "root", "handle", "1:", "prio", "bands", "4")
    plain(*tc, "qdisc", "add", "dev", "link0", "parent", "1:4", "handle", "40:", "netem", "limit", "10000", *words.split())
    plain(*tc, *"filter add dev link0 parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:4".split())


def far():
    """The last packets arrive long after the flow's end has been told."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        impair(sender, "delay 700ms")
        cell.receiver(receiver)
        done = cell.run(sender, ours("itg-send"), "-v", "10.77.0.2", "--idt", "constant(500ms)", "--packets", 4).exits(0)
        packets, _ = amount(done, "both sides agree on")
        check(packets == 4, done)


def netem(words, judge):
    """UDP through netem. `judge` is given flow, packets and what netem counted."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        tc = ["tc", "-n", sender]
        impair(sender, words)
        cell.receiver(receiver)
        cell.run(
            sender, ours("itg-send"), "10.77.0.2", "--idt", "constant(3ms)", "--size", 200, "--packets", IMPAIRED,
            "--log", "s.itg", "--recv-log", "r.itg",
        ).exits(0)
        counted = json.loads(plain(*tc, "-s", "-j", "qdisc", "show", "dev", "link0"))
        counted = next(qdisc for qdisc in counted if qdisc["kind"] == "netem")
        logs = cell.at("s.itg"), cell.at("theirs", "r.itg")
        sides = cell.decode(*logs)
        flow = sides["receiver"]
        check(sides["sender"]["packets"] == IMPAIRED, "not all were sent")
        dropped = counted["drops"]
        copies = counted["packets"] - (IMPAIRED - dropped)
        check(flow["packets"] == counted["packets"], f"{flow['packets']} packets, netem let {counted['packets']} go")
        told = flow["packets"] - flow["duplicated"] + flow["lost"]
        check(told == IMPAIRED, f"packets - duplicated + lost is {told}, {IMPAIRED} were sent")
        if not ("loss" in words and "duplicate" in words):
            # netem drops copies, too: then its drops are not the packets that are lost.
            check(flow["lost"] == dropped, f"{flow['lost']} lost, netem dropped {dropped}")
            check(flow["duplicated"] == copies, f"{flow['duplicated']} duplicates, netem made {copies}")
        judge(flow, cell.packets(logs[1]))


def about(what, got, share, of=IMPAIRED):
    """A number of `of` independent events of this probability."""
    spread = 5 * math.sqrt(of * share * (1 - share))
    check(abs(got - of * share) <= spread, f"{what}: {got} of {of}, expected {of * share:.0f} ± {spread:.0f}")


def disorder(packets):
    """Reordered packets as RFC 4737 counts them: those with a number below one that came before. Copies do not count."""
    seen, top, reordered = set(), -1, 0
    for packet in sorted(packets, key=lambda packet: int(packet["arrived_ns"])):
        seq = int(packet["seq"])
        if seq in seen:
            continue
        seen.add(seq)
        reordered += seq < top
        top = max(top, seq)
    return reordered


def agrees_on_order(flow, packets):
    # Packets that two processors receive at the same time may be stamped in one order and read in the other.
    told, got = flow["reordered"], disorder(packets)
    check(told > 0 and abs(told - got) <= 10, f"{told} reordered, {got} by the stamps of arrival")


def delayed(flow, packets):
    delay = flow["delay_ns"]
    check(flow["delay_basis"]["kind"] == "absolute", flow["delay_basis"])
    check(delay["min"] >= 50_000_000, f"the shortest delay is {delay['min']} ns, netem adds 50 ms")
    # How long this machine takes by itself is not what is tested.
    check(delay["p50"] <= 150_000_000, f"the median delay is {delay['p50']} ns")
    check(flow["lost"] == 0, f"{flow['lost']} lost")


def thinned(flow, packets):
    about("lost", flow["lost"], 0.1)


def copied(flow, packets):
    about("duplicated", flow["duplicated"], 0.1)


def shuffled(flow, packets):
    agrees_on_order(flow, packets)
    # A quarter is not held for 200 ms. What is held is never quicker, whatever this machine takes by itself.
    quick = sum(int(packet["arrived_ns"]) - int(packet["sent_ns"]) < 199_000_000 for packet in packets)
    about("sent at once", quick, 0.25)


def everything(flow, packets):
    about("lost", flow["lost"], 0.05)
    about("duplicated", flow["duplicated"], 0.05)
    agrees_on_order(flow, packets)
    check(flow["delay_ns"]["max"] >= 100_000_000, f"the longest delay is {flow['delay_ns']['max']} ns")


# -- clocks ----------------------------------------------------------------------------------------------------------


def two_clocks(there_ms, back_ms):
    """A path with different delays there and back, between hosts that do not know that they have one clock."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        for host, delay in ((sender, there_ms), (receiver, back_ms)):
            plain("tc", "-n", host, *f"qdisc add dev link0 root netem delay {delay}ms limit 10000".split())
        boot_id = cell.at("boot_id")
        with open(boot_id, "w") as file:
            file.write("00000000-0000-4000-8000-000000000001\n")
        other = f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && exec {ours('itg-recv')} --log-dir {cell.directory_of('theirs')}"
        cell.start(receiver, "unshare", "--mount", "sh", "-c", other).until("waiting for senders on")
        cell.run(
            sender, ours("itg-send"), "10.77.0.2", "--idt", "constant(20ms)", "--size", 200, "--packets", 300,
            "--log", "s.itg", "--recv-log", "r.itg",
        ).exits(0)
        flow = cell.decode(cell.at("s.itg"), cell.at("theirs", "r.itg"))["receiver"]
        clock, basis = flow["clock"], flow["delay_basis"]
        check(clock["shared"] is False, "the hosts count as one:", clock)
        # Both hosts' stamps are of this machine's one clock, so the offset is 0 and the stamps' difference is the delay.
        offset, bound = clock["offset_ns"], clock["bound_ns"]
        check(abs(offset) <= bound, f"the offset is {offset} ± {bound} ns: 0 is not within")
        check(bound >= (there_ms + back_ms) * 500_000, f"the bound is {bound} ns, less than half a round trip")
        packets = cell.packets(cell.at("theirs", "r.itg"))
        true = sorted(int(packet["arrived_ns"]) - int(packet["sent_ns"]) for packet in packets)
        check(true[0] >= there_ms * 1_000_000, f"a packet took {true[0]} ns")
        if basis["kind"] == "absolute":
            for name, was in (("min", true[0]), ("p50", true[(len(true) - 1) // 2]), ("max", true[-1])):
                off = abs(flow["delay_ns"][name] - was)
                check(off <= basis["uncertainty_ns"], f"{name}: {flow['delay_ns'][name]} ns ± {basis['uncertainty_ns']}, it was {was}")
        else:
            check(2 * bound > 3 * flow["delay_ns"]["p50"], "relative without a reason:", basis, flow["delay_ns"])
        shortest = clock["round_trip_ns"]
        return f"offset {offset / 1e6:.2f} ± {bound / 1e6:.2f} ms, half the shortest round trip {shortest / 2e6:.2f} ms; median delay {flow['delay_ns']['p50'] / 1e6:.2f} ms, it was {true[(len(true) - 1) // 2] / 1e6:.2f}; {basis['kind']}"


# -- times that the kernel keeps -------------------------------------------------------------------------------------

HELD = 150
# fq and etf (its delta) let packets go up to 100 µs before their time, and this machine reads two clocks up to some 100 µs
# apart. Packets are handed over 500 to 1000 µs before their time: so early leave those that nobody holds.
EARLY_NS = 400_000


def txtime(discipline):
    """--pacing txtime: the queueing discipline lets no packet go before its time."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        if discipline.startswith("etf"):
            # It drops what has no time, signalling included: UDP alone goes through it.
            band = "qdisc add dev link0 parent 1:4 handle 40:"
            plain("tc", "-n", sender, *"qdisc add dev link0 root handle 1: prio bands 4".split())
            plain("tc", "-n", sender, *band.split(), *discipline.split())
            plain("tc", "-n", sender, *"filter add dev link0 parent 1: protocol ip u32 match ip protocol 17 0xff flowid 1:4".split())
        else:
            plain("tc", "-n", sender, *"qdisc replace dev link0 root".split(), *discipline.split())
        cell.receiver(receiver)
        refusals = []
        for attempt in range(10):
            done = cell.run(
                sender, ours("itg-send"), "-v", "10.77.0.2", "--pacing", "txtime", "--tx-stamps", 1, "--idt", "constant(20ms)",
                "--size", 200, "--packets", HELD, "--log", f"{attempt}.itg",
            )
            if done.code == 0:
                break
            # Whether the times of packets are kept is tried first; a busy machine may hold them up.
            # What comes too late to etf is refused, too.
            transient = (
                r"a packet to be held for \S+ left \S+ late|a packet was dropped for its time|a packet vanished|"
                "a packet with a time was refused: No buffer space available"
            )
            # Each clock is tried, and the reason of each is told.
            refused = re.findall(transient, done.out + done.err)
            check(done.code == 3 and refused, done)
            refusals.extend(refused)
        if done.code != 0:
            # etf drops what this machine brings to it too late: refusing is right, and fq must have been kept.
            check(discipline.startswith("etf"), "never quiet enough to keep times:", done)
            # A packet of another clock is refused so each time.
            check(any("No buffer space" not in words for words in refusals), "always refused:", done)
            return f"NOT HELD: too slow here, refused with `{refused[-1]}`"
        flow = cell.decode(cell.at(f"{attempt}.itg"))["sender"]
        departures = flow["departures"]
        check(departures["held"] is True, departures)
        gone = departures["missed"]
        arrived, *_ = [int(count) for count in re.findall(r"(\d+) \(\d+ bytes\) received|both sides agree on (\d+)", done.out + done.err)[0] if count]
        check(arrived + gone == HELD, f"{arrived} arrived, {gone} were dropped for their time:", departures)
        counted = json.loads(plain("tc", "-n", sender, "-s", "-j", "qdisc", "show", "dev", "link0"))
        check(discipline.split()[0] in [qdisc["kind"] for qdisc in counted], counted)
        # Nobody is told of packets that leave before their time but by their stamps.
        lateness = departures["lateness_ns"] or {"min": 0, "p50": "unknown"}
        check(arrived > 0 or not departures["lateness_ns"], "packets departed and none arrived:", departures)
        check(lateness["min"] >= -EARLY_NS, f"a packet left {-lateness['min']} ns early")
        if departures["invalid"] == 0:
            # Numbers of stamps start anew behind each refused packet.
            check(departures["asked"] == HELD, departures)
            check(departures["missing"] == gone, f"{departures['missing']} stamps are missing, {gone} packets were dropped:", departures)
        if not discipline.startswith("etf"):
            check(gone == 0, f"{gone} packets were dropped for their time")
        # etf drops what an emulated machine brings to it too late: how much is this machine's, not ours.
        return f"{arrived} of {HELD} left, the median {lateness['p50']} ns behind its time; {gone} dropped, {departures['invalid']} refused and handed over again"


def unkept():
    """Without a discipline that keeps times: refused, with the command that mends it."""
    with Cell() as cell:
        sender, receiver = cell.pair()
        plain("tc", "-n", sender, *"qdisc replace dev link0 root pfifo_fast".split())
        cell.receiver(receiver)
        done = cell.run(
            sender, ours("itg-send"), "10.77.0.2", "--pacing", "txtime", "--packets", 3, "--size", 200,
        ).exits(3)
        said = done.out + done.err
        for words in ("pfifo_fast", "does not keep the times", "tc qdisc replace dev link0 root fq"):
            check(words in said, f"`{words}` is missing in {done}")


# -- Loss of power --------------------------------------------------------------------------------------------------


class Disk:
    """A file system whose device can lose its power: what is not on the device then is gone (dm-flakey)."""

    def __init__(self, cell):
        with LOCK:
            self.name = f"lab-disk{next(NUMBERS)}"
        self.place, image = cell.directory_of("disk"), cell.at("disk.img")
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        self.loop = plain("losetup", "--find", "--show", image).strip()
        self.sectors = plain("blockdev", "--getsz", self.loop).strip()
        self.device = f"/dev/mapper/{self.name}"

    def __enter__(self):
        plain("dmsetup", "create", self.name, "--table", self.table("linear"))
        plain("dmsetup", "mknodes")
        plain("mkfs.ext4", "-q", "-F", self.device)
        self.mount()
        return self

    def __exit__(self, *_):
        for command in (["umount", self.place], ["dmsetup", "remove", self.name], ["losetup", "-d", self.loop]):
            subprocess.run(command, capture_output=True)

    def table(self, kind):
        if kind == "linear":
            return f"0 {self.sectors} linear {self.loop} 0"
        return f"0 {self.sectors} flakey {self.loop} 0 0 3600 1 drop_writes"

    def mount(self):
        # What nobody syncs stays in memory for as long as the cell runs.
        plain("mount", "-o", "commit=3000", self.device, self.place)

    def switch(self, kind):
        plain("dmsetup", "suspend", "--noflush", "--nolockfs", self.name)
        plain("dmsetup", "load", self.name, "--table", self.table(kind))
        plain("dmsetup", "resume", self.name)

    def lose_power(self):
        """From now on nothing reaches the device."""
        self.switch("flakey")

    def start_again(self):
        plain("umount", self.place)
        self.switch("linear")
        self.mount()


def power(fsync, survives, server_ends):
    """Logs at a log server and in a file, whole and acknowledged; then the power goes."""
    # The kernel may write by itself what nobody has synced: then it is tried again.
    for _ in range(1 if survives else 3):
        found = left_by_power(fsync, server_ends)
        if sum(found.values()) < 2 * PACKETS:
            break
    if survives:
        check(sorted(found.values()) == [PACKETS, PACKETS], f"{found}: {PACKETS} records each were acknowledged")
    else:
        check(sum(found.values()) < 2 * PACKETS, f"{found}: the disk has lost nothing, so this shows nothing")
    return ", ".join(f"{count} records in {name}" for name, count in sorted(found.items())) or "nothing is left"


def left_by_power(fsync, server_ends):
    """Records of each log on the disk behind a loss of power."""
    for file, value in (("dirty_writeback_centisecs", "0"), ("dirty_expire_centisecs", "360000")):
        with open(f"/proc/sys/vm/{file}", "w") as knob:
            knob.write(value)
    with Cell() as cell, Disk(cell) as disk:
        host = cell.host()
        receiver = cell.receiver(host)
        server = cell.start(host, ours("itg-log"), "--dir", disk.place, "--fsync", fsync, "--listen", "127.0.0.1:9003")
        server.until("waiting for producers on")
        send = [ours("itg-send"), "127.0.0.1", "--idt", "constant(2ms)", "--packets", PACKETS, "--log-block", "16"]
        local = os.path.join(disk.place, "local.itg")
        cell.run(host, *send, "--log", local, "--fsync", fsync).exits(0)
        done = cell.run(host, *send, "--log-server", "tcp://127.0.0.1:9003").exits(0)
        check(f"{PACKETS} records" in done.err, "not everything is acknowledged:", done)
        if server_ends:
            server.stop().exits(130)
        disk.lose_power()
        server.kill()
        receiver.stop()
        disk.start_again()
        there = [name for name in os.listdir(disk.place) if name.endswith(".itg")]
        found = {name: 0 for name in there}
        for name in there:
            read = cell.run(host, ours("itg-decode"), os.path.join(disk.place, name), "--packets", "--format", "csv")
            found[name] = max(0, len(read.out.splitlines()) - 1)
        return found


def cells():
    for proto in ("sctp", "dccp"):
        for version in (4, 6):
            for meter in ("owd", "rtt"):
                row = f"{proto} IPv{version} {meter}"
                yield f"{row}: itg-send to itg-recv", native, (proto, version, meter)
                yield f"{row}: itg-send --classic to D-ITG's ITGRecv", to_classic, (proto, version, meter, ours("itg-send"), "ITGRecv")
                yield f"{row}: D-ITG's ITGSend to ITGRecv", to_classic, (proto, version, meter, "ITGSend", ours("ITGRecv"))
        yield f"{proto} IPv4 rtt: ITGSend to D-ITG's ITGRecv", to_classic, (proto, 4, "rtt", ours("ITGSend"), "ITGRecv")
    for meter in ("owd", "rtt"):
        yield f"sctp IPv4 {meter}: the largest messages", native, ("sctp", 4, meter, "constant(65507)", 20, "constant(200ms)")
    yield "sctp IPv4 rtt: a slow way back", slow_way_back, ()
    yield "netem delay", netem, ("delay 50ms", delayed)
    yield "netem delay beyond the flow's end", far, ()
    yield "netem loss", netem, ("loss 10%", thinned)
    yield "netem duplicate", netem, ("duplicate 10%", copied)
    yield "netem reorder", netem, ("delay 200ms reorder 25%", shuffled)
    yield "netem delay, jitter, loss and duplicate", netem, ("delay 100ms 30ms loss 5% duplicate 5%", everything)
    yield "clocks: netem 5 ms there, 25 ms back", two_clocks, (5, 25)
    yield "clocks: netem 25 ms there, 5 ms back", two_clocks, (25, 5)
    yield "txtime fq", txtime, ("fq flow_limit 10000 limit 100000",)
    yield "txtime etf", txtime, ("etf clockid CLOCK_TAI delta 100000",)
    yield "txtime refused", unkept, ()
    yield "power lost, --fsync never: the cell tells", power, ("never", False, False)
    yield "power lost, --fsync interval: whole logs are there", power, ("interval", True, True)
    yield "power lost, --fsync block: what was acknowledged is there", power, ("block", True, False)


def run(name, function, args):
    begun = time.monotonic()
    try:
        said = function(*args)
        line, good = f"ok {name}", True
        line += f" ({said})" if said else ""
    except Failure as failure:
        line, good = f"FAILED {name}: {failure}", False
    except Exception:
        line, good = f"FAILED {name}: {traceback.format_exc()}", False
    with LOCK:
        print(f"{line} [{time.monotonic() - begun:.0f} s]", flush=True)
    return good


def main():
    words = sys.argv[2:]
    wanted = [cell for cell in cells() if not words or any(word in cell[0] for word in words)]
    for module in ("sctp", "dccp_ipv4", "dccp_ipv6", "sch_netem", "sch_fq", "sch_etf", "sch_prio", "cls_u32", "loop", "dm_flakey", "ext4"):
        if subprocess.run(["modprobe", module], capture_output=True).returncode != 0:
            print(f"FAILED {os.uname().release} has no {module}", flush=True)
            return 1
    # What leaves at a certain time is tried when nothing else runs.
    alone = [cell for cell in wanted if cell[0].startswith("txtime")]
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(lambda cell: run(*cell), [cell for cell in wanted if cell not in alone]))
    results += [run(*cell) for cell in alone]
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed", flush=True)
    return 0 if results and passed == len(results) else 1


sys.exit(main())
