"""Tables and reports of logs, held against the decoder and against logs taken apart by hand."""

import csv
import io
import json
import os
import shutil
import subprocess
import threading
import warnings
from pathlib import Path

import independent
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import itg

CSV = ["flow", "seq", "size_bytes", "planned_ns", "sent_ns", "arrived_ns", "read_ns"]


def decode(*args: object) -> str:
    done = subprocess.run([itg.program("itg-decode"), "-q", *map(str, args)], check=True, capture_output=True, text=True)
    return done.stdout


def logs(run: itg.Run, which: str) -> list[Path]:
    return {"sender": run.logs[1:], "receiver": run.logs[:1], "both": run.logs}[which]


@pytest.mark.parametrize("which", ["sender", "receiver", "both"])
def test_rows_are_the_lines_of_the_decoder(simulated: itg.Run, which: str) -> None:
    assert [log.name for log in simulated.logs] == ["receiver.itg", "sender.itg"]
    given = logs(simulated, which)
    lines = list(csv.reader(io.StringIO(decode(*given, "--packets", "--format", "csv"))))
    assert lines[0] == CSV
    columns = itg.read(*given).arrow().select(CSV).to_pydict()
    rows = [["" if value is None else str(value) for value in row] for row in zip(*columns.values())]
    assert len(rows) > 5000
    assert rows == lines[1:]


@pytest.mark.parametrize("which", ["sender", "receiver", "both"])
def test_columns_are_those_of_parquet(simulated: itg.Run, which: str, tmp_path: Path) -> None:
    given, file = logs(simulated, which), tmp_path / "packets.parquet"
    decode(*given, "--packets", "--format", "parquet", "--output", file)
    theirs, ours = pyarrow.parquet.read_table(file), itg.read(*given).arrow()
    assert ours.column_names == theirs.column_names
    assert ours.to_pydict() == theirs.to_pydict()
    metadata = pyarrow.parquet.read_metadata(file).metadata
    metadata = {key: value for key, value in metadata.items() if key.startswith(b"itg.")}
    assert len(metadata) == 4
    assert ours.schema.metadata == metadata


def test_records_are_those_that_the_format_describes(simulated: itg.Run) -> None:
    receiver, sender = simulated.logs
    read = itg.read(receiver, columns=["seq", "size_bytes", "sent_ns", "arrived_ns"]).arrow()
    arrived = sorted((r.seq, r.size, r.a, r.b) for r in independent.records(receiver) if r.flags & 15 == 2)
    assert sorted(zip(*read.to_pydict().values())) == arrived
    read = itg.read(sender, columns=["seq", "size_bytes", "planned_ns", "sent_ns"]).arrow()
    sent = sorted((r.seq, r.size, r.a, r.b) for r in independent.records(sender) if r.flags & 15 == 1)
    assert sorted(zip(*read.to_pydict().values())) == sent
    assert len(sent) > len(arrived) > 1000, "packets were lost"
    both = itg.read(receiver, sender).arrow()
    assert len(both) == len(sent)
    assert both["arrived_ns"].null_count == len(sent) - len(arrived)


def test_delays_are_those_of_the_report(simulated: itg.Run) -> None:
    frame = simulated.read().pandas()
    report = itg.report(*simulated.logs)
    for flow in (flow for flow in report["flows"] if flow["side"] == "receiver"):
        delays = frame[frame["flow"] == flow["flow"]]["delay_ns"].dropna()
        assert len(delays) == flow["packets"] > 100
        assert delays.min() == flow["delay_ns"]["min"]
        assert delays.mean() == pytest.approx(flow["delay_ns"]["mean"])


def test_every_library_takes_the_table(simulated: itg.Run) -> None:
    packets = simulated.read()
    frames = [packets.polars(), polars.DataFrame(packets), polars.from_arrow(packets.arrow())]
    assert all(frame.equals(frames[0]) for frame in frames)
    assert frames[0].height == len(packets) == len(packets.pandas())
    assert pyarrow.schema(packets).names == packets.columns == frames[0].columns
    means = frames[0].group_by("name").agg(polars.col("size_bytes").mean()).to_dicts()
    assert {row["name"]: row["size_bytes"] for row in means}["even"] == 500


def test_pandas_has_the_very_nanoseconds(simulated: itg.Run) -> None:
    packets = simulated.read()
    column = packets.pandas()["arrived_ns"]
    assert str(column.dtype) == "Int64"
    assert column.isna().any()
    assert [None if value is pandas.NA else value for value in column] == packets.arrow()["arrived_ns"].to_pylist()


