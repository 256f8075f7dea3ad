"""The options of tools/launch: its command line, the run directory and the programs."""

import argparse
import contextlib
import fcntl
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import time
import tomllib

from tarn_tools import called, hosts, manifest

ROOT = called.ROOT
PROGRAMS = ("tarn-scheduler", "tarn-server", "tarn-worker")
MAKES_KEYS = "tarn-keys"
CLIENT_TARGET = "tarn_c"  # of the build: libtarn.so
ADDRESS = re.compile(rf"({hosts.ADDRESS.pattern})(:([0-9]{{1,5}}))?")
PATHS = (("data", "dir"), ("storage", "tier_dir"))  # paths in --set are relative to the current directory
PERIODIC = {"checkpoint_seconds": 600.0, "checkpoint_clocks": 0}  # keys of [storage] with the defaults of the job file
PORT_MAX = 65535
LOCK_NAME = "launch.lock"  # in a run directory, locked by flock
LOADER_FAILED = 127  # exit code of a program with missing or too old libraries

HELP_EPILOG = """\
Your own program as worker: after two dashes, give a program that runs instead of tarn-worker, once per worker of the
job:

  tools/launch examples/python/factorization.toml -- python3 examples/python/factorization.py

  The program joins the fleet with tarn.connect(), which reads TARN_SCHEDULER, TARN_RANK and TARN_KEYS from the
  environment. TARN_WORKERS is the number of workers, TARN_RUN_DIR a folder for files of the run. The run ends when all
  workers have ended. A worker that fails ends the run. If the job sets fleet.worker_restarts, it is first restarted, up
  to that many times. Workers that depend on each other, such as those of DistributedDataParallel, start again together: --restarts.
  TARN_STARTS_AGAIN is the number of earlier starts of the fleet in this run folder.

Several machines: HOSTS is a file such as this one. Its counts replace fleet.servers and fleet.workers of the job:

  local  servers=1               # this machine, where the scheduler runs; needs no ssh
  node1  servers=1 workers=4     # a name for ssh; address=HOST sets the address of its servers for workers
  node2  workers=4

  tools/launch JOB.toml --hosts HOSTS --run-dir /shared/runs/mine

  Each host needs the programs (--remote-dir), the data under the same path as here, and ssh access without a prompt.
  Checkpoints need a run folder that all hosts with servers share under the same path (--run-dir); to run without
  checkpoints, use --set storage.durability=none. The launcher checks all of this before it starts anything. Hosts must
  reach each other and this machine on any port. Connections are encrypted with keys generated for the run, unless
  --keys or --insecure is given. When the launcher ends, all processes on the hosts end too.

Ctrl-C (or SIGTERM) stops cleanly: the scheduler writes a checkpoint and stops the fleet. A second one kills the fleet.
A dead worker is restarted, at most fleet.worker_restarts times. A dead server or scheduler ends the run as failed, or
starts the whole fleet again with --restarts.

exit codes  0 the run finished or was stopped cleanly    1 the run failed
            2 bad usage or bad job                       4 training diverged
            130 killed by a second Ctrl-C
"""


def parse_arguments(argv):
    parser = argparse.ArgumentParser(
        prog=called.here("tools/launch"),
        usage=called.here("tools/launch [options] [JOB.toml] [-- PROGRAM [ARGUMENT...]]"),
        description="Trains one job with a scheduler, servers and workers: on this machine, or on those of --hosts.",
        epilog=called.here(HELP_EPILOG),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", nargs="?", metavar="JOB.toml", help="job file; with --resume the default is the job of the run or checkpoint")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="section.key=value",
        dest="overrides",
        help="override one key of the job; may be repeated; data.dir=DIR is relative to the current folder",
    )
    parser.add_argument(
        "--resume",
        metavar="RUN_DIR|CHECKPOINT",
        help="continue from a checkpoint, or from the newest one of a run, in a new folder. A crashed run with "
        "durability \"log\" continues from its logs, in its own folder",
    )
    parser.add_argument(
        "--restarts",
        type=int,
        default=0,
        metavar="N",
        help="when a process has died and the run would fail, start the whole fleet again, from its logs or its newest "
        "checkpoint, at most N times (default: 0)",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="folder for the files of the run (default: runs/<job>-<UTC time>)")
    parser.add_argument("--bin-dir", metavar="DIR", help="use programs from this folder without building them (default: build/release/bin)")
    parser.add_argument("--keys", metavar="FILE", help="key file for all programs of the fleet, made by tarn-keys")
    parser.add_argument("--insecure", action="store_true", help="allow TCP without keys: anyone who can connect to a port can change the job")
    parser.add_argument("--record", action="store_true", help=called.here("record the run in RUN_DIR/record, so that tools/replay repeats it to the bit; without periodic checkpoints"))
    parser.add_argument("--no-shm", action="store_true", help="use only sockets, no shared memory")
    parser.add_argument("--quiet", action="store_true", help="print only failures and the result")
    parser.add_argument("--plain", action="store_true", help="print lines instead of updating one line")
    add_hosts_options(parser)
    words, dashes, program = split_at_dashes(argv)
    options, unknown = parser.parse_known_args(words)
    options.program = program
    check_overrides(parser, options, words)
    if options.restarts < 0:
        parser.error(f"--restarts {options.restarts}: expected at least 0")
    if unknown:
        parser.error(f"unrecognized arguments: {shlex.join(unknown)}{hint_of_dashes(options, words, unknown, dashes)}")
    if dashes and not program:
        parser.error("a program is missing after --")
    if options.job is None and options.resume is None:
        parser.error("JOB.toml is missing")
    if options.resume and not os.path.isdir(options.resume):
        parser.error(f"no such run or checkpoint: {options.resume}")
    if options.job is None and not os.path.isfile(manifest_of(options)):  # a checkpoint holds its job
        options.job = os.path.join(options.resume, "job.toml")
        if not os.path.isfile(options.job):
            parser.error(f"--resume {options.resume}: neither a run (job.toml) nor a checkpoint (MANIFEST) is in it")
    if options.job is not None and not os.path.isfile(options.job):
        parser.error(f"no such job file: {options.job}")
    if options.keys and not os.path.isfile(options.keys):
        parser.error(f"no such key file: {options.keys} (tarn-keys makes one)")
    try:
        take_hosts(options)
        take_record(options)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    check_data(parser, options, words)
    return options


