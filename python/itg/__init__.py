"""Logs of ITG as tables, and runs of its experiments.

>>> import itg                                                      # doctest: +SKIP
>>> run = itg.run("experiment.toml", local=True)                    # doctest: +SKIP
>>> run.report["total"]["lost"]                                     # doctest: +SKIP
0
>>> packets = itg.read("sender.itg", "receiver.itg").pandas()       # doctest: +SKIP

What columns and figures mean is in the page "What itg-decode prints" of ITG's documents.
"""

from ._itg import Error, LogError, __version__
from ._logs import DamageWarning, Packets, read, report
from ._run import Run, RunError, program, run

__all__ = [
    "DamageWarning",
    "Error",
    "LogError",
    "Packets",
    "Run",
    "RunError",
    "__version__",
    "program",
    "read",
    "report",
    "run",
]
