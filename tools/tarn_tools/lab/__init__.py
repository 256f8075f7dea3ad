"""The laboratory: trials of training algorithms, and their comparison (tools/lab)."""

from tarn_tools.lab.command import main

__all__ = ["main"]
