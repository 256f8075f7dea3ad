"""Stands in for tarn-scheduler, tarn-server and tarn-worker in launch_test.py; acts by the job's [fake] section.

[fake] keys: seconds (how long the job runs), starts and deaths (before the seconds count, so many processes of the
fleet must have begun, and so many must have ended and been reaped), worker_crashes (how many starts of crashing_rank
end in a crash), crashing_rank, server_dies, server_gives_up (prints the reason, exit code 1), scheduler_dies (by
SIGKILL, after the seconds), bad_job, deaf (ignores signals), prints (a line for stderr), worker_fails_at_stop,
slow_seconds (before the scheduler listens), stop_seconds (how long the scheduler takes to stop, unless it is asked
twice), cuts (makes a checkpoint when stopped), ends_badly (all end with exit code 1, servers first, and the
scheduler's summary has the reason), reason (for ends_badly), keeps (checkpoints, such as "ckpt-2", and other files
that the run has), diverges (worker 1 prints that training has diverged, all end with exit code 4, and there are
checkpoints).
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import time
import tomllib


def flag(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


ROLE = os.path.basename(sys.argv[0]).removeprefix("tarn-")
RANK = int(flag("--rank", "0"))
RUN_DIR = pathlib.Path(flag("--run-dir"))
DIVERGED = "worker 1: training has diverged at clock 7 (epoch 1)"


def record(name, text):
    with open(RUN_DIR / name, "a") as file:
        file.write(text + "\n")


def log(text):
    record(f"logs/{ROLE}-{RANK}.log", text)


def awaited(fake):
    pids = [line.split()[2] for line in (RUN_DIR / "pids").read_text().splitlines()]
    gone = [pid for pid in pids if not os.path.exists(f"/proc/{pid}")]  # ended, and reaped by the launcher
    return len(pids) >= fake.get("starts", 0) and len(gone) >= fake.get("deaths", 0)


def reason(fake):
    return fake.get("reason", "worker 1: no such file")


def scheduler():
    job_file = flag("--job")
    fake = tomllib.loads(pathlib.Path(job_file).read_text()).get("fake", {})
    if fake.get("bad_job"):
        print(f"{job_file}:3: unknown key 'modle', did you mean 'model'?", file=sys.stderr)
        sys.exit(2)
    stops = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: (record("signals", f"{ROLE} {n}"), stops.append(n)))
    record("arguments", json.dumps(sys.argv))
    shutil.copyfile(job_file, RUN_DIR / "job.toml")
    for name in fake.get("keeps", []):
        path = RUN_DIR / f"checkpoints/{name}/MANIFEST" if name.startswith("ckpt-") else RUN_DIR / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    time.sleep(fake.get("slow_seconds", 0))
    listener = socket.create_server(("127.0.0.1", 0))
    pathlib.Path(flag("--port-file")).write_text(f"tcp://127.0.0.1:{listener.getsockname()[1]}\n")
    if fake.get("prints"):
        print(fake["prints"], file=sys.stderr)
    end = time.monotonic() + fake.get("seconds", 0.5)
    while time.monotonic() < end and (not stops or fake.get("deaf")) and not (RUN_DIR / "over").exists():
        if not awaited(fake):
            end = time.monotonic() + fake.get("seconds", 0.5)
        record(
            "metrics.jsonl",
            json.dumps(
                {
                    "role": "scheduler",
                    "time": time.time(),
                    "samples": fake.get("samples", 10),
                    "loss": 0.5,
                    "progress": 0.5,
                    "state": "training",
                    "staleness_max": 2,
                }
            ),
        )
        time.sleep(0.05)
    if fake.get("scheduler_dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    if fake.get("worker_fails_at_stop"):
        (RUN_DIR / "stopping").touch()
        time.sleep(0.5)
    if fake.get("diverges"):
        for number in (1, 2, 10):
            (RUN_DIR / f"checkpoints/ckpt-{number}").mkdir(parents=True)
            (RUN_DIR / f"checkpoints/ckpt-{number}/MANIFEST").touch()
        time.sleep(0.5)
        best = str(RUN_DIR / "checkpoints/ckpt-2")
        told = {"job": "fake", "status": "diverged", "reason": DIVERGED, "best_checkpoint": best, "samples": 10}
        (RUN_DIR / "summary.json").write_text(json.dumps(told))
        sys.exit(4)
    if fake.get("ends_badly"):
        (RUN_DIR / "over").touch()
        time.sleep(3)
        (RUN_DIR / "summary.json").write_text(json.dumps({"status": "failed", "reason": reason(fake)}))
        sys.exit(1)
    if stops and fake.get("cuts"):
        (RUN_DIR / "checkpoints/ckpt-1").mkdir(parents=True)
        (RUN_DIR / "checkpoints/ckpt-1/MANIFEST").touch()
    stop_end = time.monotonic() + fake.get("stop_seconds", 0)
    while len(stops) == 1 and time.monotonic() < stop_end:
        time.sleep(0.02)
    how = "stopped" if len(stops) < 2 else "stopped without waiting for the checkpoint"
    summary = {"job": "fake", "status": "stopped" if stops else "finished", "reason": how if stops else "done",
               "samples": fake.get("samples", 1000), "eval_auc": 0.75}
    (RUN_DIR / "summary.json").write_text(json.dumps(summary))
    (RUN_DIR / "done").touch()


def take_keys():
    if flag("--keys") == "/dev/stdin":
        record("keys", f"{ROLE} {RANK} {sys.stdin.read().split()}")


def node():
    take_keys()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, _: (record("signals", f"{ROLE} {n}"), os._exit(1)))
    fake = tomllib.loads((RUN_DIR / "job.toml").read_text()).get("fake", {})
    starts = (RUN_DIR / "pids").read_text().count(f"{ROLE} {RANK} ")
    log(f"start {starts}")
    if ROLE == "worker" and RANK == fake.get("crashing_rank", 0) and starts <= fake.get("worker_crashes", 0):
        log("gradient is not finite")
        sys.exit(1)
    if ROLE == "server" and RANK == 1 and fake.get("server_dies"):
        time.sleep(0.3)
        log("disk is full")
        os.abort()
    if ROLE == "server" and RANK == 1 and fake.get("server_gives_up"):
        print("tarn-server: unavailable: disk is full", file=sys.stderr)
        sys.exit(1)
    if ROLE == "worker" and RANK == 1 and fake.get("diverges"):
        (RUN_DIR / "over").touch()
        print("tarn-worker: " + DIVERGED.removeprefix("worker 1: "), file=sys.stderr)
        sys.exit(4)
    while not (RUN_DIR / "done").exists():
        time.sleep(0.02)
        if fake.get("diverges") and (RUN_DIR / "over").exists():
            sys.exit(4)
        if ROLE == "server" and (RUN_DIR / "over").exists():
            print(f"tarn-server: not-found: {reason(fake)}", file=sys.stderr)
            sys.exit(1)
        if ROLE == "worker" and RANK == 1 and (RUN_DIR / "stopping").exists():
            log("cannot write")
            sys.exit(1)


record("pids", f"{ROLE} {RANK} {os.getpid()}")
scheduler() if ROLE == "scheduler" else node()
