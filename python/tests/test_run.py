"""Runs by the programs of the wheel."""

import concurrent.futures
import copy
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import EXPERIMENT

import itg

TEXT = """\
schema = 1
name = "text"
seed = 1
duration = "500ms"
[[flow]]
idt = "constant(5ms)"
size = 100
"""


def test_programs_are_those_of_the_wheel() -> None:
    for name in ["itg-send", "itg-recv", "itg-log", "itg-decode", "itg-cluster"]:
        path = itg.program(name)
        assert path.parent == Path(sys.executable).parent, path
        version = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout
        assert version.split()[:2] == [name, itg.__version__]
    with pytest.raises(itg.Error, match="no program itg-nothing"):
        itg.program("itg-nothing")


def test_an_experiment_runs_on_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "short.toml"
    file.write_text(TEXT)
    for experiment in [file, str(file), TEXT]:
        run = itg.run(experiment, local=True)
        assert run.directory.parent == Path("itg-out")
        packets = run.read().arrow()
        assert len(packets) == 100, "500 ms / 5 ms"
        assert packets["arrived_ns"].null_count == 0
        assert set(packets["size_bytes"].to_pylist()) == {100}
        assert run.report["total"]["lost"] == 0
    assert len(list(Path("itg-out").iterdir())) == 3


def test_runs_of_one_second_have_their_own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: itg.run(copy.deepcopy(EXPERIMENT), sim=True), range(4)))
    assert len({run.directory for run in runs}) == 4
    sent = len(itg.run(copy.deepcopy(EXPERIMENT), sim=True).read())
    assert sent > 0
    assert all(len(run.read()) == sent for run in runs)


def test_a_mapping_is_the_file_that_it_spells(simulated: itg.Run, tmp_path: Path) -> None:
    again = itg.run(copy.deepcopy(EXPERIMENT), sim=True, out=tmp_path / "again")
    assert [log.read_bytes() for log in again.logs] == [log.read_bytes() for log in simulated.logs]
    with pytest.raises(ValueError, match="no experiment file says this"):
        itg.run({"schema": None}, sim=True)


def test_a_run_that_fails_is_an_exception(tmp_path: Path) -> None:
    with pytest.raises(itg.RunError, match="exit code 2.*durration") as error:
        itg.run(TEXT.replace("duration", "durration"), local=True, out=tmp_path / "a")
    assert (error.value.code, error.value.run.logs) == (2, [])
    with pytest.raises(itg.RunError, match="exit code 99") as error:
        itg.run(TEXT, local=True, out=tmp_path / "b", options=["--fail-if", "packets > 10"])
    assert len(error.value.run.read()) == 100, "what was measured is there"
    other = pickle.loads(pickle.dumps(error.value))
    assert (str(other), other.code, other.run.logs) == (str(error.value), 99, error.value.run.logs)
    with pytest.raises(itg.RunError, match="exit code 2"):
        itg.run(tmp_path / "missing.toml", sim=True, out=tmp_path / "c")
    with pytest.raises(ValueError, match="not both"):
        itg.run(TEXT, local=True, sim=True)


def test_ctrl_c_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = f"import itg; itg.run({TEXT.replace('500ms', '1h')!r}, local=True, out={str(out)!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (out / "receiver.itg").exists() or (out / "receiver.itg").stat().st_size == 0:
        assert time.monotonic() < end and child.poll() is None, "it has begun"
        time.sleep(0.05)
    time.sleep(1)
    os.kill(child.pid, signal.SIGINT)
    _, words = child.communicate(timeout=60)
    assert "KeyboardInterrupt" in words
    run = itg.Run(out)
    packets = run.read()
    assert len(packets) > 10
    assert packets.not_closed == [], "it has drained and closed its logs"
    assert run.report["total"]["packets"] <= len(packets)
