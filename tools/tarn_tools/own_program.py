"""tools/launch JOB.toml -- PROGRAM: runs a program of the user instead of tarn-worker."""

import contextlib
import os
import pathlib

from tarn_tools import launch_options

IN_FOLDER = 'cd "$1" && shift && exec "$@"'
STARTS_NAME = ".starts"  # in a run folder: how often its fleet was started
NOT_STARTED = (2, 126, 127)  # exit codes: bad usage or no such script, not executable, not found


def command(program, folder, bin_dir, here, variables):
    """The command line of a process that runs in that directory with `variables` in its environment.

    `bin_dir`: the directory of tarn's programs on the machine of the process; the Python client is near it.
    """
    python, library = beside(pathlib.Path(bin_dir), here)
    before = os.environ.get("PYTHONPATH") if here else None
    variables = {**variables, "PYTHONUNBUFFERED": 1}  # otherwise its output is delayed
    if python.is_dir() or not here:  # an installed package needs no path
        variables["PYTHONPATH"] = f"{python}:{before}" if before else python
    if not (here and os.environ.get("TARN_LIBRARY")):  # variables exported by the user have precedence
        variables["TARN_LIBRARY"] = library
    words = [f"{name}={value}" for name, value in variables.items()]
    return ["sh", "-c", IN_FOLDER, "tarn-launch", folder, "env", *words, *program]


def beside(bin_dir, here):
    """The directory of the Python client and libtarn.so, in a checkout or in a bundle."""
    checkout = bin_dir.parts[-3:] == ("build", "release", "bin")
    python = (bin_dir.parents[2] if checkout else bin_dir.parent) / "python"
    if here and not python.is_dir():  # programs from elsewhere
        python = launch_options.ROOT / "python"
    return python, bin_dir.parent / "lib/libtarn.so"


def variables(options, address, rank, sizes, keys, run_dir, earlier_starts):
    """The environment variables from which tarn.connect() takes its arguments."""
    found = {
        "TARN_SCHEDULER": address,
        "TARN_RANK": rank,
        "TARN_WORKERS": sizes.get("workers", 1),
        "TARN_RUN_DIR": run_dir,
        "TARN_STARTS_AGAIN": earlier_starts,
    }
    if keys:
        found["TARN_KEYS"] = keys
    if options.insecure:
        found["TARN_INSECURE"] = 1
    if options.no_shm:
        found["TARN_NO_SHM"] = 1
    return found


def count_start(run_dir, by_this_launcher):
    """Counts the starts of the fleet in the run folder, in which a run with a log continues. Returns the number of earlier
    ones: programs use it to name what each start must have for itself, such as a rendezvous file."""
    count, earlier = run_dir / STARTS_NAME, by_this_launcher
    with contextlib.suppress(OSError, ValueError):
        earlier = max(earlier, int(count.read_text()))
    with contextlib.suppress(OSError):  # a full disk
        part = count.with_suffix(".part")
        part.write_text(f"{earlier + 1}\n")
        part.replace(count)
    return earlier
