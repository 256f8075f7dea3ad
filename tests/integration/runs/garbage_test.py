"""Shows that malformed messages on every port of a live fleet do no harm: 10,000 of them per port while it trains,
and raw bytes that are no ZeroMQ at all; the run ends with the same bits as one that was left alone."""

import json
import socket
import subprocess
import time
import unittest

import processes
from fleet_case import BIN, FleetCase


class GarbageTest(FleetCase):
    def test_garbage_on_every_port(self):
        job = self.job(servers=1, shards=2, epochs=12)
        alone = self.run_ok(job, "alone")
        run_dir = self.folder / "pestered"
        process = subprocess.Popen(self.command(job, run_dir, "--insecure"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ports = {}
        deadline = time.time() + 30
        while len(ports) < 3 and time.time() < deadline:
            time.sleep(0.05)
            ports = processes.listening_ports(run_dir)
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
