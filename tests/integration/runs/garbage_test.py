"""Shows that malformed messages on every port of a live fleet do no harm: 10,000 of them per port while it trains,
and raw bytes that are no ZeroMQ at all; the run ends with the same bits as one that was left alone."""

import json
import pathlib
import socket
import subprocess
import time
import unittest

from fleet_case import BIN, FleetCase


def listening_ports(run_dir):
    """Ports on which the processes of a run listen: {port: program}."""
    inodes = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
            if not line[0].startswith(str(BIN).encode()) or str(run_dir).encode() not in b" ".join(line):
                continue
            for fd in (entry / "fd").iterdir():
                target = str(fd.readlink())
                if target.startswith("socket:["):
                    inodes[target[8:-1]] = pathlib.Path(line[0].decode()).name
        except OSError:
            continue
    ports = {}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and fields[9] in inodes:
            ports[int(fields[1].split(":")[1], 16)] = inodes[fields[9]]
    return ports


class GarbageTest(FleetCase):
    def test_garbage_on_every_port(self):
        job = self.job(servers=1, shards=2, epochs=12)
        alone = self.run_ok(job, "alone")
        run_dir = self.folder / "pestered"
        process = subprocess.Popen(self.command(job, run_dir), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ports = {}
        deadline = time.time() + 30
        while len(ports) < 3 and time.time() < deadline:
            time.sleep(0.05)
            ports = listening_ports(run_dir)
        self.assertEqual(sorted(ports.values()), ["tarn-scheduler", "tarn-server", "tarn-server"])
        for number, port in enumerate(ports):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 20)
            subprocess.run([BIN / "tarn-garbage", "--endpoint", f"tcp://127.0.0.1:{port}", "--seed", str(number + 1)],
                           check=True, timeout=120)
        output, _ = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, output)
        pestered = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(pestered["parameters_hash"], alone["parameters_hash"])
        self.assertEqual(pestered["samples"], alone["samples"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
