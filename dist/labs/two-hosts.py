#!/usr/bin/python3
"""two-hosts.py [--bw MBPS] [--delay T] [--loss PERCENT] [EXPERIMENT]: an experiment between two hosts of Mininet.

As root, with Mininet (Debian: apt-get install mininet) and ITG's programs on the path:

    sudo python3 two-hosts.py
    sudo python3 two-hosts.py --bw 20 --delay 10ms --loss 0.1

Each host is an agent, so that an experiment may send from h1 to h2 and back; logs, report and manifest of the run are in
mininet-out. Rate, delay and loss are those of the link (tc, netem).
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

from mininet.link import Link, TCLink
from mininet.net import Mininet

EXPERIMENT = """
schema = 1
name = "mininet"
seed = 1
duration = "5s"
[nodes]
h1 = { address = "10.0.0.1" }
h2 = { address = "10.0.0.2" }
[[flow]]
name = "call"
from = "h1"
to = "h2"
profile = "voip-g711"
[[flow]]
name = "bulk"
from = "h2"
to = "h1"
proto = "tcp"
rate = "5Mbps"
size = "constant(1000)"
"""


def wait_for(host, keys):
    """Until the agent of a host answers; ten seconds at most."""
    status = ["itg-cluster", "status", "--at", host.IP(), "--keys", keys]
    for _ in range(100):
        if host.popen(status, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0:
            return
        time.sleep(0.1)
    sys.exit(f"no agent on {host.name}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--bw", type=float, help="rate of the link in Mbit/s")
    options.add_argument("--delay", help="delay of each direction, as 10ms")
    options.add_argument("--loss", type=float, help="lost packets of each direction in percent")
    options.add_argument("--out", default="mininet-out", help="new directory for the results [default: %(default)s]")
    options.add_argument("experiment", nargs="?", help="an experiment file with the nodes h1 (10.0.0.1) and h2 (10.0.0.2)")
    asked = options.parse_args()
    shape = {name: value for name in ("bw", "delay", "loss") if (value := getattr(asked, name)) is not None}

    net = Mininet(controller=None, link=TCLink if shape else Link)
    h1, h2 = net.addHost("h1", ip="10.0.0.1/24"), net.addHost("h2", ip="10.0.0.2/24")
    net.addLink(h1, h2, **shape)
    with tempfile.TemporaryDirectory() as work:
        keys = f"{work}/keys"
        subprocess.run(["itg-cluster", "keys", keys], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        experiment = pathlib.Path(asked.experiment or f"{work}/mininet.toml")
        if not asked.experiment:
            experiment.write_text(EXPERIMENT)
        agents = []
        net.start()
        try:
            for host in (h1, h2):
                command = ["itg-cluster", "agent", "--listen", f"{host.IP()}:9020", "--keys", keys, "--dir", f"{work}/{host.name}"]
                agents.append(host.popen(command, cwd=work, stdout=subprocess.DEVNULL))
            for host in (h1, h2):
                wait_for(host, keys)
            run = ["itg-cluster", "run", str(experiment.resolve()), "--keys", keys, "--out", str(pathlib.Path(asked.out).resolve())]
            # With the streams of this program.
            code = h1.popen(run, stdin=None, stdout=sys.stdout, stderr=sys.stderr).wait()
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                agent.wait(timeout=10)
            net.stop()
    return code


sys.exit(main())
