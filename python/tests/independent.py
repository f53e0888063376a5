"""Records of a log as the page "Formats" describes them, without a line of ITG's own."""

import struct
from pathlib import Path
from typing import NamedTuple

RECORDS = 0x2C54_97A0_DCE0_E86E
HEADER = struct.Struct("<4sHBBQQIIQQIIQ")
RECORD = struct.Struct("<IIQQQIHBB")


class Record(NamedTuple):
    flow: int
    size: int
    seq: int
    a: int
    b: int
    delta: int
    flags: int
    ttl: int
    tos: int


def records(path: Path) -> list[Record]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        magic, _, _, _, schema, length, *_ = HEADER.unpack_from(data, at)
        assert magic == b"XPC1", f"no block at byte {at}"
        if schema == RECORDS:
            found += map(Record._make, RECORD.iter_unpack(data[at + HEADER.size : at + length]))
        at += length
    return found
