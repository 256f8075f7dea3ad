"""A scheduler and two servers for the tests of Python clients. Makes the package `tarn` of this checkout importable."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("TARN_BIN_DIR", ROOT / "build/release/bin"))
PATIENCE_SECONDS = 60

sys.path.insert(0, str(ROOT / "python"))


class Fleet:
    """A scheduler and its servers, killed at the end of a `with`. `address` is the scheduler's."""

    def __init__(self, workers=1, mode="bsp", apply="aggregated", staleness=0, more=""):
        self._folder = tempfile.TemporaryDirectory(prefix="tarn-test-")
        self.folder = pathlib.Path(self._folder.name)
        job = self.folder / "job.toml"
        job.write_text(f"""
[job]
name = "python"
seed = 5
[fleet]
servers = 2
shards = 2
workers = {workers}
lease_seconds = 5
heartbeat_seconds = 0.2
[consistency]
mode = "{mode}"
staleness = {staleness}
apply = "{apply}"
[storage]
{more if "durability" in more else 'durability = "none"' + chr(10) + more}
""")
        self._processes = []
        port_file = self.folder / "address"
        self._start("scheduler", "--job", job, "--port-file", port_file)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (port_file.exists() and port_file.read_text().endswith("\n")):
            assert time.monotonic() < deadline, "the scheduler does not listen"
            time.sleep(0.01)
        self.address = port_file.read_text().strip()
        for rank in range(2):
            self._start("server", "--scheduler", self.address, "--rank", str(rank))

    def _start(self, role, *arguments):
        self._processes.append(subprocess.Popen([BIN / f"tarn-{role}", *arguments, "--run-dir", self.folder / "run"],
                                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def wait(self):
        """Waits until all processes have ended by themselves."""
        for process in self._processes:
            process.wait(timeout=PATIENCE_SECONDS)

    def stop(self):
        for process in self._processes:
            process.kill()
            process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self._folder.cleanup()