def check_data(parser, options, words):
    """Exits with an error for a job without training data. The scheduler reports the errors of a job that cannot be
    read."""
    readable = bool(read_job(options)) if options.job is None else read_toml(options.job, None) is not None
    if options.program or not readable or section(effective_job(options), "data").get("train"):
        return
    parser.error(
        "the job has no training file, which tarn-worker needs. Set train under [data], or give a program to run in "
        f"its place: {called.here('tools/launch')} {shlex.join(words)} -- PROGRAM [ARGUMENT...]"
    )


def check_overrides(parser, options, words):
    """Exits with an error for a --set without an equals sign, with a suggestion if the value follows."""
    for override in options.overrides:
        if "=" in override:
            continue
        behind = words[words.index(override) + 1:] if override in words else []
        value = behind[0] if behind and not behind[0].startswith("--") else "VALUE"
        parser.error(f"--set {override}: expected section.key=value, such as --set {shlex.quote(f'{override}={value}')}")


def hint_of_dashes(options, words, unknown, dashes):
    """A suggestion if a program seems to follow the job without two dashes; else empty."""
    first = unknown[0]
    if options.job in words and not os.path.isfile(options.job):
        first = options.job  # of --resume RUN PROGRAM: no job file is named
    if dashes or first.startswith("-") or first not in words:
        return ""
    at = words.index(first)
    command = shlex.join([*called.words("launch"), *words[:at], "--", *words[at:]])
    return f". A program of your own, as each worker, follows two dashes: {command}"


def split_at_dashes(argv):
    at = argv.index("--") if "--" in argv else len(argv)
    return argv[:at], argv[at:at + 1], argv[at + 1:]


def add_hosts_options(parser):
    several = parser.add_argument_group("several machines")
    several.add_argument("--hosts", metavar="FILE", help="file with the hosts of servers and workers, one per line (see below)")
    several.add_argument(
        "--address",
        metavar="HOST[:PORT]",
        default="",
        help="address of this machine for the hosts (default: that of the interface that leads to the first host, any port)",
    )
    several.add_argument("--ssh", metavar="COMMAND", default="ssh", help="command to reach hosts, such as 'ssh -p 2222' (default: %(default)s)")
    several.add_argument(
        "--remote-dir",
        metavar="DIR",
        help="folder of tarn on the hosts, a built checkout or an unpacked bundle; relative to the home folder (default: "
        "the path here)",
    )


def take_hosts(options):
    """Reads the file of --hosts into options.hosts; its counts become those of the job. Raises OSError and ValueError."""
    options.hosts_file = options.hosts
    if options.hosts is None:
        for name in ("address", "ssh", "remote_dir"):
            if getattr(options, name) not in (None, "", "ssh"):
                raise ValueError(f"--{name.replace('_', '-')} needs --hosts FILE")
        options.hosts = []
        return
    address = ADDRESS.fullmatch(options.address)
    if options.address and not (address and int(address[3] or 1) in range(1, PORT_MAX + 1)):
        raise ValueError(f"--address {options.address}: expected HOST or HOST:PORT, with a name or an IPv4 address")
    if not shlex.split(options.ssh):
        raise ValueError("--ssh: expected a command, such as 'ssh -p 2222'")
    if not os.path.exists(options.hosts):
        raise ValueError(f"no such file of hosts: {options.hosts}")
    path, options.hosts = options.hosts, hosts.read(options.hosts)
    given = section(overridden({}, options.overrides), "fleet")
    for role, count in hosts.counts(options.hosts).items():
        if given.get(role, count) != count:
            raise ValueError(
                f"{path}: {role}={count} in all, but --set says fleet.{role}={given[role]}: expected the same, or only "
                "one of them"
            )
        options.overrides.append(f"fleet.{role}={count}")


