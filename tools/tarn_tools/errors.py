"""The error messages of the tools."""


def message(error):
    """An operating system's with the file's name in front and without its number; any other as it is."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
