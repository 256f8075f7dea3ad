"""A folder that appears only when it is complete."""

import contextlib
import fcntl
import os
import secrets
import shutil


@contextlib.contextmanager
def new_folder(target):
    """Yields an empty folder beside `target` and renames it to `target` at the end; after an exception it is removed.

    If another process has made `target` meanwhile, that one stays. Removes what processes that were killed have left.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f"{target.name}.*.part"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    part = target.with_name(f"{target.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        with _locked(part):
            yield part
            try:
                part.rename(target)
            except OSError:
                if not target.is_dir():
                    raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder):
    """Holds a lock on the folder, which ends with this process. Raises BlockingIOError if another process has it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)