def take_record(options):
    """With --record, turns periodic checkpoints off, because they change the clocks of workers. Raises ValueError.
    Sets options.periodic: the job's settings of them."""
    if not options.record:
        return
    for given, what in ((options.restarts, "--restarts"), (options.program, "a program of your own"), (options.resume, "--resume"), (options.hosts, "--hosts")):
        if given:
            raise ValueError(f"--record with {what}: expected a new run of tarn-worker on this machine")
    storage = section(effective_job(options), "storage")
    options.periodic = {key: storage.get(key, default) for key, default in PERIODIC.items()}
    options.overrides += [f"storage.{key}=0" for key in PERIODIC]


def go_on_command(options, run_dir, overrides=()):
    """The command that resumes a run with these options. On several machines it requires a shared directory."""
    words = called.words("launch")
    ssh = options.ssh if options.ssh != "ssh" else None
    in_its_own = os.path.exists(os.path.join(run_dir, "scheduler.state"))
    run = re.sub(r"/checkpoints/ckpt-\d+$", "", str(run_dir))  # a diverged run continues from one of its checkpoints
    following = f"{run}-2" if options.hosts and not in_its_own else None
    for flag, value in (("--run-dir", following), ("--bin-dir", options.bin_dir), ("--keys", options.keys), ("--hosts", options.hosts_file),
                        ("--address", options.address), ("--ssh", ssh), ("--remote-dir", options.remote_dir)):
        words += [flag, value] if value else []
    for flag, given in (("--insecure", options.insecure), ("--no-shm", options.no_shm)):
        words += [flag] if given else []
    words += ["--restarts", str(options.restarts)] if options.restarts else []
    words += ["--resume", str(run_dir)]
    # A resumed run is not recorded. One that continues from its logs keeps its job unchanged.
    periodic = options.periodic if options.record and not in_its_own else {}
    for override in [*overrides, *(f"storage.{key}={value}" for key, value in periodic.items() if value)]:
        words += ["--set", override]
    return shlex.join([*words, *(["--", *options.program] if options.program else [])])


def manifest_of(options):
    return os.path.join(options.resume, "MANIFEST")


def read_job(options):
    """The contents of the job file, or the job in the checkpoint, as a dict; empty if it cannot be read."""
    return read_toml(options.job) if options.job is not None else manifest.job(manifest_of(options))


def read_toml(path, unreadable={}):
    """The file's contents; `unreadable` if it is not TOML, which the scheduler reports."""
    try:
        return tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return unreadable


def section(job, name):
    """A section of a job; empty if it is missing or not a section."""
    found = job.get(name)
    return found if isinstance(found, dict) else {}


def effective_job(options):
    """The job with the overrides of --set; only the overrides if the job cannot be read."""
    return overridden(read_job(options), options.overrides)


def overridden(job, overrides):
    for override in overrides:
        key, _, value = override.partition("=")
        name, _, key = key.strip().partition(".")
        value = toml_value(value)
        if (name, key) in PATHS and isinstance(value, str) and value:
            value = os.path.abspath(value)
        job = job | {name: section(job, name) | {key: value}}
    return job


def toml_value(text):
    """Parses a value of --set like the programs: text that is not TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except ValueError:
        return text.strip()


def job_name(options):
    name = section(effective_job(options), "job").get("name", "job")
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in str(name)).lstrip(".")
    return kept or "job"


class RunDir:
    """The directory of a run, locked by this launcher until its process ends (LOCK_NAME, by flock).

    After make_run_dir, `path` has only logs/ and the lock; with `keep` also the files of the run that continues in it.
    """

    def __init__(self, path, made, lock, keep=False):
        self.path, self._made, self._lock, self.keep = path, made, lock, keep

    def remove(self):
        """Removes the files of the run; keeps an existing directory, and everything of a run that continues."""
        if self.keep:
            return
        for entry in self.path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != LOCK_NAME:
                entry.unlink(missing_ok=True)
        (self.path / LOCK_NAME).unlink(missing_ok=True)  # last, so that no other launcher begins here before
        if self._made:
            with contextlib.suppress(OSError):  # another launcher has begun here since then
                self.path.rmdir()


def hold(path):
    """Locks the directory for this launcher. Returns the open lock file; closing it, or the end of the process,
    releases the lock.

    Raises OSError if another launcher has the lock, or if the file system does not support flock.
    """
    name = path / LOCK_NAME
    while True:
        lock = open(name, "ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise BlockingIOError(
                f"{path}: another {called.here('tools/launch')} runs in this folder (it holds {LOCK_NAME}). Wait until it has ended, or stop it"
            ) from None
        except OSError as error:
            lock.close()
            raise OSError(error.errno, f"cannot lock this file: {error.strerror}", str(name)) from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), os.stat(name)):
                return lock
        lock.close()  # the previous owner has removed the file


def goes_on(options):
    """Whether the run to resume has logs and crashed: the scheduler's state exists until a run ends."""
    return bool(options.resume) and os.path.isfile(os.path.join(options.resume, "scheduler.state"))


