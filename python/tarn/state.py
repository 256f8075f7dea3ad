"""The callback through which the library gets a program's state for checkpoints. Internal; see Client.keep_state."""

import ctypes
import logging
from collections.abc import Callable
from typing import Any

SAVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t))


class Saver:
    """A function of the program as a C function, `function`. Must live as long as the client that calls it."""

    def __init__(self, save: Callable[[], bytes]) -> None:
        self._save, self._bytes = save, b""
        self.function = SAVE(self._call)

    def _call(self, _context: Any, into: Any, n: Any) -> int:
        try:
            self._bytes = bytes(self._save())
        except BaseException:  # the library ends the client, and the call in which this happens fails
            logging.getLogger("tarn").exception("tarn: the state of the program could not be saved")
            return 1
        into[0] = ctypes.cast(ctypes.c_char_p(self._bytes), ctypes.c_void_p).value
        n[0] = len(self._bytes)
        return 0
