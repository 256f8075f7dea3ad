"""The Python behind tools/launch and tools/report. Standard library only, Python 3.11."""
