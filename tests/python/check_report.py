#!/usr/bin/env python3
"""Computes the figures of a report from its packets, with nothing in common with the decoder.

check_report.py REPORT.json PACKETS.csv

REPORT is what `itg-decode --format json` prints, PACKETS what `--packets --format csv` prints for the
same logs of one run. Flows are taken at the receiver. Prints what does not agree; exit code 1 then.
The order of arrivals is that of their times, so logs whose arrival times tie or go back are not for it.
"""

import csv
import json
import math
import sys

EXACT = 4096  # values that the decoder keeps exactly; beyond, percentiles may be 0.1 % high


def number(text):
    return int(text) if text else None


def quantile(values, share):
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered) - 1e-9), 1) - 1]


def bursts(numbers, arrived):
    """Lost packets, runs of them, the longest, and the changes from one packet to the next."""
    states = [number in arrived for number in numbers]
    runs, longest, length = 0, 0, 0
    for here in states:
        length = 0 if here else length + 1
        runs += length == 1
        longest = max(longest, length)
    pairs = list(zip(states, states[1:]))
    good, bad = [b for a, b in pairs if a], [b for a, b in pairs if not a]
    return {
        "lost": states.count(False),
        "bursts": runs,
        "longest": longest,
        "p": good.count(False) / len(good) if good else None,
        "r": bad.count(True) / len(bad) if bad else None,
    }


class Checker:
    def __init__(self):
        self.wrong = []
        self.checked = 0

    def same(self, name, got, want, relative=1e-9, absolute=1e-6):
        self.checked += 1
        if got is None or want is None:
            good = got is None and want is None
        else:
            good = abs(got - want) <= max(relative * abs(want), absolute)
        if not good:
            self.wrong.append(f"{name}: the report says {got}, the packets say {want}")

    def percentile(self, name, got, values, share):
        want = quantile(values, share)
        # Buckets are at most one part in 1024 wide, and tell their upper end.
        self.same(name, got, want, relative=0 if len(values) <= EXACT else 1 / 1024, absolute=1)


