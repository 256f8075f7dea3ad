"""The job in a checkpoint's MANIFEST (core/codec/manifest.h), for the launcher. Does not verify the file; the scheduler
does."""

import struct
import tomllib

HEAD_BYTES = 24  # magic, version, checksum, bytes of the body
JOB_TEXT_ENTRY = 4  # of the root's vtable: the first field of schemas/manifest.fbs


def _string(body, entry):
    """A string field of the root of a FlatBuffer."""
    root = struct.unpack_from("<I", body)[0]
    vtable = root - struct.unpack_from("<i", body, root)[0]
    field = root + struct.unpack_from("<H", body, vtable + entry)[0]
    at = field + struct.unpack_from("<I", body, field)[0]
    return body[at + 4:at + 4 + struct.unpack_from("<I", body, at)[0]].decode()


def job(path):
    """The job as a dictionary; empty if the file cannot be read or is not a manifest."""
    try:
        with open(path, "rb") as file:
            return tomllib.loads(_string(file.read()[HEAD_BYTES:], JOB_TEXT_ENTRY))
    except (OSError, ValueError, struct.error):
        return {}
