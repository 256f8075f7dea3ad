"""Stands in for ssh and sshd: `fake_ssh.py HOST COMMAND` runs the command with sh in a session of its own, as another
machine would, and passes its own stdin to it. The command's stdin ends when this process ends.

The folder FAKE_SSH may contain: `down-HOST` (the host does not answer), `banner` (shown on stderr), `rooted-HOST` (two paths on one line: HOST has
the second one in place of the first), `connections` (written here: a line for each command, process and host).
"""

import os
import pathlib
import subprocess
import sys
import threading

HERE = pathlib.Path(os.environ["FAKE_SSH"])
SSH_FAILED = 255


def relay(target):
    try:
        while data := os.read(0, 65536):
            target.write(data)
            target.flush()
        target.close()
    except OSError:
        pass


host, command = sys.argv[1:]
if (HERE / f"down-{host}").exists():
    print(f"ssh: connect to host {host} port 22: Connection refused", file=sys.stderr)
    sys.exit(SSH_FAILED)
if (HERE / "banner").exists():
    print("Authorized use only", file=sys.stderr, flush=True)
with open(HERE / "connections", "a") as file:
    file.write(f"{os.getpid()} {host}\n")
try:
    here, there = (HERE / f"rooted-{host}").read_text().split()
    command = command.replace(here, there)
except OSError:
    pass
child = subprocess.Popen(["sh", "-c", command], stdin=subprocess.PIPE, start_new_session=True)
threading.Thread(target=relay, args=(child.stdin,), daemon=True).start()
code = child.wait()
sys.stdout.flush()
os._exit(code if code >= 0 else SSH_FAILED)