def make_run_dir(options):
    """Returns the locked directory of the run: that of --resume if its run continues there, that of --run-dir, or a new
    one under runs/. Raises OSError."""
    if goes_on(options):
        path = pathlib.Path(options.resume)
        if options.run_dir and not (os.path.exists(options.run_dir) and os.path.samefile(options.run_dir, path)):
            raise FileExistsError(f"--run-dir {options.run_dir}: a run with a log continues in its own folder, {path}")
        lock = hold(path)
        if not goes_on(options):
            raise FileNotFoundError(f"{path}: the run has ended meanwhile; to begin another from its newest checkpoint, repeat this")
        (path / "logs").mkdir(exist_ok=True)
        return RunDir(path, made=False, lock=lock, keep=True)
    if options.run_dir:
        return given_run_dir(pathlib.Path(options.run_dir))
    base = f"{job_name(options)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    for attempt in range(1, 1000):
        path = pathlib.Path("runs") / (base if attempt == 1 else f"{base}-{attempt}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        lock = hold(path)
        (path / "logs").mkdir()
        return RunDir(path, made=True, lock=lock)
    raise FileExistsError(f"runs/{base} and 998 more exist")


def given_run_dir(path):
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"--run-dir {path}: this is a file; name a new or an empty folder")
    made = not path.exists()
    require_empty(path)
    path.mkdir(parents=True, exist_ok=True)
    lock = hold(path)
    require_empty(path)  # another launcher may have run here meanwhile
    (path / "logs").mkdir()
    return RunDir(path, made, lock)


def require_empty(path):
    if path.exists() and any(entry.name != LOCK_NAME for entry in path.iterdir()):
        if (path / LOCK_NAME).exists():
            hold(path).close()  # raises a better error if another launcher runs there
        raise FileExistsError(
            f"--run-dir {path}: this folder is not empty. Name a new or an empty one, or leave --run-dir out for a new "
            f"one under runs/. To go on with the run that is in it: --resume {path}"
        )


def programs(options):
    """The programs that the launcher runs."""
    away = any(not host.here for host in options.hosts)
    names = PROGRAMS[:-1] if options.program else PROGRAMS
    return (*names, MAKES_KEYS) if away and not options.keys and not options.insecure else names


def find_programs(options, names=PROGRAMS, libraries=()):
    """The directory of these programs: --bin-dir or that of a bundle (tools/bundle), or build/release/bin after a build
    of these targets."""
    if options.bin_dir:
        folder = pathlib.Path(options.bin_dir).absolute()  # a program without a slash would be looked up in PATH
        missing = [name for name in names if not os.access(folder / name, os.X_OK)]
        if missing:
            raise FileNotFoundError(f"no program {missing[0]} in {folder}")
        use_fallback_libraries(folder)
        return folder
    if not (ROOT / "tools/build").exists():
        use_fallback_libraries(ROOT / "bin")
        return ROOT / "bin"
    build_programs(options.quiet, (*names, *libraries))
    return ROOT / "build/release/bin"


def use_fallback_libraries(folder):
    """If the programs of a bundle do not find a suitable C++ library, makes processes started from here use the
    bundle's."""
    fallback = folder.parent / "lib/fallback"
    if not fallback.exists():
        return
    tried = subprocess.run([folder / PROGRAMS[0], "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if tried.returncode == LOADER_FAILED:
        before = os.environ.get("LD_LIBRARY_PATH")
        os.environ["LD_LIBRARY_PATH"] = f"{fallback.resolve()}:{before}" if before else str(fallback.resolve())


def build_programs(quiet, names):
    """Builds and shows the progress, if any. Raises CalledProcessError with the output that was not shown."""
    command = [ROOT / "tools/build", "release", *names]
    hidden = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as build:
        for line in build.stdout:
            if quiet or "is up to date" in line:
                hidden.append(line)
            else:
                print(line, end="", flush=True)
    if build.returncode != 0:
        raise subprocess.CalledProcessError(build.returncode, command, "".join(hidden))
