"""Checks that includes of C++ sources point only to lower layers.

  PYTHONPATH=tools python3 -m tarn_tools.includes [ROOT]

Prints a line for each invalid include; the exit status is then 1.
"""

import pathlib
import re
import subprocess
import sys

# From bottom to top: a folder may include its own files and those of earlier entries. An entry is a folder, or a single
# file if it ends in .h. Its subfolders belong to it only if it is in PARTS_OF.
LAYERS = (
    "schemas",
    "core",
    "core/table",
    "core/job",
    "core/codec",
    "core/metrics",
    "kernels",
    "net",
    "net/zmq",
    "net/http",
    "serving",
    "server/exhaustion.h",
    "server/log",
    "server/tier",
    "server/store",
    "server/checkpoint",
    "server/clock",
    "server/shard",
    "server",
    "scheduler/progress",
    "scheduler/state",
    "scheduler/leases",
    "scheduler/membership",
    "scheduler/checkpoints",
    "scheduler/epochs",
    "scheduler/stopping",
    "scheduler",
    "worker/counters.h",
    # The public headers: they must not include later entries.
    "worker/tarn.h",
    "worker/tarn_c.h",
    "worker/client",
    "worker/runtime",
    "worker/data",
    "worker/models",
    "worker/train",
    "worker",
    "sim",
    "tools",
    "bench",
    "examples",
    "tests",
)
# Exceptions within one folder or library, whose parts are never used alone.
TOGETHER = (
    {"core", "core/table"},
    {"net", "net/zmq"},
)
# Forbidden in spite of the order: programs must not include each other.
APART = (
    ("scheduler", "server"),
    ("worker", "server"),
    ("worker", "scheduler"),
)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
PARTS_OF = ("kernels", "sim", "tools", "bench", "examples", "tests", "schemas", "serving")


def layer(path):
    """The entry of LAYERS that a file belongs to; None if there is none."""
    if path in LAYERS:
        return path
    folder = str(pathlib.PurePosixPath(path).parent)
    if folder in LAYERS:
        return folder
    top = path.split("/")[0]
    return top if top in PARTS_OF else None


def allowed(user, used):
    if user == used or any({user, used} <= both for both in TOGETHER):
        return True
    if any(user.split("/")[0] == one and used.split("/")[0] == other for one, other in APART):
        return False
    return LAYERS.index(used) < LAYERS.index(user)


def complaints(path, text, exists):
    """A line for each invalid include of a file. `exists`: whether a path is in the repository."""
    user, found = layer(path), []
    if user is None:
        return [f"{path}: its folder is not in LAYERS of tools/tarn_tools/includes.py: add it there, after the folders that it uses"]
    for number, line in enumerate(text.splitlines(), 1):
        if (match := INCLUDE.match(line)) and exists(match[1]):
            used = layer(match[1])
            if used is None:
                found.append(f"{path}:{number}: {match[1]} is in a folder that is not in LAYERS of tools/tarn_tools/includes.py")
            elif not allowed(user, used):
                found.append(f"{path}:{number}: {user} includes {match[1]}, but {used} is above it or apart from it")
    return found


def main(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.cc", "*.h", "*.cu",
                             "*.cuh"], capture_output=True, text=True, check=True).stdout.split()
    known = set(listed)
    found = []
    for path in listed:
        if (file := pathlib.Path(root, path)).is_file():
            found += complaints(path, file.read_text(), known.__contains__)
    print("\n".join(found) if found else f"lint: includes of {len(listed)} files point downward")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
