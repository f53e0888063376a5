"""Logs for the tests: of a simulated link that loses packets, made by the programs of the wheel."""

import pytest

import itg

EXPERIMENT = {
    "schema": 1,
    "name": "three flows",
    "seed": 7,
    "duration": "4s",
    "flow": [
        {"name": "even", "idt": "constant(1ms)", "size": 500},
        {"name": "any, quoted", "idt": "exp(1ms)", "size": "uniform(100,1400)"},
        {"name": "stream", "proto": "tcp", "rate": "1Mbps", "size": 1000},
    ],
    "network": {"kind": "switch", "rate": "9Mbps", "queue": 50},
}


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> itg.Run:
    return itg.run(EXPERIMENT, sim=True, out=tmp_path_factory.mktemp("runs") / "sim")
