"""The connection of a client. Internal: programs use tarn.client. Any thread."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from tarn.library import Gone, library

_CALL_SECONDS = 0.1  # for which close() itself waits for calls of other threads
_LEAVE_SECONDS = 2.0  # after which it cancels them, and those that Ctrl-C has interrupted


class Connection:
    """A client of the library, which is not freed while a call for it is in progress in any thread. Calls that Ctrl-C has
    interrupted keep this object, and not the Client, alive."""

    def __init__(self, pointer: Any) -> None:
        self._pointer, self._process = pointer, os.getpid()
        self._lock, self._uses = threading.Lock(), set[object]()  # calls in progress

    def check(self) -> Any:
        """The pointer. Raises Gone in a fork, and after close()."""
        if self._process != os.getpid():  # a fork has no threads of the library
            raise Gone(17, "this client belongs to the parent process: connect again after a fork")
        if self._pointer is None:
            raise Gone(17, "the client is closed")
        return self._pointer

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function of the library for this client. Raises what check() raises."""
        self.check()  # before the lock, which a fork may have copied while a thread had it
        use = object()
        try:
            with self._lock:
                pointer = self.check()
                self._uses.add(use)
            return function(pointer, *arguments)
        finally:
            self._uses.discard(use)

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self, used_by_calls: object) -> None:
        """As Client.close(). `used_by_calls` is kept until the calls in progress have returned."""
        if self._process != os.getpid():
            return
        with self._lock:
            pointer, self._pointer = self._pointer, None
        if pointer is None:
            return

        def unused(seconds: float) -> bool:
            deadline = time.monotonic() + seconds
            while self._uses and time.monotonic() < deadline:
                time.sleep(0.002)
            return not self._uses

        def close(_used_by_calls: object) -> None:
            if not unused(_LEAVE_SECONDS):
                library().cancel(pointer)
            unused(math.inf)
            library().close(pointer)

        try:
            ends_soon = unused(_CALL_SECONDS)
        except BaseException:  # another Ctrl-C
            threading.Thread(target=close, args=(used_by_calls,), daemon=True).start()
            raise
        if ends_soon:
            return close(used_by_calls)
        with contextlib.suppress(RuntimeError):  # at the end of the interpreter no thread can be started
            threading.Thread(target=close, args=(used_by_calls,), daemon=True).start()
