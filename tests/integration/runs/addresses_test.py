"""RUN_DIR/addresses.json has the HTTP address of every process of a fleet before it trains, and of a worker that replaces
another; each address serves health, readiness and metrics that promtool accepts; Prometheus can scrape the fleet from it."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import processes
from fleet_case import FleetCase

PATIENCE_SECONDS = 120  # limit of a wait for what must happen
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
STALE = '[{"role": "worker", "rank": 0, "http": "http://127.0.0.1:9"}]'
FLEET = [("scheduler", 0), ("server", 0), ("server", 1), ("worker", 0), ("worker", 1)]


def get(address, path):
    """(status, text); (0, "") if nothing answers."""
    try:
        with urllib.request.urlopen(address + path, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def metric(text, name):
    """The value in the first line of the metric."""
    return float(re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE).group(1))


class AddressesTest(FleetCase):
    def eventually(self, found, what):
        """Waits until found() is true. Returns its result."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (value := found()):
            if self.fleet.poll() is not None:
                self.fail(f"the fleet has ended: {self.fleet.stdout.read()}")
            self.assertLess(time.monotonic(), deadline, f"not in {PATIENCE_SECONDS} s: {what}")
            time.sleep(0.05)
        return value

    def listed(self):
        """The entries of the list; none while there is no list of this start."""
        try:
            text = self.list.read_text()
        except FileNotFoundError:
            return []
        return [] if text == STALE else json.loads(text)

    def address(self, role, rank):
        return next(entry["http"] for entry in self.listed() if (entry["role"], entry["rank"]) == (role, rank))

    def stop(self):
        if self.fleet.stdout.closed:
            return ""
        if self.fleet.poll() is None:
            self.fleet.send_signal(signal.SIGINT)
        return self.fleet.communicate(timeout=PATIENCE_SECONDS)[0]

    def setUp(self):
        """A fleet that trains until it is stopped."""
        self.run_dir = self.folder / self.id().split(".")[-1]
        self.list = self.run_dir / "addresses.json"
        self.start()

    def start(self, *more):
        job = self.job(epochs=10_000, durability="log", checkpoint_final=False)
        self.fleet = subprocess.Popen([*self.command(job, self.run_dir), *more], stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.stop)
        self.entries = self.eventually(self.listed, "the list")

    def test_every_process_shows_health_and_metrics(self):
        self.assertEqual([(entry["role"], entry["rank"]) for entry in self.entries], FLEET, "the first list is whole")
        pages = {}
        for entry in self.entries:
            self.assertEqual(list(entry), ["role", "rank", "http"])
            self.assertRegex(entry["http"], r"^http://127\.0\.0\.1:[1-9][0-9]*$")
            with self.subTest(**entry):
                self.assertEqual(get(entry["http"], "/healthz"), (200, "ok\n"))
                self.eventually(lambda: get(entry["http"], "/readyz") == (200, "ready\n"), "ready")
                status, page = get(entry["http"], "/metrics")
                self.assertEqual(status, 200)
                self.assertIn(f'process_start_time_seconds{{run="{self.run_dir.name}",role="{entry["role"]}",'
                              f'rank="{entry["rank"]}"}}', page)
                pages[entry["role"], entry["rank"]] = page
        self.assertEqual(sorted(pages), FLEET)
        server = self.address("server", 1)
        self.eventually(lambda: metric(get(server, "/metrics")[1], "tarn_shard_rows") > 0, "rows")

        for process, page in pages.items():
            with self.subTest("promtool", process=process):
                if PROMTOOL is None:
                    self.skipTest("no promtool here (tools/install prometheus)")
                done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

        output = self.stop()
        self.assertEqual(self.fleet.returncode, 0, output)

    def test_a_worker_that_is_started_again_is_listed_where_it_is_now(self):
        lines = processes.naming(self.run_dir)
        killed = time.time()
        os.kill(next(pid for pid in processes.workers(self.run_dir) if lines[pid][lines[pid].index("--rank") + 1] == "1"),
                signal.SIGKILL)

        def is_listed_anew():
            status, page = get(self.address("worker", 1), "/metrics")
            return status == 200 and metric(page, "process_start_time_seconds") >= killed

        self.eventually(is_listed_anew, "the new worker in the list")
        self.assertEqual([(entry["role"], entry["rank"]) for entry in self.listed()], FLEET)

    def test_a_run_that_continues_shows_nothing_of_before(self):
        self.fleet.kill()  # and with it the fleet
        self.fleet.communicate(timeout=PATIENCE_SECONDS)
        self.list.write_text(STALE)
        self.start("--resume", self.run_dir)
        self.assertEqual([(entry["role"], entry["rank"]) for entry in self.entries], FLEET)
        for entry in self.entries:
            self.eventually(lambda: get(entry["http"], "/readyz") == (200, "ready\n"), f"ready: {entry}")

    @unittest.skipIf(PROMETHEUS is None, "no prometheus here (tools/install prometheus)")
    def test_prometheus_scrapes_the_fleet(self):
        folder = self.folder / "prometheus"
        folder.mkdir()
        targets = [entry["http"].removeprefix("http://") for entry in self.entries]
        (folder / "tarn.json").write_text(json.dumps([{"targets": targets}]))
        (folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}\n"
                                               "scrape_configs:\n"
                                               "  - job_name: tarn\n"
                                               "    honor_labels: true\n"
                                               "    file_sd_configs: [{files: [tarn.json]}]\n")
        log = folder / "log"
        with open(log, "w", encoding="utf-8") as file:
            prometheus = subprocess.Popen(
                [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                 "--web.listen-address=127.0.0.1:0"], stdout=file, stderr=subprocess.STDOUT)
        self.addCleanup(prometheus.wait)
        self.addCleanup(prometheus.kill)
        at = self.eventually(lambda: re.search(r'"Listening on" address=(\S+)', log.read_text()), "Prometheus listens")

        def query(text):
            status, page = get(f"http://{at.group(1)}", "/api/v1/query?" + urllib.parse.urlencode({"query": text}))
            results = json.loads(page)["data"]["result"] if status == 200 else []
            return {(result["metric"].get("role"), result["metric"].get("rank")): float(result["value"][1])
                    for result in results}

        self.eventually(lambda: query("sum(up)") == {(None, None): 5}, "all targets are up")
        self.eventually(lambda: len(query("process_start_time_seconds")) == 5, "metrics of all")
        self.assertEqual(sorted(query("process_start_time_seconds")), [(role, str(rank)) for role, rank in FLEET])
        self.eventually(lambda: all(query("tarn_worker_samples_total > 0").get(("worker", str(rank))) for rank in (0, 1)),
                        "samples of both workers")


if __name__ == "__main__":
    unittest.main(verbosity=2)
