"""Shows that malformed messages on every port of a live fleet do no harm: 10,000 of them per port while it trains,
and raw bytes that are no ZeroMQ at all; the run ends with the same bits as one that was left alone. And that no program
aborts that ends while hundreds of connections are half open or send garbage."""

import contextlib
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import unittest

import processes
from fleet_case import BIN, FleetCase


RUSHES = int(os.environ.get("TARN_RUSHES", "3"))
PORTS = 3 + 4  # of the scheduler and two shards, and of each process's HTTP server
HALF_OPEN, GARBAGE = 500, 200  # connections at a time
GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x00NULL"  # the beginning of ZMTP's, so that the other side waits for more


class Rush:
    """Keeps connections to ports open from threads of its own: some that stop within the greeting, others with garbage."""

    def __init__(self, ports):
        self._ports, self._over = ports, threading.Event()
        self.opened = itertools.count()
        self._threads = [threading.Thread(target=self._keep, args=(HALF_OPEN, self._half_open)),
                         threading.Thread(target=self._keep, args=(GARBAGE, self._garbage))]
        for thread in self._threads:
            thread.start()

    def end(self):
        self._over.set()
        for thread in self._threads:
            thread.join()
        return next(self.opened)

    def _keep(self, count, send):
        held, draw = [], random.Random(count)
        while not self._over.is_set():
            try:
                held.append(socket.create_connection(("127.0.0.1", draw.choice(self._ports)), timeout=1))
                send(held[-1], draw)
                next(self.opened)
            except OSError:
                time.sleep(0.001)  # the program has ended, or has closed a connection that sends garbage
            if len(held) > count:
                held.pop(draw.randrange(len(held))).close()
        for connection in held:
            connection.close()

    @staticmethod
    def _half_open(connection, draw):
        connection.sendall(GREETING[:draw.randrange(len(GREETING))])

    @staticmethod
    def _garbage(connection, draw):
        connection.sendall(draw.randbytes(draw.randrange(1, 4000)))


class GarbageTest(FleetCase):
    def ports_of(self, run_dir, count):
        """The ports of a run, once it listens on `count` of them; fewer after 30 seconds."""
        ports, deadline = {}, time.monotonic() + 30
        while len(ports) < count and time.monotonic() < deadline:
            time.sleep(0.05)
            ports = processes.listening_ports(run_dir)
        return ports

    def rushed(self, job, name, expected_hash):
        """Runs `job` during a Rush; it must end cleanly and with those bits. Returns the number of connections
        opened."""
        run_dir = self.folder / name
        process = subprocess.Popen(self.command(job, run_dir, "--insecure"), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        rush = Rush(list(self.ports_of(run_dir, PORTS)))
        output, _ = process.communicate(timeout=600)
        opened = rush.end()
        self.assertEqual(process.returncode, 0, f"{name}: {output}")
        summary = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(summary["parameters_hash"], expected_hash, name)
        shutil.rmtree(run_dir)
        return opened

    def test_nobody_aborts_who_ends_among_hundreds_of_connections(self):
        epochs, runs = 6, 0
        while runs < RUSHES:
            job = self.job(servers=1, shards=2, epochs=epochs)
            alone = self.run_ok(job, f"undisturbed-{epochs}")
            while runs < RUSHES and self.rushed(job, f"rush-{epochs}-{runs}", alone["parameters_hash"]) >= HALF_OPEN:
                runs += 1
            epochs *= 2  # a run that was over before so many were open does not count
            self.assertLess(epochs, 1000, "every run was over before the connections were open")

    def pester_http(self, port):
        draw = random.Random(port)
        for _ in range(300):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                with contextlib.suppress(ConnectionError):  # it closes what is no request
                    raw.sendall(b"GET /metrics HTTP/1.1\r\nHost: "[:draw.randrange(30)] + draw.randbytes(draw.randrange(20000)))
        self.assertTrue(processes.speaks_http(port))

    def pester(self, http, fleet):
        for port in http:
            self.pester_http(port)
        for number, port in enumerate(fleet):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 20)
            subprocess.run([BIN / "tarn-garbage", "--endpoint", f"tcp://127.0.0.1:{port}", "--seed", str(number + 1)],
                           check=True, timeout=120)

    def pestered(self, epochs):
        """Runs a fleet that gets garbage on every port; it must end with the bits of an undisturbed one. Returns
        whether it still trained when all was sent."""
        job = self.job(servers=1, shards=2, epochs=epochs)
        alone = self.run_ok(job, f"alone-{epochs}")
        run_dir = self.folder / f"pestered-{epochs}"
        process = subprocess.Popen(self.command(job, run_dir, "--insecure"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        ports = self.ports_of(run_dir, PORTS)
        http = {port: program for port, program in ports.items() if processes.speaks_http(port)}
        fleet = {port: program for port, program in ports.items() if port not in http}
        self.assertEqual(sorted(fleet.values()), ["tarn-scheduler", "tarn-server", "tarn-server"])
        self.assertEqual(sorted(http.values()), ["tarn-scheduler", "tarn-server", "tarn-worker", "tarn-worker"])
        failure = None
        try:
            self.pester(http, fleet)
        except (OSError, AssertionError, subprocess.CalledProcessError) as error:  # nobody listens once the run is over
            failure = error
        in_time = failure is None and process.poll() is None
        output, _ = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, f"{output}\n{failure}")
        pestered = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(pestered["parameters_hash"], alone["parameters_hash"])
        self.assertEqual(pestered["samples"], alone["samples"])
        return in_time

    def test_garbage_on_every_port(self):
        epochs = 12
        while not self.pestered(epochs):
            epochs *= 2  # a run that was over before all was sent does not count
            self.assertLess(epochs, 1000, "every run was over before all was sent")


if __name__ == "__main__":
    unittest.main(verbosity=2)
