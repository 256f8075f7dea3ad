"""The processes of a run and the ports on which they listen, from /proc."""

import contextlib
import pathlib
import socket

from fleet_case import BIN

LISTENING = "0A"  # the state in /proc/net/tcp


def naming(run_dir):
    """{process id: its arguments} of all processes with this run's folder among their arguments, including the launcher
    and shells that have not replaced themselves by a program yet."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        if str(run_dir).encode() in line:
            found[int(entry.name)] = [argument.decode() for argument in line]
    return found


def of_run(run_dir):
    """{process id: program} of the fleet's processes that have this folder of a run in their command line."""
    return {pid: pathlib.Path(line[0]).name for pid, line in naming(run_dir).items() if line[0].startswith(f"{BIN}/")}


def workers(run_dir):
    return [pid for pid, program in of_run(run_dir).items() if program == "tarn-worker"]


def open_files(pid):
    """What the descriptors of a process refer to, without those that are closed meanwhile."""
    with contextlib.suppress(OSError):  # the process has ended
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(descriptor.readlink())


def sockets(run_dir):
    """{inode: program} of all sockets that the processes of a run hold."""
    return {target[8:-1]: program for pid, program in of_run(run_dir).items() for target in open_files(pid)
            if target.startswith("socket:[")}


def listening_ports(run_dir):
    """{port: program} of the ports on which the processes of a run listen."""
    inodes = sockets(run_dir)
    ports = {}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENING and fields[9] in inodes:
            ports[int(fields[1].split(":")[1], 16)] = inodes[fields[9]]
    return ports


def http_answer(port, request="GET /healthz"):
    """The first line of the answer of a port of this machine to an HTTP request; b"" after a reset."""
    with contextlib.suppress(ConnectionResetError), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        return connection.recv(1000).split(b"\r\n")[0]
    return b""


def speaks_http(port):
    return http_answer(port) == b"HTTP/1.1 200 OK"