def check_flow(check, flow, rows):
    name = f"flow {flow['flow']}"
    numbers = sorted({row["seq"] for row in rows})
    arrivals = sorted((row for row in rows if row["arrived_ns"] is not None), key=lambda r: r["arrived_ns"])
    n = len(arrivals)
    check.same(f"{name} packets", flow["packets"], n)
    check.same(f"{name} bytes", flow["bytes"], sum(row["size_bytes"] for row in arrivals))
    if not arrivals:
        return
    span = arrivals[-1]["arrived_ns"] - arrivals[0]["arrived_ns"]
    check.same(f"{name} duration", flow["duration_ns"], span)
    # Of n packets n - 1 fall into the time between the first and the last; one packet has no rate.
    rate = (lambda count: count / n * (n - 1) * 1e9 / span) if span and n > 1 else (lambda count: None)
    check.same(f"{name} bitrate", flow["bitrate_bps"], rate(8 * sum(r["size_bytes"] for r in arrivals)))
    check.same(f"{name} rate", flow["packet_rate_pps"], rate(n))

    seen, largest, duplicated, extents, new_bytes = set(), -1, 0, [], 0
    run, free = 0, []
    for place, row in enumerate(arrivals):
        seq = row["seq"]
        if seq in seen:
            duplicated += 1
            continue
        seen.add(seq)
        new_bytes += row["size_bytes"]
        if seq < largest:
            first = next(k for k, other in enumerate(arrivals) if other["seq"] > seq)
            extents.append(place - first)
            if run:
                free.append(run)
            run = 0
        else:
            largest, run = seq, run + 1
    check.same(f"{name} duplicated", flow["duplicated"], duplicated)
    check.same(f"{name} reordered", flow["reordered"], len(extents))
    order = flow["reordering"]
    check.same(f"{name} extent mean", order["extent_mean"], sum(extents) / len(extents) if extents else 0)
    check.same(f"{name} extent max", order["extent_max"], max(extents, default=0))
    check.same(f"{name} free runs", order["free_runs"], len(free))
    check.same(f"{name} free run mean", order["free_run_mean"], sum(free) / len(free) if free else 0)
    check.same(f"{name} goodput", flow["goodput_bps"], rate(8 * new_bytes))

    if flow["lost_basis"] == "sender_log":
        sent = [row["seq"] for row in rows if row["planned_ns"] is not None]
        loss = bursts(sorted(set(sent)), seen)
    elif flow["lost_basis"] == "sequence_numbers":
        loss = bursts(range(numbers[-1] + 1), seen)
    else:
        loss = None
    if loss:
        check.same(f"{name} lost", flow["lost"], loss["lost"])
        check.same(f"{name} loss bursts", flow["loss_bursts"], loss["bursts"])
        mean = loss["lost"] / loss["bursts"] if loss["bursts"] else 0
        check.same(f"{name} loss burst mean", flow["loss_burst_mean"], mean)
        if flow["loss_model"]:
            check.same(f"{name} longest burst", flow["loss_model"]["burst_max"], loss["longest"])
            check.same(f"{name} Gilbert p", flow["loss_model"]["p"], loss["p"])
            check.same(f"{name} Gilbert r", flow["loss_model"]["r"], loss["r"])

    delays = [r["arrived_ns"] - r["sent_ns"] for r in arrivals if r["sent_ns"] is not None]
    if delays:
        delay = flow["delay_ns"]
        mean = sum(delays) / len(delays)
        check.same(f"{name} delay min", delay["min"], min(delays))
        check.same(f"{name} delay max", delay["max"], max(delays))
        check.same(f"{name} delay mean", delay["mean"], mean)
        square = sum((value - delays[0]) ** 2 for value in delays) / len(delays)
        shift = (sum(delays) - len(delays) * delays[0]) / len(delays)
        deviation = math.sqrt(max(square - shift * shift, 0))
        check.same(f"{name} delay deviation", delay["stddev"], deviation, 1e-6, 1e-2)
        check.same(f"{name} negative", flow["negative_delays"], sum(value < 0 for value in delays))
        for key, share in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)]:
            check.percentile(f"{name} delay {key}", delay[key], delays, share)
        shares = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999,
                  "p9999": 0.9999, "p99999": 0.99999}
        told = flow["delay_percentiles_ns"]
        check.same(f"{name} percentiles count", told["count"], len(delays))
        for key, share in shares.items():
            if len(delays) * (1 - share) + 1e-6 >= 10:
                check.percentile(f"{name} percentile {key}", told[key], delays, share)
            else:
                check.same(f"{name} percentile {key}", told[key], None)
        check.same(f"{name} PDV mean", flow["pdv_ns"]["mean"], mean - min(delays), 1e-9, 1e-3)
        check.same(f"{name} PDV max", flow["pdv_ns"]["max"], max(delays) - min(delays))
        steps = [b - a for a, b in zip(delays, delays[1:])]
        if steps:
            sizes = [abs(step) for step in steps]
            check.same(f"{name} jitter mean", flow["jitter_ns"]["mean"], sum(sizes) / len(sizes))
            smooth = 0.0
            for step in sizes:
                smooth += (step - smooth) / 16
            check.same(f"{name} jitter RFC 3550", flow["jitter_ns"]["rfc3550"], smooth, 1e-6)
            check.percentile(f"{name} jitter p99", flow["jitter_ns"]["p99"], sizes, 0.99)
            check.same(f"{name} IPDV min", flow["ipdv_ns"]["min"], min(steps))
            check.same(f"{name} IPDV max", flow["ipdv_ns"]["max"], max(steps))
    stack = [r["read_ns"] - r["arrived_ns"] for r in arrivals if r["read_ns"] is not None]
    way = flow["ledger"]["stack_ns"]
    if way and way["count"] == len(stack):
        check.same(f"{name} stack mean", way["mean"], sum(stack) / len(stack))
        check.same(f"{name} stack max", way["max"], max(stack))
        check.percentile(f"{name} stack p99", way["p99"], stack, 0.99)


def main(report_name, packets_name):
    with open(report_name, encoding="utf-8") as file:
        report = json.load(file)
    rows = {}
    with open(packets_name, encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            # The run is a name; the logs are of one.
            row = {key: number(value) for key, value in line.items() if key != "run"}
            rows.setdefault(row["flow"], []).append(row)
    check = Checker()
    flows = [flow for flow in report["flows"] if flow["side"] == "receiver" and flow["meter"] != "rtt"]
    for flow in flows:
        check_flow(check, flow, rows.get(flow["flow"], []))
    check.same("total packets", report["total"]["packets"], sum(flow["packets"] for flow in flows))
    for line in check.wrong:
        print(line)
    print(f"{check.checked} figures of {len(flows)} flows checked, {len(check.wrong)} wrong")
    return 1 if check.wrong or not flows else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
