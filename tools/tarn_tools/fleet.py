"""The processes of a fleet: started, watched, and gone when the launcher is gone.

Every child gets a session of its own, so that Ctrl-C in the terminal reaches only the launcher, and asks the kernel
to be killed when the launcher dies: even kill -9 of the launcher leaves no process behind. All functions are for the
main thread (the kernel ties the death signal to the thread that started the child).
"""

import ctypes
import os
import selectors
import signal
import subprocess
import time

PR_SET_PDEATHSIG = 1
TAIL_BYTES = 64 * 1024
READ_BYTES = 4096  # at a time: lines of a program that prints without end take long to pass on
LINE_BYTES_MAX = 64 * 1024  # a longer line is passed on in pieces
LEFT_BYTES_MAX = 1024 * 1024  # what the kernel may hold of a pipe

_libc = ctypes.CDLL(None, use_errno=True)


def die_with(parent_pid):
    """The process that calls this is killed with its parent; to be run in a child, before exec where it execs."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # the launcher died between fork and prctl
        os._exit(1)


def dies_with_us():
    """For a preexec_fn: the child is killed with the process that calls this."""
    parent = os.getpid()
    return lambda: die_with(parent)


def child_options():
    """How every child is started, as arguments of Popen."""
    return {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True, "preexec_fn": dies_with_us()}


def describe_exit(code, ours=True):
    """What a Popen.returncode means, in words; of a program that is not ours, less."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    meanings = {0: "clean", 2: "bad usage or bad job", 3: "fenced", 4: "diverged"}
    return f"exit code {code} ({meanings[code]})" if ours and code in meanings else f"exit code {code}"


def signal_group(group, number):
    """Whether anybody is there to get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def tail(path, lines):
    """The last lines of a file, fewer if it is shorter, none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


class Node:
    """One process. `restarts` counts how often its rank was started anew."""

    GRACE_SECONDS = 2.0  # between being asked to end and being killed
    host = None  # the name of the other machine that it runs on, if it is one
    connecting = False  # whether it is still on its way there
    ours = True  # a program of tarn, not of the user's own

    def __init__(self, role, rank, argv, log):
        self.role, self.rank, self.argv, self.log = role, rank, argv, log
        self.name = role if role == "scheduler" else f"{role}-{rank}"
        self.restarts = 0
        self.process = None
        self.output = b""  # the unfinished last line of what it printed
        self.said, self.said_at = "", 0.0  # the last line that it printed since its last start, and when (monotonic)
        self.ended_at = 0.0  # when its end was seen (monotonic); of a process that runs, nothing

    @property
    def running(self):
        return self.process is not None and self.process.returncode is None

    @property
    def code(self):
        """How it ended, as Popen.returncode."""
        return self.process.returncode

    def how_it_ended(self):
        return describe_exit(self.code, self.ours)

    @property
    def log_hint(self):
        """Where a person finds its log."""
        return str(self.log)

    def told_as(self):
        """Its command, for the journal of the run."""
        return " ".join(self.argv)

    def is_greeting(self, line):
        """Whether the line only says that it has begun."""
        return False

    def popen(self):
        """Starts it. Raises OSError when the program cannot be run."""
        return subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, **child_options())

    def ask_to_end(self):
        self.signal(signal.SIGTERM)

    def signal(self, number):
        signal_group(self.process.pid, number)

    def close_input(self):
        """Once it has ended: lets go of what it read from, if it was anything."""


class Fleet:
    """All processes of one run.

    `on_output(node, line)` gets every line that a process prints on stdout or stderr.
    """

    def __init__(self, on_output):
        self.nodes = []
        self._left = []  # groups in which a process is there that its leader, which has ended, had started
        self._on_output = on_output
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        for fd in (self._wake_read, self._wake_write):
            os.set_blocking(fd, False)
        # A signal, SIGCHLD among them, ends wait() at once.
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._selector.register(self._wake_read, selectors.EVENT_READ)

    def of_role(self, role):
        return [node for node in self.nodes if node.role == role]

    def running(self):
        return [node for node in self.nodes if node.running]

    def start(self, node):
        """Starts the process of a node, new or dead. Raises OSError when the program cannot be run."""
        node.process = node.popen()
        node.said, node.said_at = "", 0.0
        os.set_blocking(node.process.stdout.fileno(), False)
        self._selector.register(node.process.stdout, selectors.EVENT_READ, node)
        if node not in self.nodes:
            self.nodes.append(node)

    def wait(self, timeout_seconds):
        """Waits for output, a signal or the time to be over; passes on some output, and returns the nodes that ended."""
        for key, _ in self._selector.select(timeout_seconds):
            if key.data is None:
                os.read(self._wake_read, 4096)
            else:
                self._read(key.data, READ_BYTES)  # no more: who prints without end must not keep us from all else
        ended = [node for node in self.nodes if node.running and node.process.poll() is not None]
        for node in ended:
            self._end(node)
        return ended

    def _end(self, node):
        """Passes on what is left of a process that has ended."""
        node.ended_at = time.monotonic()
        self._read(node, LEFT_BYTES_MAX)
        self._close(node)
        node.close_input()
        if signal_group(node.process.pid, 0):
            self._left.append(node.process.pid)

    def _read(self, node, bytes_max):
        """Passes on about so much of what the process has printed; closes the pipe at its end."""
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
        """Ends every process: SIGTERM, and SIGKILL for who is still there two seconds later.

        With them those that they have started and not taken along, unless these have gone to a session of their own.
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
