"""A program of a user: held against the types, never run."""

from pathlib import Path

import itg


def late(path: Path) -> int:
    packets: itg.Packets = itg.read(path, "send.itg", flows=[1], filter="proto == udp", columns=["seq", "delay_ns"])
    rows: int = len(packets) + packets.polars().height + packets.arrow().num_rows
    frame = packets.pandas()
    return rows + len(frame.index)


def lost(experiment: dict[str, object]) -> int:
    try:
        done = itg.run(experiment, local=True, out="out", options=["--seed", "1"])
    except itg.RunError as error:
        return error.code
    names: list[Path] = done.logs
    report = itg.report(*names, interval="1s")
    return int(report["total"]["lost"]) + len(done.read(columns=["seq"]))
