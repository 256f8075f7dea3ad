"""Runs the trials of a study, several at a time. Each trial has a run folder. If the folder has a finished run of the
same settings, the trial is not run again, so that an interrupted study continues."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

from tarn_tools import fleet, launch_options
from tarn_tools.errors import message

DIVERGED = 4  # exit status
SPEC = "trial.json"  # in the folder: the trial's key, and how it ended
ENDED = ("done", "diverged")


@dataclasses.dataclass
class Outcome:
    trial: object
    folder: pathlib.Path
    status: str  # "done", "diverged" or "failed"
    reason: str = ""


def _read(folder, name=SPEC):
    try:
        return json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _is_done(folder):
    """Whether the run trained to its end; a run that was stopped also ends without an error."""
    return _read(folder, "summary.json").get("status") == "done"


def finished(trial, folder):
    """The outcome of an earlier run of the same trial; None if there is none."""
    spec = _read(folder)
    if spec.get("key") != trial.key or spec.get("status") not in ENDED:
        return None
    if spec["status"] == "done" and not _is_done(folder):
        return None
    return Outcome(trial, folder, spec["status"], spec.get("reason", ""))


class Queue:
    """Runs trials, `jobs` at a time, and reports their progress."""

    def __init__(self, study, out, bin_dir, jobs):
        self.study, self.out, self.bin_dir, self.jobs = study, pathlib.Path(out), pathlib.Path(bin_dir), jobs
        self._lock = threading.Lock()
        self._stopping = False
        self._processes = set()
        self._seconds = []  # of trials that were run
        self._done = self._failed = 0

    def run(self, trials, progress):
        """Outcomes in the order of the trials. Raises KeyboardInterrupt after a Ctrl-C, when all processes have ended."""
        known = {trial: finished(trial, self.out / "trials" / trial.folder) for trial in trials}
        todo = [trial for trial in trials if known[trial] is None]
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(self._run_one, trial): trial for trial in todo}
            try:
                for future in concurrent.futures.as_completed(futures):
                    outcome = future.result()
                    known[outcome.trial] = outcome
                    self._done += 1
                    self._failed += outcome.status == "failed"
                    progress(self._line(len(todo), len(trials), begun), outcome)
            except BaseException:
                self._stop()
                pool.shutdown(cancel_futures=True)
                raise
        return [known[trial] for trial in trials]

    def _line(self, todo, total, begun):
        left = todo - self._done
        seconds = (time.monotonic() - begun) / self._done * left
        left_text = f"{seconds / 60:.0f} min left" if seconds >= 90 else f"{seconds:.0f} s left"
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{total - left} of {total} trials{failed}{'' if left == 0 else ', ' + left_text}"

    def _stop(self):
        with self._lock:
            self._stopping = True
            for process in self._processes:
                process.send_signal(signal.SIGTERM)

    def _command(self, trial, folder):
        overrides = [argument for text in trial.overrides for argument in ("--set", text)]
        if self.study.engine == "simulated":
            return [self.bin_dir / "tarn-simulate", "--quiet", "--job", self.study.job, "--run-dir", folder, *overrides]
        return [sys.executable, launch_options.ROOT / "tools/launch", self.study.job, "--bin-dir", self.bin_dir, "--run-dir",
                folder, *overrides]

    def _run_one(self, trial):
        folder = self.out / "trials" / trial.folder
        try:
            return self._run_in(folder, trial)
        except OSError as error:
            return Outcome(trial, folder, "failed", message(error))

    def _run_in(self, folder, trial):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        begun = time.monotonic()
        with self._lock:
            if self._stopping:
                return Outcome(trial, folder, "failed", "interrupted")
            process = subprocess.Popen(self._command(trial, folder), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True, errors="replace", preexec_fn=fleet.dies_with_us())
            self._processes.add(process)
        text = process.stdout.read()
        _, code, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(code)
        with self._lock:
            self._processes.discard(process)
        status = {0: "done", DIVERGED: "diverged"}.get(process.returncode, "failed")
        if self._stopping:
            status = "failed"
        lines = [line for line in text.splitlines() if line.strip()]
        reason = "" if status == "done" else (lines[-1] if lines else f"exit status {process.returncode}")
        if status == "done" and not _is_done(folder):
            status, reason = "failed", "it was stopped before its end"
        if self.study.job_is_changed():
            status, reason = "failed", f"{self.study.job} was changed while the study ran; the same command runs the trials of its new text"
        spec = {"key": trial.key, "status": status, "reason": reason, "wall_seconds": time.monotonic() - begun,
                "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}
        (folder / SPEC).write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        return Outcome(trial, folder, status, reason)


def measured(outcome):
    """Wall-clock seconds, processor seconds and peak memory of a trial; None if unknown."""
    spec = _read(outcome.folder)
    return {name: spec.get(name) for name in ("wall_seconds", "cpu_seconds", "peak_mib")}
