"""Checks the hosts of a fleet, all at once, before anything is started."""

import dataclasses
import os
import pathlib
import secrets

from tarn_tools import remote

TOKEN_NAME = ".launch-token"  # in remote_check.sh too
SECONDS_MAX = 60.0
ANSWER = "tarn-launch: "
OUTPUT_LINES = 2  # last lines of output shown for a host without a complete answer
PROBLEMS = {  # by the first word of a line of remote_check.sh; {}: the rest of the line
    "absent": "no {}: workers read the data under the same path on every host (--set data.dir=DIR)",
    "do-not-load": "the programs in {} do not start there: libraries are missing, which an unpacked tools/bundle has",
    "occupied": "{} is there already, and is not the run's folder of this machine: name a new one, --run-dir DIR",
    "cannot-make": "the run's folder cannot be made ({}): name another, --run-dir DIR",
    "no-tool": "there is no program {}",
}
NOT_SHARED = (
    "servers there would write checkpoints where nobody else finds them: {} there is not the same folder as on this "
    "machine. Name one that all hosts share, --run-dir DIR, or do without checkpoints: --set storage.durability=none"
)


@dataclasses.dataclass
class Needs:
    """The requirements of a run for its hosts."""

    run_dir: str
    folders: list  # possible directories of the programs; the first that has them is used
    data: list = dataclasses.field(default_factory=list)  # files read by workers
    resumed: str = ""  # the run or checkpoint to resume, read by servers
    checkpoints: bool = True  # whether servers write any to the run directory

    def files(self, host):
        """The files that the processes on this host read."""
        return (self.data if host.workers else []) + ([self.resumed] if host.servers and self.resumed else [])


@dataclasses.dataclass
class Found:
    """The result for a host. `programs`: their directory. `libraries`: the directory of the fallback libraries, if they
    are needed. `made`: the run directory was created on it for this run."""

    programs: str = ""
    libraries: str = ""
    made: bool = False
    problems: list = dataclasses.field(default_factory=list)


def data_files(data, base_dir):
    """The files that every worker reads, from the job's [data]; for idx their folder. Empty without a training file."""
    folder, train = data.get("dir"), data.get("train")
    if not isinstance(train, str) or not train or folder == "" or not isinstance(folder, (str, type(None))):
        return []
    folder = os.path.normpath(os.path.join(base_dir, folder or "."))
    if data.get("format") == "idx":  # each name is a prefix of several files
        return [folder]
    names = [data.get(name) for name in ("train", "valid", "test")]
    return [os.path.join(folder, name) for name in names if isinstance(name, str) and name]


def check(ssh, hosts, needs, given_up):
    """{host's name: Found}. Stops waiting when `given_up()` is true. Raises OSError."""
    token = pathlib.Path(needs.run_dir) / TOKEN_NAME
    token.write_text(secrets.token_hex(16))
    try:
        commands = {host.name: _command(host, needs, token.read_text()) for host in hosts}
        results = ssh.run_on_all(commands, SECONDS_MAX, given_up)
    finally:
        token.unlink()
    return {host.name: _interpret(host, *results[host.name], needs, ssh) for host in hosts}


def _command(host, needs, token):
    lists = (_programs(host), needs.folders, needs.files(host))
    return remote.script("remote_check.sh", needs.run_dir, token, *("\n".join(items) for items in lists))


def _programs(host):
    return [f"tarn-{role}" for role in ("server", "worker") if getattr(host, f"{role}s")]


def _interpret(host, code, output, needs, ssh):
    lines = output.decode("utf-8", "replace").splitlines()
    answers = [line.removeprefix(ANSWER).partition(" ")[::2] for line in lines if line.startswith(ANSWER)]
    text_of = dict(answers)
    found = Found(text_of.get("programs", ""), text_of.get("libraries", ""), "made" in text_of)
    if "end" not in text_of:
        found.problems.append(_no_answer(code, lines, ssh.to_try(host.name)))
        return found
    if not found.programs and "do-not-load" not in text_of:
        found.problems.append(_no_programs(host, needs))
    found.problems += [_problem(word, text, needs) for word, text in answers if word in PROBLEMS]
    if host.servers and needs.checkpoints and found.made:
        found.problems.append(NOT_SHARED.format(needs.run_dir))
    return found


def _no_answer(code, lines, to_try):
    output = " / ".join(line.strip() for line in lines[-OUTPUT_LINES:] if line.strip())
    how = {None: "does not answer", remote.SSH_FAILED: "cannot be reached"}.get(code, f"answers with exit code {code}")
    return f"{how}{output and f' ({output})'}; try: {to_try}"


def _no_programs(host, needs):
    names, folders = " and ".join(_programs(host)), " or ".join(needs.folders)
    return (f"expected {names} in {folders}, of a checkout that is built (tools/build) or of an unpacked tools/bundle; "
            "give its folder on the hosts with --remote-dir DIR")


def _problem(word, text, needs):
    if word == "absent" and text == needs.resumed:
        return f"no {text}: servers read the run to resume under the same path on every host"
    return PROBLEMS[word].format(text)
