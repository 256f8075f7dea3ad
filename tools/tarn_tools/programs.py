"""Finds the programs of a bench."""

import subprocess
import sys

from tarn_tools import launch_options

ROOT = launch_options.ROOT


def folder(bench, names):
    """The directory of these programs: that of a bundle, or build/release/bin after a build. If they are missing, ends
    the bench with one line."""
    if (ROOT / "tools/build").exists():
        if subprocess.run([ROOT / "tools/build", "release", *names], stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"{bench}: the build failed; run tools/build")
        return ROOT / "build/release/bin"
    for name in names:
        if not (ROOT / "bin" / name).is_file():
            sys.exit(f"{bench}: no program {name} in {ROOT / 'bin'}; the bundle was made without it")
    launch_options.use_fallback_libraries(ROOT / "bin")
    return ROOT / "bin"
