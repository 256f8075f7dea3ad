"""The file of tools/launch --hosts: the machines of a fleet, and the processes on each."""

import dataclasses
import re

HERE = ("localhost", "local")  # processes of these lines are started without ssh
COUNTS = ("servers", "workers")
ADDRESS = re.compile(r"[A-Za-z0-9_.-]+")  # a name or an IPv4 address, because nodes use IPv4


class BadHosts(ValueError):
    """The hosts file is invalid. The message names the file, the line and what was expected there."""


@dataclasses.dataclass
class Host:
    """One line: a host name for ssh, and its processes."""

    name: str
    servers: int = 0
    workers: int = 0
    address: str = ""  # address of its servers for workers; empty: that of the interface that leads to the scheduler

    @property
    def here(self):
        return self.name in HERE


def parse(text, path):
    """Parses the text of a file; keeps its order. Raises BadHosts."""
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        host = _host(words, f"{path}:{number}")
        earlier = next((other for other in hosts if other.name == host.name or (other.here and host.here)), None)
        if earlier:
            raise BadHosts(f"{path}:{number}: {host.name} is already on an earlier line ({earlier.name}): expected one line per host")
        hosts.append(host)
    for role in COUNTS:
        if not sum(getattr(host, role) for host in hosts):
            raise BadHosts(f"{path}: no {role}: expected {role}=N on at least one line, such as: node1 servers=1 workers=2")
    return hosts


def read(path):
    """Reads the hosts of a file. Raises BadHosts and OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return parse(file.read(), path)


def _host(words, where):
    host = Host(words[0])
    if host.name.startswith("-") or "=" in host.name:
        raise BadHosts(f"{where}: '{host.name}': expected the name of a host first, as in: node1 servers=1 workers=2")
    seen = set()
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in (*COUNTS, "address"):
            raise BadHosts(f"{where}: '{word}': expected servers=N, workers=N or address=HOST")
        if key in seen:
            raise BadHosts(f"{where}: '{word}': {key} occurs twice")
        seen.add(key)
        setattr(host, key, _value(key, value, f"{where}: '{word}'"))
    if not host.servers and not host.workers:
        raise BadHosts(f"{where}: nothing runs on {host.name}: expected servers=N or workers=N, above 0")
    return host


def _value(key, value, where):
    if key in COUNTS:
        if not re.fullmatch(r"[0-9]{1,5}", value):
            raise BadHosts(f"{where}: expected a whole number of at most 99999")
        return int(value)
    if not ADDRESS.fullmatch(value):
        raise BadHosts(f"{where}: expected a name or an IPv4 address")
    return value


def counts(hosts):
    """{"servers": 2, "workers": 3}: of all hosts together."""
    return {role: sum(getattr(host, role) for host in hosts) for role in COUNTS}


def places(hosts):
    """{("server", 0): host, ...}: ranks are consecutive on a host, and hosts are in the order of the file."""
    found = {}
    for role in ("server", "worker"):
        holders = [host for host in hosts for _ in range(getattr(host, f"{role}s"))]
        found |= {(role, rank): host for rank, host in enumerate(holders)}
    return found
