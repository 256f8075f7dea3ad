"""tarn from Python: `tarn.connect` for training, `tarn.export`, `tarn.score` and `tarn.keys` for serving."""

_CLIENT = ("Client", "Error", "Future", "Gone", "InvalidArgument", "Rows", "Table", "Timeout", "connect")


def __getattr__(name):  # so that who reads exports needs no libtarn.so
    if name in _CLIENT:
        from tarn import client

        return getattr(client, name)
    raise AttributeError(f"module 'tarn' has no attribute {name!r}")
