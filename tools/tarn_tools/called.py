"""What users call the tools: tools/NAME in a checkout or a bundle, `tarn NAME` where the Python package has them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
IN_PACKAGE = (ROOT / "py.typed").exists()
OF_PACKAGE = re.compile(r"\btools/(accuracy|checkpoint|inspect|launch|predict|quickstart|report)\b")


def here(text):
    """The same text, in which tools/NAME is what the user calls it."""
    return OF_PACKAGE.sub(r"tarn \1", text) if IN_PACKAGE else text


def words(tool):
    """How a command line of this tool begins."""
    return here(f"tools/{tool}").split()
