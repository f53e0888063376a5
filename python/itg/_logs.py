"""Packets and reports of logs."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Union

from . import _itg

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Path = Union[str, "os.PathLike[str]"]


class DamageWarning(UserWarning):
    """A log is damaged: what is good of it was decoded, and the rest is in no figure."""


def _warn(damage: Iterable[dict[str, Any]]) -> None:
    for harm in damage:
        place = "" if harm["offset"] is None else f" at byte {harm['offset']}"
        length = f", {harm['len']} bytes left out" if harm["len"] else ""
        warnings.warn(f"{harm['log']}{place}{length}: {harm['reason']}", DamageWarning, stacklevel=3)


class Packets:
    """A table of packets, one row each, joined over the logs of both sides.

    It is an Arrow table: whatever knows the Arrow PyCapsule interface takes it without a copy, such as
    ``polars.DataFrame(packets)``, ``pyarrow.table(packets)`` and DuckDB. Columns of text are dictionaries. What no
    log says is null. Times but ``planned_ns`` are Unix time in nanoseconds; from ``delay_ns`` what the receiver's
    clock was ahead is taken off, where that is known (``runs`` has the bound of what is left of it).
    """

    def __init__(self, table: _itg.Table, facts: dict[str, Any]) -> None:
        self._table = table
        self.logs: list[dict[str, Any]] = facts["logs"]
        """What each log says of itself: side, host, program, version, settings, run, seed, records."""
        self.flows: list[dict[str, Any]] = facts["flows"]
        """Each flow: number, run, name, node, proto, src, dst, seed."""
        self.runs: list[dict[str, Any]] = facts["runs"]
        """Each run: its id, seed, and the largest error that clocks make in its delays (``clock_bound_ns``)."""
        self.damage: list[dict[str, Any]] = facts["damage"]
        """Damaged parts of logs: log, offset, len, reason. Their packets are in no row."""
        self.not_closed: list[dict[str, Any]] = facts["not_closed"]
        """Logs without an end: still being written, or their writer was killed. What was written is there."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self._table.columns

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"<itg.Packets: {len(self)} packets of {len(self.flows)} flows>"

    def __arrow_c_schema__(self) -> object:
        return self._table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def arrow(self) -> pyarrow.Table:
        """Returns the packets as a table of pyarrow, without a copy."""
        import pyarrow

        return pyarrow.table(self)

    def polars(self) -> polars.DataFrame:
        """Returns the packets as a data frame of polars."""
        import polars

        return polars.DataFrame(self)

    def pandas(self) -> pandas.DataFrame:
        """Returns the packets as a data frame of pandas, by way of pyarrow.

        Numbers are of the type ``Int64``, which knows nulls: a float would round Unix time to 256 ns.
        """
        import pandas
        import pyarrow

        whole = {pyarrow.int64(): pandas.Int64Dtype()}
        frame: pandas.DataFrame = self.arrow().to_pandas(types_mapper=whole.get)
        return frame


def _paths(logs: Sequence[Path]) -> list[str]:
    if not logs:
        raise TypeError("expected at least one log")
    return [os.fspath(log) for log in logs]


def read(
    *logs: Path,
    flows: Iterable[int] = (),
    filter: str | None = None,
    columns: Iterable[str] | None = None,
    threads: int = 0,
) -> Packets:
    """Reads the packets of logs: of a sender, a receiver, or of both sides of the same flows.

    ``flows`` are numbers of flows and ``filter`` a condition, as ``itg-decode --flow`` and ``--filter`` take them;
    ``columns`` are the names of the columns to make; ``threads`` is their number, 0 for all processors.

    Damage of a log is a :class:`DamageWarning` and in ``damage`` of the result.

    Raises :class:`LogError` for a file that is no log of ITG or D-ITG, :class:`OSError` for one that cannot be read,
    :class:`ValueError` for a filter or column that does not exist.
    """
    chosen = None if columns is None else list(columns)
    table, facts = _itg.read(_paths(logs), list(flows), filter, chosen, threads)
    packets = Packets(table, json.loads(facts))
    _warn(packets.damage)
    return packets


def report(
    *logs: Path,
    flows: Iterable[int] = (),
    filter: str | None = None,
    interval: str | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Returns the report of logs, as ``itg-decode --format json`` prints it.

    ``interval`` asks for windows of this length, such as ``"100ms"``. All else is as for :func:`read`.
    """
    text, damage = _itg.report(_paths(logs), list(flows), filter, interval, threads)
    _warn(json.loads(damage))
    found: dict[str, Any] = json.loads(text)
    return found
