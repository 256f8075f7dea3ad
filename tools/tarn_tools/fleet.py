"""The processes of a fleet: starts and watches them; none outlives the launcher.

Every child runs in a separate session, so that Ctrl-C in the terminal reaches only the launcher. Each asks the kernel
to be killed when the launcher dies, so even kill -9 of the launcher leaves no process. All functions are for the
main thread, because the kernel sends the death signal when the thread that started the child ends.
"""

import ctypes
import os
import selectors
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
TAIL_BYTES = 64 * 1024
READ_BYTES = 4096  # handled at a time, because a program may print without end
LINE_BYTES_MAX = 64 * 1024  # a longer line is handled in pieces
LEFT_BYTES_MAX = 1024 * 1024  # maximum contents of a pipe

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent_pid):
    """Makes the kernel kill the calling process when its parent dies. Call it in a child, before exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the launcher died between fork and prctl
        os._exit(1)


def dies_with_us():
    """Returns a preexec_fn that makes the kernel kill the child when the calling process dies."""
    parent = os.getpid()
    return lambda: die_with(parent)


def child_options():
    """Arguments of Popen for every child."""
    return {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True, "preexec_fn": dies_with_us()}


def describe_exit(code, ours=True):
    """Describes a Popen.returncode. `ours`: a program of tarn, whose exit codes have known meanings."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    meanings = {0: "clean", 2: "bad usage or bad job", 3: "fenced", 4: "diverged"}
    return f"exit code {code} ({meanings[code]})" if ours and code in meanings else f"exit code {code}"


def signal_group(group, number):
    """Sends the signal to the process group. Returns whether the group has processes."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def tail(path, lines):
    """The last lines of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


class Node:
    """One process. `restarts` counts the restarts of its rank."""

    GRACE_SECONDS = 2.0  # between SIGTERM and SIGKILL
    host = None  # name of the other machine on which it runs; None: this machine
    connecting = False  # whether the connection to that machine is being established
    ours = True  # a program of tarn, not of the user

    def __init__(self, role, rank, argv, log):
        self.role, self.rank, self.argv, self.log = role, rank, argv, log
        self.name = role if role == "scheduler" else f"{role}-{rank}"
        self.restarts = 0
        self.process = None
        self.output = b""  # the incomplete last line of its output
        self.last_line, self.last_line_at = "", 0.0  # the last line that it printed since its last start, and when (monotonic)
        self.ended_at = 0.0  # time when its end was detected (monotonic); meaningless while it runs

    @property
    def running(self):
        return self.process is not None and self.process.returncode is None

    @property
    def code(self):
        """Its exit code, as Popen.returncode."""
        return self.process.returncode

    def how_it_ended(self):
        return describe_exit(self.code, self.ours)

    @property
    def log_hint(self):
        """The location of its log, for users."""
        return str(self.log)

    def command_text(self):
        """Its command line, for the journal of the run."""
        return " ".join(self.argv)

    def is_greeting(self, line):
        """Whether the line only reports that it has started."""
        return False

    def popen(self):
        """Starts the program. Raises OSError if it cannot be run."""
        return subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, **child_options())

    def ask_to_end(self):
        self.signal(signal.SIGTERM)

    def signal(self, number):
        signal_group(self.process.pid, number)

    def close_input(self):
        """Closes its input, if it has one, after it has ended."""


class Fleet:
    """All processes of one run.

    `on_output(node, line)` gets every line that a process prints on stdout or stderr.
    """

    def __init__(self, on_output):
        self.nodes = []
        self._left = []  # process groups whose leader has ended but that still have processes
        self._on_output = on_output
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        # A signal, such as SIGCHLD, ends wait() at once.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def of_role(self, role):
        return [node for node in self.nodes if node.role == role]

    def running(self):
        return [node for node in self.nodes if node.running]

    def start(self, node):
        """Starts the process of a node, which is new or has ended. Raises OSError if the program cannot be run."""
        node.process = node.popen()
        node.last_line, node.last_line_at = "", 0.0
        os.set_blocking(node.process.stdout.fileno(), False)
        self._selector.register(node.process.stdout, selectors.EVENT_READ, node)
        if node not in self.nodes:
            self.nodes.append(node)

    def wait(self, timeout_seconds):
        """Waits for output, a signal or the timeout. Handles some output, and returns the nodes that have ended."""
        for key, _ in self._selector.select(timeout_seconds):
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                self._read(key.data, READ_BYTES)  # bounded, because a process may print without end
        ended = [node for node in self.nodes if node.running and node.process.poll() is not None]
        for node in ended:
            self._end(node)
        return ended

    def _end(self, node):
        """Handles the remaining output of a process that has ended, and notes whether its children still run."""
        node.ended_at = time.monotonic()
        self._read(node, LEFT_BYTES_MAX)
        self._close(node)
        node.close_input()
        if signal_group(node.process.pid, 0):
            self._left.append(node.process.pid)

    def _read(self, node, bytes_max):
        """Handles at most about `bytes_max` bytes of output; closes the pipe at its end."""
        pipe = node.process.stdout
        while not pipe.closed and bytes_max > 0:
            try:
                data = os.read(pipe.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._close(node)
                return
            bytes_max -= len(data)
            *lines, node.output = (node.output + data).split(b"\n")
            if len(node.output) >= LINE_BYTES_MAX:
                lines, node.output = [*lines, node.output], b""
            for line in lines:
                self._on_output(node, line.decode("utf-8", "replace").rstrip())

    def _close(self, node):
        pipe = node.process.stdout
        if pipe.closed:
            return
        self._selector.unregister(pipe)
        pipe.close()
        if node.output:
            self._on_output(node, node.output.decode("utf-8", "replace").rstrip())
            node.output = b""

    def kill(self):
        """Ends every process: SIGTERM, and SIGKILL for those that still run after their GRACE_SECONDS.

        Also ends their remaining children, unless those have moved to another session.
        """
        asked_at = time.monotonic()
        for node in self.running():
            node.ask_to_end()
        while any(time.monotonic() < asked_at + node.GRACE_SECONDS for node in self.running()):
            self.wait(0.05)
        self.kill_now()
        asked_at = time.monotonic()
        left = [group for group in self._left if signal_group(group, signal.SIGTERM)]
        while any(signal_group(group, 0) for group in left) and time.monotonic() < asked_at + Node.GRACE_SECONDS:
            time.sleep(0.05)
        for group in left:
            signal_group(group, signal.SIGKILL)

    def kill_now(self):
        """Sends SIGKILL to every process that runs, and waits for it."""
        for node in self.running():
            node.signal(signal.SIGKILL)
        for node in self.running():
            node.process.wait()
            self._end(node)

    def close(self):
        signal.set_wakeup_fd(-1)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)
