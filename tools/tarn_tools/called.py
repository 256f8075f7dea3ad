"""The names of the tools for users: tools/NAME in a checkout or a bundle, `tarn NAME` in the Python package."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN_PACKAGE = (ROOT / "py.typed").exists()
OF_PACKAGE = re.compile(r"\btools/(accuracy|checkpoint|inspect|lab|launch|predict|quickstart|replay|report)\b")


def here(text):
    """The text with tools/NAME replaced by the user's name of the tool."""
    return OF_PACKAGE.sub(r"tarn \1", text) if IN_PACKAGE else text


def words(tool):
    """The beginning of a command line of this tool."""
    return here(f"tools/{tool}").split()
