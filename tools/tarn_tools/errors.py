"""The error messages of the tools."""


def message(error):
    """The text of an error; that of an OSError is "FILE: REASON"."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