def test_selections(simulated: itg.Run) -> None:
    whole = simulated.read()
    one = simulated.read(flows=[1], columns=["delay_ns", "name"])
    assert one.columns == ["delay_ns", "name"]
    assert set(one.arrow()["name"].to_pylist()) == {"even"}
    tcp = simulated.read(filter="proto == tcp")
    assert [flow["name"] for flow in tcp.flows] == ["stream"]
    assert 0 < len(tcp) < len(whole)
    assert len(simulated.read(columns=[])) == len(whole)
    assert len(simulated.read(threads=1)) == len(whole)
    assert len(simulated.read(flows=[99])) == 0
    for wrong, words in [({"columns": ["delay"]}, "no column `delay`"), ({"filter": "prot == tcp"}, "prot")]:
        with pytest.raises(ValueError, match=words):
            simulated.read(**wrong)
    with pytest.raises(ValueError, match="length above 0"):
        itg.report(*simulated.logs, interval="0s")
    with pytest.raises(TypeError):
        itg.read()


def test_facts_are_those_of_the_logs(simulated: itg.Run) -> None:
    packets = simulated.read()
    assert packets.logs == simulated.report["manifest"]["logs"] or len(packets.logs) == 2
    assert {log["side"] for log in packets.logs} == {"sender", "receiver"}
    assert [flow["name"] for flow in packets.flows] == ["even", "any, quoted", "stream"]
    assert [flow["proto"] for flow in packets.flows] == ["udp", "udp", "tcp"]
    [run] = packets.runs
    assert run["seed"] == 7
    assert (packets.damage, packets.not_closed) == ([], [])
    windows = itg.report(*simulated.logs, interval="1s")["intervals"]
    assert windows["interval_ns"] == 10**9


def test_damage_is_told_and_the_rest_is_right(simulated: itg.Run, tmp_path: Path) -> None:
    receiver = simulated.logs[0]
    whole = set(zip(*itg.read(receiver, columns=["flow", "seq", "arrived_ns"]).arrow().to_pydict().values()))
    harmed = tmp_path / "harmed.itg"
    data = bytearray(receiver.read_bytes())
    data[len(data) // 2] ^= 0x10
    harmed.write_bytes(data)
    with pytest.warns(itg.DamageWarning, match="harmed.itg at byte [0-9]+, [0-9]+ bytes left out"):
        packets = itg.read(harmed, columns=["flow", "seq", "arrived_ns"])
    left = set(zip(*packets.arrow().to_pydict().values()))
    assert left < whole
    assert packets.damage[0]["len"] > 0
    with pytest.warns(itg.DamageWarning):
        assert itg.report(harmed)["damage"] == packets.damage
    # An unfinished block at the end is no damage.
    cut = tmp_path / "cut.itg"
    cut.write_bytes(receiver.read_bytes()[:-100])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert itg.read(cut).not_closed[0]["log"] == str(cut)


def test_what_is_no_log_is_an_exception(simulated: itg.Run, tmp_path: Path) -> None:
    strange, empty = tmp_path / "strange.itg", tmp_path / "empty.itg"
    strange.write_bytes(b"\0" * 10_000)
    empty.touch()
    for file, words in [(strange, "not a log of ITG"), (empty, "the file is empty")]:
        with pytest.raises(itg.LogError, match=words):
            itg.read(file)
        with pytest.raises(itg.Error, match=words):
            itg.report(simulated.logs[0], file)
    with pytest.raises(FileNotFoundError, match="missing.itg"):
        itg.read(tmp_path / "missing.itg")
    with pytest.raises(IsADirectoryError):
        itg.read(tmp_path)
    copy = shutil.copy(simulated.logs[0], tmp_path / "copy.itg")
    with pytest.raises(itg.LogError, match="the same log as"):
        itg.read(simulated.logs[0], copy)


def test_other_threads_run_while_logs_are_read(simulated: itg.Run, tmp_path: Path) -> None:
    # The log comes through a pipe, from a thread of the same interpreter.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = simulated.logs[0].read_bytes()
    writer = threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True)
    writer.start()
    assert len(itg.read(pipe)) == len(itg.read(simulated.logs[0]))
    writer.join(10)


def test_the_report_is_that_of_the_decoder(simulated: itg.Run) -> None:
    assert itg.report(*simulated.logs) == json.loads(decode(*simulated.logs, "--format", "json"))
