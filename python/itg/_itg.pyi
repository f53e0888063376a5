"""The compiled part of the package."""

import os
from collections.abc import Sequence
from typing import Optional, final

__all__ = ["Error", "LogError", "Table", "__version__", "experiment", "read", "report"]

__version__: str

class Error(Exception): ...
class LogError(Error): ...

@final
class Table:
    @property
    def columns(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> object: ...

def read(
    paths: Sequence[str | os.PathLike[str]],
    flows: Sequence[int],
    filter: Optional[str],
    columns: Optional[Sequence[str]],
    threads: int,
) -> tuple[Table, str]: ...
def report(
    paths: Sequence[str | os.PathLike[str]],
    flows: Sequence[int],
    filter: Optional[str],
    interval: Optional[str],
    threads: int,
) -> tuple[str, str]: ...
def experiment(json: str) -> str: ...
