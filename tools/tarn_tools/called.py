"""The names of the tools for users: tools/NAME in a checkout or a bundle, `tarn NAME` in the Python package."""

import functools
import pathlib
import re
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN_PACKAGE = (ROOT / "py.typed").exists()
OF_PACKAGE = re.compile(r"\btools/(accuracy|checkpoint|inspect|lab|launch|predict|quickstart|replay|report)\b")


def here(text):
    """The text with tools/NAME replaced by the user's name of the tool."""
    return OF_PACKAGE.sub(r"tarn \1", text) if IN_PACKAGE else text


def words(tool):
    """The beginning of a command line of this tool."""
    return here(f"tools/{tool}").split()


def interruptible(tool):
    """Decorates main(argv) of a tool: a Ctrl-C that main does not handle ends it with one line and status 130."""
    def decorate(main):
        @functools.wraps(main)
        def run(argv):
            try:
                return main(argv)
            except KeyboardInterrupt:
                print(f"{here(tool)}: interrupted", file=sys.stderr)
                return 128 + signal.SIGINT
        return run
    return decorate
