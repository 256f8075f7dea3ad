"""Shows that a fleet on one machine is its user's alone: another user of the host finds no port but those that show
health and metrics, cannot reach its sockets, ask for a checkpoint, join as a worker, or get memory shared; the run ends
with the same bits."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

import processes
from fleet_case import BIN, FleetCase

NOBODY = "65534"
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
ALLOWED = "connected"
# Prints the result of connecting to each socket; requests shared memory from a SEQPACKET socket that accepts.
KNOCK = f"""
import socket, sys
for name in sys.argv[1:]:
    kind = socket.SOCK_SEQPACKET if name.startswith("@") else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX, kind) as knock:
        knock.settimeout(5)
        try:
            knock.connect(name.replace("@", chr(0), 1))
            if kind == socket.SOCK_SEQPACKET:
                knock.send(b"0" * 32)
                if not knock.recv(1):
                    raise PermissionError("ended")
            print("{ALLOWED}", name)
        except OSError as error:
            print(type(error).__name__, name)
"""


def stranger(*command, timeout=60):
    done = subprocess.run([*AS_NOBODY, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    return done.returncode, done.stdout


def can_run_as_nobody():
    return os.geteuid() == 0 and shutil.which("setpriv") and stranger(BIN / "tarn-worker", "--help")[0] == 0


def doors(run_dir):
    """Names of the abstract Unix sockets (those without a file) on which the processes of a run listen."""
    held = processes.sockets(run_dir)
    lines = [line.split() for line in pathlib.Path("/proc/net/unix").read_text().splitlines()[1:]]
    return sorted({fields[7] for fields in lines if len(fields) == 8 and fields[6] in held and fields[7].startswith("@tarn")})


@unittest.skipUnless(can_run_as_nobody(), "needs root and setpriv, and programs that another user may run")
class StrangerTest(FleetCase):
    def setUp(self):
        self.folder.chmod(0o755)  # so that the mode of this folder is not what keeps other users out

    def start(self, name, *more):
        run_dir = self.folder / name
        process = subprocess.Popen(self.command(self.long_job(), run_dir, *more), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        deadline = time.time() + 60
        while time.time() < deadline and not self.trains(run_dir):
            time.sleep(0.05)
        self.assertTrue(self.trains(run_dir), "the fleet does not begin")
        return process, run_dir

    def long_job(self):
        return self.job(epochs=40)

    @staticmethod
    def trains(run_dir):
        metrics = run_dir / "metrics.jsonl"
        return metrics.exists() and '"state":"train"' in metrics.read_text()

    def test_nobody_else_reaches_a_local_fleet(self):
        alone = self.run_ok(self.long_job(), "alone")
        process, run_dir = self.start("visited")
        ports = processes.listening_ports(run_dir)  # open to every user of the host
        self.assertEqual(set(ports.values()), {"tarn-scheduler", "tarn-server", "tarn-worker"})
        for port, program in ports.items():
            self.assertTrue(processes.speaks_http(port), f"port {port} of {program} is for more than metrics")
            self.assertIn(b" 405 ", processes.http_answer(port, "POST /metrics"), program)
        sockets = sorted(str(path) for path in (run_dir / "sockets").iterdir())
        self.assertEqual(len(sockets), 3, sockets)
        names = sockets + doors(run_dir)
        self.assertEqual(len(names), 5, names)
        _, output = stranger(sys.executable, "-c", KNOCK, *names)
        came_of_it = output.split()[0::2]
        self.assertEqual(came_of_it[:3], ["PermissionError"] * 3, output)
        self.assertEqual((len(came_of_it), ALLOWED in came_of_it), (5, False), output)

        code, output = stranger(BIN / "tarn-checkpoint", run_dir, "--silence-seconds", "5")
        self.assertEqual(code, 1, output)
        self.assertIn("another user", output)
        address = (run_dir / "scheduler.address").read_text().strip()
        for more in ([], ["--insecure"]):
            code, output = stranger("timeout", "5", BIN / "tarn-worker", "--scheduler", address, "--rank", "0", *more)
            self.assertNotEqual(code, 0, output)

        output, _ = process.communicate(timeout=240)
        self.assertEqual(process.returncode, 0, output)
        visited = json.loads((run_dir / "summary.json").read_text())
        self.assertEqual(visited["parameters_hash"], alone["parameters_hash"])
        self.assertEqual((visited["samples"], visited["workers_died"]), (alone["samples"], 0))
        self.assertFalse((run_dir / "sockets").exists(), "it goes with the run")

    def test_keys_do_the_same_on_ports(self):
        keys = self.folder / "fleet.keys"
        subprocess.run([BIN / "tarn-keys", keys], check=True, stdout=subprocess.DEVNULL)
        process, run_dir = self.start("keyed", "--keys", keys)
        address = (run_dir / "scheduler.address").read_text().strip()
        self.assertTrue(address.startswith("tcp://127.0.0.1:"), address)
        code, output = stranger(BIN / "tarn-checkpoint", run_dir, "--silence-seconds", "2", "--insecure")
        self.assertEqual(code, 1, output)
        self.assertIn("no answer from the scheduler", output)
        process.send_signal(2)
        output, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
