"""Where the programs are that a bench runs."""

import subprocess
import sys

from tarn_tools import launch_options

ROOT = launch_options.ROOT


def folder(bench, names):
    """The folder of these programs: a bundle's, which must have them, or build/release/bin, brought up to date. Ends
    the bench with one line where there are none."""
    if (ROOT / "tools/build").exists():
        if subprocess.run([ROOT / "tools/build", "release", *names], stdout=subprocess.DEVNULL, check=False).returncode:
            sys.exit(f"{bench}: the build failed; run tools/build")
        return ROOT / "build/release/bin"
    for name in names:
        if not (ROOT / "bin" / name).is_file():
            sys.exit(f"{bench}: no program {name} in {ROOT / 'bin'}; the bundle was made without it")
    launch_options.use_fallback_libraries(ROOT / "bin")
    return ROOT / "bin"
