"""Places the processes of a fleet: all on this machine, or on the hosts of tools/launch --hosts through ssh."""

import io
import os
import pathlib
import socket
import subprocess
import tarfile

from tarn_tools import fleet, hosts, launch_options, own_program, preflight, remote, summary

KEYS_NAME = "fleet.keys"  # in the run directory, where tarn-checkpoint searches for it
EVERY_INTERFACE = "tcp://0.0.0.0"
CONNECTING_MAX = 4  # connections to one host in progress: sshd by default rejects some beyond ten (MaxStartups)
FETCH_SECONDS_MAX = 60.0
CLEAR_SECONDS_MAX = 10.0
HAS_FILES = 3  # exit status of remote_clear.sh
LOG_SECONDS_MAX = 5.0
DISCARD_PORT = 9


class CannotDeploy(Exception):
    """The fleet cannot be started; the message has a line per host with what to do."""


class Deployment:
    """The deployment of one run. Without --hosts everything is started on this machine: the programs connect through
    sockets in the run directory that only this user can reach, or with --keys or --insecure through loopback ports."""

    def __init__(self, options, bin_dir, run_dir):
        self._options, self._bin_dir, self._run_dir = options, bin_dir, run_dir
        self._remote_run_dir = os.path.abspath(run_dir)  # the same path on the hosts, where it may be another directory
        self._places = hosts.places(options.hosts)
        self._away = [host for host in options.hosts if not host.here]
        self._ssh = remote.Ssh(options.ssh)
        self._found = {}  # name of the host -> preflight.Found
        self._address = ""
        self._keys = os.path.abspath(options.keys) if options.keys else None
        self._made_keys = None

    def where(self):
        """Text such as " on 3 hosts"; empty if all processes are on this machine."""
        return f" on {summary.counted(len(self._options.hosts), 'host')}" if self else ""

    def __bool__(self):
        """Whether anything runs on another machine."""
        return bool(self._away)

    # --- before the run ---

    def prepare(self, given_up):
        """Checks all hosts, and makes keys if there are none. Stops when `given_up()` is true. Raises CannotDeploy."""
        if not self:
            return
        try:
            self._found = preflight.check(self._ssh, self._away, self._needs(), given_up)
        except OSError as error:
            raise CannotDeploy(f"{error.filename or self._options.ssh}: {error.strerror}") from error
        problems = [f"{host.name}: {problem}" for host in self._away for problem in self._found[host.name].problems]
        if given_up():
            return
        if problems:
            raise CannotDeploy("\n".join(problems))
        self._address = self._options.address or self._own_address()
        if not self._keys and not self._options.insecure:
            self._make_keys()

    def _needs(self):
        options = self._options
        job = launch_options.effective_job(options)
        resumed = os.path.abspath(options.resume) if options.resume else ""
        root = options.remote_dir or str(launch_options.ROOT)
        folders = [os.path.join(root, "build/release/bin"), os.path.join(root, "bin")]
        if options.bin_dir and not options.remote_dir:
            folders = [os.path.abspath(options.bin_dir)]
        base_dir = os.path.dirname(os.path.abspath(options.job)) if options.job else "/"
        return preflight.Needs(
            run_dir=self._remote_run_dir,
            folders=folders,
            # A program reads data of its own.
            data=[] if options.program else preflight.data_files(launch_options.section(job, "data"), base_dir),
            resumed=resumed,
            # The scheduler reports the errors of a job that cannot be read.
            checkpoints=bool(launch_options.read_job(options))
            and launch_options.section(job, "storage").get("durability") != "none",
        )

    def _own_address(self):
        """The address of the interface that leads to the first host other than this machine."""
        found = ""
        for host in self._away:
            try:
                found = address_towards(self._ssh.hostname(host.name))
            except (OSError, UnicodeError) as error:
                why = getattr(error, "strerror", None) or error
                raise CannotDeploy(
                    f"{host.name}: cannot determine this machine's address towards this host ({why}): pass --address "
                    "HOST[:PORT], an address of this machine that all hosts can reach"
                ) from error
            if not found.startswith("127."):
                break
        return found

    def _make_keys(self):
        path = os.path.join(self._remote_run_dir, KEYS_NAME)
        pathlib.Path(path).unlink(missing_ok=True)  # left by a killed launcher of this run
        try:
            made = subprocess.run([self._bin_dir / launch_options.MAKES_KEYS, path], capture_output=True, text=True)
        except OSError as error:
            raise CannotDeploy(f"cannot run {error.filename}: {error.strerror}; or name a key file, --keys FILE") from error
        if made.returncode:
            raise CannotDeploy(made.stderr.strip())
        self._keys = self._made_keys = path

    # --- the processes ---

    def scheduler_arguments(self):
        """Arguments for the scheduler's endpoint and its address for the hosts."""
        host, _, port = self._address.partition(":")
        return ["--bind", f"{EVERY_INTERFACE}:{port or '*'}", "--advertise", host] if self else []

    def node(self, role, rank, arguments, sizes=None):
        """The process of that rank, not started yet. `sizes`: the [fleet] of the run's job.toml, if it exists."""
        host = self._places.get((role, rank))
        arguments = [*arguments, *self._options_of(role), *self._record_of(role, rank)]
        if role == "server" and self:
            arguments += ["--bind", f"{EVERY_INTERFACE}:*", *(["--advertise", host.address] if host.address else [])]
        log = self._run_dir / f"logs/{role}-{rank}.log"
        if host is None or host.here:
            keys = ["--keys", self._keys] if self._keys else []
            argv = [str(self._bin_dir / f"tarn-{role}"), *arguments, *keys, "--run-dir", str(self._run_dir)]
            return fleet.Node(role, rank, argv, log)
        return self._remote_node(role, rank, host, arguments + sizes_as_flags(role, sizes), log)

    def program_node(self, address, rank, sizes, earlier_starts):
        """The user's own program as the worker of that rank, not started yet."""
        host = self._places.get(("worker", rank))
        here = host is None or host.here
        keys = self._keys if here or not self._keys else "/dev/stdin"
        run_dir = os.path.abspath(self._run_dir) if here else self._remote_run_dir
        variables = own_program.variables(self._options, address, rank, sizes, keys, run_dir, earlier_starts)
        bin_dir = os.path.abspath(self._bin_dir) if here else self._found[host.name].programs
        command = own_program.command(self._options.program, os.getcwd(), bin_dir, here, variables)
        log = self._run_dir / f"logs/worker-{rank}.log"
        node = fleet.Node("worker", rank, command, log) if here else self._through_ssh("worker", rank, host, command, log)
        node.ours = False
        return node

    def _record_of(self, role, rank):
        if not self._options.record or role == "scheduler":
            return []
        folder = self._run_dir / "record"
        folder.mkdir(exist_ok=True)
        return ["--record", str(folder / f"worker-{rank}" if role == "worker" else folder)]

    def _options_of(self, role):
        no_shm = role != "scheduler" and self._options.no_shm
        return (["--insecure"] if self._options.insecure else []) + (["--no-shm"] if no_shm else [])

    def _remote_node(self, role, rank, host, arguments, log):
        found = self._found[host.name]
        command = [f"{found.programs}/tarn-{role}", *arguments, "--run-dir", self._remote_run_dir]
        command += ["--keys", "/dev/stdin"] if self._keys else []
        return self._through_ssh(role, rank, host, command, log)

    def _through_ssh(self, role, rank, host, command, log):
        keys = pathlib.Path(self._keys).read_bytes() if self._keys else b""
        return remote.RemoteNode(role, rank, self._ssh, host.name, command, log, self._found[host.name].libraries, keys)

    @staticmethod
    def has_room_for(node, running):
        """Whether the host of `node` can accept another connection: at most CONNECTING_MAX may be in progress."""
        return sum(other.connecting and other.host == node.host for other in running) < CONNECTING_MAX

    # --- after the run ---

    def fetch_log(self, node):
        """Fetches the end of a process's log from its host."""
        if node.host is None or not self._found[node.host].made:
            return
        command = ["tail", "-c", str(fleet.TAIL_BYTES), f"{self._remote_run_dir}/logs/{node.log.name}"]
        code, output = self._ssh.run_on_all({node.host: command}, LOG_SECONDS_MAX, errors=False)[node.host]
        if code == 0:
            node.log.write_bytes(output)

    def close(self, begun, given_up):
        """Fetches the files that exist only on hosts, then deletes them there. Deletes the generated key file of this
        machine. Returns what is left: {folder: why}."""
        if self._made_keys:
            pathlib.Path(self._made_keys).unlink(missing_ok=True)
        created_on = [name for name, found in self._found.items() if found.made]
        fetched = self._fetch(created_on, given_up) if begun else created_on
        clear = remote.script("remote_clear.sh", self._remote_run_dir)
        cleared = self._ssh.run_on_all({name: clear for name in fetched}, CLEAR_SECONDS_MAX)
        left = {name: "logs could not be fetched and are left" for name in created_on if name not in fetched}
        left |= {name: "files of your programs are left" for name, (code, _) in cleared.items() if code == HAS_FILES}
        return {f"{name}:{self._remote_run_dir}": why for name, why in left.items()}

    def _fetch(self, names, given_up):
        pack = remote.script("remote_pack.sh", self._remote_run_dir)
        results = self._ssh.run_on_all({name: pack for name in names}, FETCH_SECONDS_MAX, given_up, errors=False)
        return [name for name, (code, output) in results.items() if code == 0 and self._unpack(output)]

    def _unpack(self, packed):
        """Unpacks an archive into logs/ and appends its metrics.jsonl; writes nothing outside of the run directory.
        Returns whether the archive was complete."""
        try:
            with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
                for member in archive:
                    if not member.isfile():
                        continue
                    name = pathlib.PurePosixPath(member.name).name
                    metrics = member.name == "metrics.jsonl"
                    with open(self._run_dir / (name if metrics else f"logs/{name}"), "ab" if metrics else "wb") as file:
                        file.write(archive.extractfile(member).read())
        except (OSError, tarfile.TarError):
            return False
        return True


def sizes_as_flags(role, sizes):
    """Flags for a program on another host, whose run directory has no job.toml. `sizes`: [fleet] of the run's job."""
    sizes = sizes or {}
    flags = ["--io-threads", str((sizes.get("lanes", 1) + 1) // 2)]  # net/zmq/context.h
    return flags + (["--shards", str(sizes.get("shards", 1))] if role == "server" else [])


def address_towards(host):
    """This machine's address towards another host; a datagram socket that connects sends nothing. Raises OSError if the
    name cannot be resolved, UnicodeError if it is not a valid host name."""
    found = socket.getaddrinfo(host, DISCARD_PORT, socket.AF_INET, socket.SOCK_DGRAM)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(found[0][4])
        return probe.getsockname()[0]
