"""Runs of experiments by the programs of this package."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _itg
from ._logs import Packets, read

Experiment = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class RunError(_itg.Error):
    """A run that failed; what it has left is in ``run``."""

    def __init__(self, code: int, stderr: str, run: Run) -> None:
        words = stderr.strip() or "it said nothing"
        super().__init__(f"itg-cluster run ended with exit code {code}: {words}")
        self.code = code
        """Exit code of the program: 1 the run failed, 2 the request makes no sense, 3 a peer was not reachable or
        refused, 4 a peer vanished, 98 and 99 a gate failed; below 0 the signal that killed it."""
        self.stderr = stderr
        """What the program said."""
        self.run = run
        """What is there of the run."""

    def __reduce__(self) -> tuple[type[RunError], tuple[int, str, Run]]:
        # It reaches the caller of a worker process as it is.
        return RunError, (self.code, self.stderr, self.run)


class Run:
    """Results of a run, in its directory."""

    def __init__(self, directory: Union[str, os.PathLike[str]], stderr: str = "") -> None:
        self.directory = pathlib.Path(directory)
        """Directory of logs, report and manifest."""
        self.stderr = stderr
        """What the program said."""

    def __repr__(self) -> str:
        return f"<itg.Run: {self.directory}>"

    @property
    def logs(self) -> list[pathlib.Path]:
        """Paths of its logs."""
        return sorted(self.directory.rglob("*.itg"))

    @property
    def report(self) -> dict[str, Any]:
        """The report that the run left, as ``itg-decode --format json`` prints it."""
        found: dict[str, Any] = json.loads((self.directory / "report.json").read_text(encoding="utf-8"))
        return found

    def read(self, **options: Any) -> Packets:
        """Reads the packets of its logs; options are those of :func:`itg.read`."""
        return read(*self.logs, **options)


def program(name: str) -> pathlib.Path:
    """Returns the path of a program of ITG, such as ``itg-send``: the one that this package has installed, or else the
    one on the PATH.

    Raises :class:`Error` where there is none.
    """
    try:
        installed = importlib.metadata.files("itg") or []
    except importlib.metadata.PackageNotFoundError:
        installed = []
    own = [pathlib.Path(str(file.locate())) for file in installed if file.name == name]
    # pip install --target moves programs without a word in its record.
    own.append(pathlib.Path(__file__).parent.parent / "bin" / name)
    for path in own:
        if os.access(path, os.X_OK):
            return path.resolve()
    found = shutil.which(name)
    if found is None:
        raise _itg.Error(f"no program {name}: this build of the package came without programs, and PATH has none")
    return pathlib.Path(found)


def _new_directory(name: str) -> pathlib.Path:
    """Makes a directory, so that no other run has it."""
    letters = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name).strip(".")
    base = f"{letters or 'run'}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = 0
    while True:
        path = pathlib.Path("itg-out") / (f"{base}-{taken}" if taken else base)
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            taken += 1


def _carry_out(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and words of a program, in a process group of its own: Ctrl-C reaches it once, through us."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _, words = child.communicate()
    except BaseException:
        # It drains and writes its logs and report first.
        child.send_signal(signal.SIGINT)
        child.communicate()
        raise
    return child.returncode, words.decode(errors="replace")


def run(
    experiment: Experiment,
    *,
    local: bool = False,
    sim: bool = False,
    out: Union[str, os.PathLike[str], None] = None,
    options: Sequence[str] = (),
) -> Run:
    """Runs an experiment and returns its results.

    ``experiment`` is the path of an experiment file, its text (TOML, of more than one line), or a mapping of its keys.
    Files that it names lie beside it; a text or a mapping names them by absolute paths.
    ``local`` runs all its nodes on this host, ``sim`` in virtual time over the network that it describes; with neither
    it runs over agents, which ``options`` then name (``["--keys", "keys"]``). ``out`` is a new directory, which is
    ``itg-out/NAME-DATE-TIME`` without it; ``options`` are further ones of ``itg-cluster run``. Ctrl-C ends the run,
    which keeps what was measured.

    Raises :class:`RunError` when the run or one of its gates fails.
    """
    if local and sim:
        raise ValueError("an experiment runs on this host or in virtual time: give local or sim, not both")
    world = ["--local"] if local else ["--sim"] if sim else []
    with tempfile.TemporaryDirectory(prefix="itg-") as scratch:
        if isinstance(experiment, Mapping):
            file, name = pathlib.Path(scratch) / "experiment.toml", str(experiment.get("name", "run"))
            file.write_text(_itg.experiment(json.dumps(experiment)), encoding="utf-8")
        elif isinstance(experiment, str) and "\n" in experiment:
            file, name = pathlib.Path(scratch) / "experiment.toml", "run"
            file.write_text(experiment, encoding="utf-8")
        else:
            file = pathlib.Path(experiment)
            name = file.stem
        directory = pathlib.Path(out) if out is not None else _new_directory(name)
        command = [str(program("itg-cluster")), "run", *world, "--out", str(directory), *options, "--", str(file)]
        code, words = _carry_out(command)
    result = Run(directory, words)
    if code != 0:
        if out is None:
            # It stays where anything is in it.
            with contextlib.suppress(OSError):
                directory.rmdir()
        raise RunError(code, words, result)
    return result
