"""speed.py [ROUNDS [LOG...]]: how many records a second itg.read makes a table of, beside itg-decode.

Without logs it simulates 20 million packets first, and reads the receiver's log. Each round measures all ways one after
the other, in another order than the one before; medians count. Run it in the environment of the wheel.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import itg


def simulated(directory: Path) -> list[Path]:
    flow = {"idt": "constant(3us)", "size": 100}
    link = {"kind": "switch", "rate": "10Gbps", "queue": 1000}
    flows = [{"name": f"f{number}", **flow} for number in range(3)]
    run = itg.run(
        {"schema": 1, "name": "speed", "seed": 1, "duration": "20s", "flow": flows, "network": link},
        sim=True,
        out=directory / "run",
    )
    return run.logs[:1]


def timed(work) -> float:
    began = time.perf_counter()
    result = work()
    took = time.perf_counter() - began
    del result
    return took


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as scratch:
        logs = [Path(log) for log in sys.argv[2:]] or simulated(Path(scratch))
        decoder = itg.program("itg-decode")

        def decode(*options: str):
            command = [decoder, "-q", *logs, *options]
            return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        numbers = ["flow", "seq", "size_bytes", "sent_ns", "arrived_ns", "delay_ns"]
        ways = {
            "itg.read, all 14 columns": lambda: itg.read(*logs),
            "itg.read, 6 columns": lambda: itg.read(*logs, columns=numbers),
            "itg.read, 2 columns": lambda: itg.read(*logs, columns=["flow", "delay_ns"]),
            "itg.read to polars, 6 columns": lambda: itg.read(*logs, columns=numbers).polars(),
            "itg-decode, report": decode(),
            "itg-decode --packets, CSV": decode("--packets", "--format", "csv"),
        }
        records = sum(log["records"] for log in itg.read(*logs, columns=[]).logs)
        took: dict[str, list[float]] = {name: [] for name in ways}
        order = random.Random(1)
        for _ in range(rounds):
            for name in order.sample(list(ways), len(ways)):
                took[name].append(timed(ways[name]))
        load = " ".join(f"{value:.1f}" for value in os.getloadavg())
        print(f"{records / 1e6:.1f} million records, {os.cpu_count()} processors, {rounds} rounds, load {load}")
        for name, times in took.items():
            rate = records / statistics.median(times) / 1e6
            print(f"{name:32} {rate:6.1f} million records/s (best {records / min(times) / 1e6:.1f})")


main()
