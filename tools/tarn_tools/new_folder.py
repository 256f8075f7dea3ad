"""A folder that appears only when it is complete."""

import contextlib
import pathlib
import shutil
import tempfile


@contextlib.contextmanager
def new_folder(target):
    """Yields an empty folder beside `target` and renames it to `target` at the end; after an exception it is removed.

    If another process has made `target` meanwhile, that one stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        yield part
        part.chmod(0o755)  # mkdtemp's folder is only for its owner
        try:
            part.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
