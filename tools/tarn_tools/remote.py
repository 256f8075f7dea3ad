"""Runs commands on other machines through ssh: one on each at the same time, and processes of the fleet, which end when
this process does."""

import pathlib
import shlex
import subprocess
import tempfile
import time

from tarn_tools import fleet

SSH_FAILED = 255  # exit code of ssh itself: it could not connect, or the connection ended
SIGNAL_BASE = 128  # larger exit codes of a shell are deaths by signals
GREETING = "tarn-launch: process "
POLL_SECONDS = 0.02


def script(name, *arguments):
    """The command that runs a script of this directory on a host without tarn."""
    lines = pathlib.Path(__file__).with_name(name).read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return ["exec", "sh", "-c", text, "tarn-launch", *arguments]


class Ssh:
    """The remote shell: a program and its options, to which the host and the command are added, as ssh takes them."""

    # No prompts, a connect timeout, and detection of a lost host within 15 s.
    OPTIONS = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")

    def __init__(self, command):
        self._words = shlex.split(command)
        self._is_openssh = bool(self._words) and pathlib.Path(self._words[0]).name == "ssh"

    def argv(self, host, command):
        options = [f"-o{option}" for option in self.OPTIONS] if self._is_openssh else []
        return [*self._words, *options, host, shlex.join(command)]

    def to_try(self, host):
        """The command for users to check whether the host can be reached without a prompt."""
        return shlex.join([*self._words, *(["-o", "BatchMode=yes"] if self._is_openssh else []), host, "true"])

    def hostname(self, host):
        """The host name behind a name that may be an alias in ssh's configuration."""
        if self._is_openssh:
            shown = subprocess.run([*self._words, "-G", host], stdin=subprocess.DEVNULL, capture_output=True, text=True)
            for line in shown.stdout.splitlines():
                if line.startswith("hostname "):
                    return line.split(maxsplit=1)[1]
        return host.rpartition("@")[2]

    def run_on_all(self, commands, timeout_seconds, given_up=lambda: False, errors=True):
        """Runs {host: command} at once; {host: (exit code, output as bytes)}, with `errors` that of both streams. On that of
        errors ssh itself writes, too, such as the host's banner.

        Commands that do not end in time, or before `given_up()` is true, are killed; their exit code is None.
        """
        running = {}
        for host, command in commands.items():
            output = tempfile.TemporaryFile()
            running[host] = (self._spawn(host, command, output, errors), output)
        deadline = time.monotonic() + timeout_seconds
        while any(process.poll() is None for process, _ in running.values()):
            if time.monotonic() > deadline or given_up():
                break
            time.sleep(POLL_SECONDS)
        return {host: self._result(process, output) for host, (process, output) in running.items()}

    def _spawn(self, host, command, output, errors):
        return subprocess.Popen(
            self.argv(host, command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT if errors else subprocess.DEVNULL,
            start_new_session=True, preexec_fn=fleet.dies_with_us())

    @staticmethod
    def _result(process, output):
        code = process.poll()
        if code is None:
            process.kill()
            process.wait()
        with output:
            output.seek(0)
            return code, output.read()


class RemoteNode(fleet.Node):
    """A process on another machine, through a local ssh whose stdin is connected to remote_run.sh there.

    `keys`: the bytes of the key file, or empty. The process ends when that stdin is closed, for any reason.
    """

    GRACE_SECONDS = 2 * fleet.Node.GRACE_SECONDS  # twice the time, for the connection

    def __init__(self, role, rank, ssh, host, command, log, libraries="", keys=b""):
        super().__init__(role, rank, ssh.argv(host, script("remote_run.sh", libraries, *command)), log)
        self.host, self._ssh, self._keys, self._command = host, ssh, keys, command
        self.greeted = False  # since the last start

    def command_text(self):
        return f"on {self.host}: {' '.join(self._command)}"

    def popen(self):
        self.greeted = False
        process = subprocess.Popen(self.argv, stdin=subprocess.PIPE, **fleet.child_options())
        try:
            process.stdin.write(self._keys + b"\nend\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # its exit status will show the error
        return process

    def is_greeting(self, line):
        found = not self.greeted and line.startswith(GREETING)
        self.greeted = self.greeted or found
        return found

    @property
    def connecting(self):
        return self.running and not self.greeted

    @property
    def code(self):
        code = self.process.returncode
        return SIGNAL_BASE - code if SIGNAL_BASE < code < SSH_FAILED else code

    def how_it_ended(self):
        if self.process.returncode != SSH_FAILED:
            return super().how_it_ended()
        if self.greeted:
            return f"the connection to {self.host} ended"
        return f"ssh does not get to {self.host}; try: {self._ssh.to_try(self.host)}"

    @property
    def log_hint(self):
        return str(self.log) if self.log.exists() else f"{self.host}:{self.log.absolute()}"

    def ask_to_end(self):
        self.close_input()

    def close_input(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
