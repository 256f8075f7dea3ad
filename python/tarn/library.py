"""The functions of libtarn.so (worker/tarn_c.h) with their types, its errors, and waits that Ctrl-C interrupts.

Internal: programs use tarn.client.
"""

import ctypes
import logging
import os
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tarn.state import SAVE

_T = TypeVar("_T")

VERSION = 7  # of worker/tarn_c.h
TIMEOUT = 13
PATIENCE_SECONDS = 0.1  # seconds between checks for Ctrl-C
NOTE_SECONDS = 10.0  # seconds between two messages of a wait


class Error(Exception):
    """An error of the fleet or the library. `code`: see worker/tarn_c.h."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> Any:  # pickle passes only `args`, without the code
        return type(self), (self.code, *self.args)


class InvalidArgument(Error, ValueError):
    """Wrong sizes, a key that is too large, or an invalid description; the message has the details."""


class Timeout(Error, TimeoutError):
    """The timeout has passed."""


class Gone(Error, ConnectionError):
    """The fleet has ended, cannot be reached, or has declared this worker dead: connect again, or stop."""


# By the error code of worker/tarn_c.h; other codes raise Error.
_KINDS = {1: InvalidArgument, 5: InvalidArgument, 7: Gone, 12: Gone, TIMEOUT: Timeout, 17: Gone}


class CConnectOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("keys", ctypes.c_char_p), ("timeout_seconds", ctypes.c_double),
                ("rank_plus_1", ctypes.c_uint32), ("insecure", ctypes.c_int), ("no_shm", ctypes.c_int)]


class CPullOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("out", ctypes.c_void_p), ("priority", ctypes.c_int),
                ("use_clock_plus_1", ctypes.c_uint64)]


class CTablePull(ctypes.Structure):
    _fields_ = [("table", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("n", ctypes.c_size_t), ("out", ctypes.c_void_p)]


class CTablePush(ctypes.Structure):
    _fields_ = [("table", ctypes.c_void_p), ("keys", ctypes.c_void_p), ("n", ctypes.c_size_t),
                ("gradients", ctypes.c_void_p)]


class CLease(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64), ("purpose", ctypes.c_int), ("epoch", ctypes.c_uint32),
                ("first_row", ctypes.c_uint64), ("rows", ctypes.c_uint64), ("skip_rows", ctypes.c_uint64),
                ("batch_rows", ctypes.c_uint64)]


class CLeaseReport(ctypes.Structure):
    _fields_ = [("lease", ctypes.c_uint64), ("rows", ctypes.c_uint64), ("loss_sum", ctypes.c_double),
                ("logits", ctypes.c_void_p), ("positives", ctypes.c_void_p), ("correct", ctypes.c_uint64)]


class CLeaseAnswer(ctypes.Structure):
    _fields_ = [("granted", ctypes.c_size_t), ("finished", ctypes.c_int), ("tick_to", ctypes.c_uint64)]


POINTER, TEXT, KEYS, FLOATS = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_float)
_OUT = ctypes.POINTER(POINTER)
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "c_version": (ctypes.c_uint32, ()),
    "last_error": (TEXT, ()),
    "connect": (ctypes.c_int, (TEXT, ctypes.POINTER(CConnectOptions), _OUT)),
    "leave": (ctypes.c_int, (POINTER,)),
    "cancel": (None, (POINTER,)),
    "close": (None, (POINTER,)),
    "rank": (ctypes.c_uint32, (POINTER,)),
    "clock": (ctypes.c_uint64, (POINTER,)),
    "job_text": (TEXT, (POINTER,)),
    "open_table": (ctypes.c_int, (POINTER, TEXT, _OUT)),
    "create_table": (ctypes.c_int, (POINTER, TEXT, TEXT, _OUT)),
    "table_dim": (ctypes.c_uint32, (POINTER,)),
    "table_rows": (ctypes.c_uint64, (POINTER,)),
    "table_free": (None, (POINTER,)),
    "pull": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t, ctypes.POINTER(CPullOptions), _OUT)),
    "pull_many": (ctypes.c_int, (POINTER, ctypes.POINTER(CTablePull), ctypes.c_size_t, ctypes.POINTER(CPullOptions), _OUT)),
    "prefetch": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t)),
    "push": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t, FLOATS, _OUT)),
    "assign": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t, FLOATS, _OUT)),
    "delete": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t, _OUT)),
    "push_many": (ctypes.c_int, (POINTER, ctypes.POINTER(CTablePush), ctypes.c_size_t, _OUT)),
    "plan_make": (ctypes.c_int, (POINTER, POINTER, KEYS, ctypes.c_size_t, _OUT)),
    "plan_make_many": (ctypes.c_int, (POINTER, POINTER, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64),
                                      ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p)),
    "plan_size": (ctypes.c_size_t, (POINTER,)),
    "plan_keys": (KEYS, (POINTER,)),
    "plan_index": (ctypes.POINTER(ctypes.c_uint32), (POINTER,)),
    "plan_free": (None, (POINTER,)),
    "pull_plan": (ctypes.c_int, (POINTER, POINTER, ctypes.POINTER(CPullOptions), _OUT)),
    "push_plan": (ctypes.c_int, (POINTER, POINTER, FLOATS, POINTER, POINTER, ctypes.c_uint64, _OUT)),
    "pull_plans": (ctypes.c_int, (POINTER, POINTER, ctypes.c_size_t, ctypes.POINTER(CPullOptions), _OUT)),
    "push_plans": (ctypes.c_int, (POINTER, POINTER, ctypes.c_size_t, ctypes.c_uint64, _OUT)),
    "tick": (ctypes.c_int, (POINTER, _OUT)),
    "tick_at": (ctypes.c_int, (POINTER, ctypes.c_uint64, ctypes.c_uint64, _OUT)),
    "tick_to": (ctypes.c_int, (POINTER, ctypes.c_uint64, _OUT)),
    "request_leases": (ctypes.c_int, (POINTER, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(CLeaseReport), ctypes.c_size_t,
                                      ctypes.POINTER(CLease), ctypes.c_size_t, ctypes.POINTER(CLeaseAnswer))),
    "barrier": (ctypes.c_int, (POINTER,)),
    "request_checkpoint": (ctypes.c_int, (POINTER, _OUT)),
    "keep_state": (ctypes.c_int, (POINTER, SAVE, POINTER)),
    "ended": (ctypes.c_int, (POINTER,)),
    "save_state": (ctypes.c_int, (POINTER,)),
    "report": (ctypes.c_int, (POINTER, ctypes.POINTER(TEXT), ctypes.POINTER(ctypes.c_double), ctypes.c_size_t)),
    "saved_state": (ctypes.c_int, (POINTER, ctypes.c_uint32, _OUT, ctypes.POINTER(ctypes.c_size_t))),
    "ready": (ctypes.c_int, (POINTER,)),
    "wait": (ctypes.c_int, (POINTER, ctypes.c_double)),
    "rows_of": (ctypes.c_int, (POINTER, ctypes.c_size_t, ctypes.c_double, ctypes.POINTER(FLOATS),
                               ctypes.POINTER(ctypes.c_uint64))),
    "future_free": (None, (POINTER,)),
}


def _find_library() -> str:
    """The path of libtarn.so: TARN_LIBRARY, else that in this package, in the build of this checkout, or in the bundle
    that contains this package."""
    if given := os.environ.get("TARN_LIBRARY"):
        return given
    package = pathlib.Path(__file__).resolve().parent
    root = package.parents[1]
    places = [package / "lib/libtarn.so", root / "build/release/lib/libtarn.so", root / "lib/libtarn.so"]
    for place in places:
        if place.exists():
            return str(place)
    raise ImportError(f"libtarn.so not found in {', '.join(str(place.parent) for place in places)}: build it with "
                      "tools/build, or set TARN_LIBRARY to its path")


class Library:
    """The functions of worker/tarn_c.h with their types. Functions that return an error code raise it."""

    def __init__(self) -> None:
        path = _find_library()
        library = ctypes.CDLL(path)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, "tarn_" + name, None)
            if function is None:
                raise ImportError(f"{path} has no tarn_{name}: expected version {VERSION} of libtarn.so")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, self._raising(function) if result is ctypes.c_int and name != "ready" else function)
        if self.c_version() != VERSION:
            raise ImportError(f"{path} is version {self.c_version()} of libtarn.so, expected {VERSION}")

    def __getattr__(self, name: str) -> Any:  # for mypy; the functions are attributes that __init__ sets
        raise AttributeError(name)

    def _raising(self, function: Callable[..., int]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if code := function(*arguments):
                message = self.last_error().decode("utf-8", "replace")
                raise _KINDS.get(code, Error)(code, message)

        return call


_library: Library | None = None
_library_lock = threading.Lock()


def library() -> Library:
    """The library, loaded by the first call. Any thread."""
    global _library
    if _library is not None:
        return _library
    with _library_lock:
        if _library is None:
            _library = Library()
    return _library


class Note:
    """Logs what a long wait is for. The wait begins at construction. Call log() repeatedly: it writes a line at most
    every NOTE_SECONDS."""

    def __init__(self, what: str) -> None:
        self._what, self._begun, self._notes = what, time.monotonic(), 0

    def log(self) -> None:
        waited = time.monotonic() - self._begun
        if self._what and waited >= (self._notes + 1) * NOTE_SECONDS:
            self._notes += 1
            logging.getLogger("tarn").warning("tarn: waiting for %.0f s for %s", waited, self._what)


def interruptible(call: Callable[..., _T], *arguments: Any, what: str = "") -> _T:
    """Returns the result of `call`. In the main thread, runs it on a separate thread, so that Ctrl-C interrupts the wait,
    and logs `what` it waits for every NOTE_SECONDS. In other threads, only calls it. After Ctrl-C the call goes on."""
    if threading.current_thread() is not threading.main_thread():
        return call(*arguments)
    done: list[_T] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # join() of Python 3.11 takes a thread for ended after Ctrl-C

    def run() -> None:
        try:
            done.append(call(*arguments))
        except BaseException as error:
            failed.append(error)
        ended.set()

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # at the end of the interpreter, from Python 3.12
        return call(*arguments)
    note = Note(what)
    while not ended.wait(PATIENCE_SECONDS):
        note.log()
    if failed:
        raise failed[0]
    return done[0]


class Handle:
    """A pointer of the library, freed with the last reference; objects in `kept` are released after that."""

    def __init__(self, pointer: Any, free: Callable[[Any], None], kept: object = None) -> None:
        self.pointer, self._free, self._kept, self._process = pointer, free, kept, os.getpid()

    def of_this_process(self) -> Any:
        """The pointer. Raises Gone after a fork: the library's threads and connections are those of the parent."""
        if self._process != os.getpid():
            raise Gone(17, "this operation belongs to the parent process: connect again after a fork")
        return self.pointer

    def __del__(self) -> None:
        if self._process == os.getpid():  # not in a fork, where a lock of the library may never be released
            self._free(self.pointer)


def as_bytes(value: str | bytes | os.PathLike[str]) -> bytes:
    text = value.encode() if isinstance(value, str) else os.fsencode(value)
    if b"\0" in text:
        raise InvalidArgument(1, f"{value!r}: expected a text without NUL")
    return text
