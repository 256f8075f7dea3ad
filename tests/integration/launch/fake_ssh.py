"""Stands in for ssh and sshd: `fake_ssh.py HOST COMMAND` runs the command with sh in a session of its own, as a user's
other machine would, and is its connection: what comes on stdin is passed on, and ends when this process does.

Its folder may hold: `down-HOST` (the host does not answer), `rooted-HOST` (a folder that HOST has in the place of the
one that the file names, both ends of it in one line), `connections` (a line a command: process, host; made here).
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
