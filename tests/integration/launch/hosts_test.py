"""Shows that tools/launch --hosts rejects what cannot work before anything starts, starts the fleet on the hosts of the
file, passes keys without exposing them, handles deaths on hosts like local ones, and leaves nothing on any host,
however the launcher or a connection ends. Fake programs stand in for the fleet (fake_program.py), and a script for ssh
(fake_ssh.py)."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

from launch_case import HERE, LaunchCase, alive, eventually

from tarn_tools import deployment, fleet, hosts, preflight, remote

TWO = "node1 servers=1 workers=1  # the first\n\nnode2 servers=1 workers=1\n"
SECRET = "0123456789012345678901234567890123456789"


class FileTest(unittest.TestCase):
    def test_what_runs_where(self):
        found = hosts.parse("local servers=1\n# none\nme@a servers=1 workers=2 address=10.0.0.1\nb workers=1\n", "f")
        self.assertEqual(hosts.counts(found), {"servers": 2, "workers": 3})
        self.assertEqual([host.here for host in found], [True, False, False])
        names = {place: host.name for place, host in hosts.places(found).items()}
        self.assertEqual(names, {("server", 0): "local", ("server", 1): "me@a", ("worker", 0): "me@a",
                                 ("worker", 1): "me@a", ("worker", 2): "b"})
        self.assertEqual(found[1].address, "10.0.0.1")

    def test_errors_name_the_file_the_line_and_what_was_expected(self):
        good = "a servers=1 workers=1\n"
        for text, expected in (
            ("", "f: no servers: expected servers=N"),
            ("a servers=1\n", "f: no workers: expected workers=N"),
            (good + "b\n", "f:2: nothing runs on b: expected servers=N or workers=N"),
            (good + "b workers=0", "f:2: nothing runs on b"),
            (good + "b worker=1", "f:2: 'worker=1': expected servers=N, workers=N or address=HOST"),
            (good + "b 4", "f:2: '4': expected servers=N"),
            (good + "b workers=two", "f:2: 'workers=two': expected a whole number"),
            (good + "b workers=-1", "f:2: 'workers=-1': expected a whole number"),
            (good + "b workers=1 workers=1", "f:2: 'workers=1': workers occurs twice"),
            (good + "b workers=1 address=a:b", "f:2: 'address=a:b': expected a name or an IPv4 address"),
            (good + "a workers=1", "f:2: a is already on an earlier line"),
            ("local servers=1\nlocalhost workers=1", "f:2: localhost is already on an earlier line (local)"),
            (good + "workers=1", "f:2: 'workers=1': expected the name of a host"),
            (good + "-oProxyCommand=x workers=1", "f:2: '-oProxyCommand=x': expected the name of a host"),
        ):
            with self.assertRaises(hosts.BadHosts) as caught:
                hosts.parse(text, "f")
            self.assertTrue(str(caught.exception).startswith(expected), str(caught.exception))


class SshTest(unittest.TestCase):
    def test_ssh_never_asks_and_another_program_gets_the_host_and_the_command_alone(self):
        argv = remote.Ssh("/usr/bin/ssh -p 2222").argv("node1", ["echo", "a b"])
        self.assertEqual(argv[:3] + argv[-2:], ["/usr/bin/ssh", "-p", "2222", "node1", "echo 'a b'"])
        self.assertIn("-oBatchMode=yes", argv)
        self.assertEqual(remote.Ssh("rsh -x").argv("node1", ["true"]), ["rsh", "-x", "node1", "true"])
        self.assertEqual(remote.Ssh("ssh -p 2").to_try("node1"), "ssh -p 2 -o BatchMode=yes node1 true")

    def test_the_shells_exit_code_of_a_signal_is_the_signal(self):
        node = remote.RemoteNode("worker", 0, remote.Ssh("ssh"), "node1", ["true"], pathlib.Path("/nowhere/log"))
        node.process = unittest.mock.Mock()
        for code, expected, words in ((134, -6, "SIGABRT"), (2, 2, "bad usage"), (0, 0, "clean"), (-9, -9, "SIGKILL"),
                                      (255, 255, "ssh does not get to node1; try: ssh -o BatchMode=yes node1 true")):
            node.process.returncode = code
            self.assertEqual(node.code, expected)
            self.assertIn(words, node.how_it_ended())
        self.assertEqual(node.log_hint, "node1:/nowhere/log")

    def test_connections_to_one_host_are_made_a_few_at_a_time(self):
        made = [unittest.mock.Mock(host="a", connecting=True) for _ in range(deployment.CONNECTING_MAX)]
        room = deployment.Deployment.has_room_for
        self.assertFalse(room(made[0], made))
        self.assertTrue(room(unittest.mock.Mock(host="b"), made))
        made[1].connecting = False
        self.assertTrue(room(made[0], made))
        self.assertTrue(room(fleet.Node("worker", 0, [], None), made))

    def test_this_machines_address_is_that_towards_the_host(self):
        self.assertEqual(deployment.address_towards("127.0.0.3"), "127.0.0.1")
        with self.assertRaises(OSError):
            deployment.address_towards("no such host")

    def test_the_files_that_workers_read(self):
        data = {"dir": "../d", "train": "a", "test": "b"}
        self.assertEqual(preflight.data_files(data, "/x/y"), ["/x/d/a", "/x/d/b"])
        self.assertEqual(preflight.data_files(data | {"format": "idx"}, "/x/y"), ["/x/d"])
        self.assertEqual(preflight.data_files({"dir": "/d"}, "/x"), [])
        self.assertEqual(preflight.data_files({"train": 3}, "/x"), [])


    def test_servers_read_what_is_resumed(self):
        needs = preflight.Needs("/run", [], data=["/d"], resumed="/old")
        both, server, worker = hosts.parse("a servers=1 workers=1\nb servers=1\nc workers=1", "f")
        self.assertEqual([needs.files(host) for host in (both, server, worker)], [["/d", "/old"], ["/old"], ["/d"]])


class HostsCase(LaunchCase):
    """Two hosts, node1 and node2, which are this machine."""

    def setUp(self):
        super().setUp()
        (self.bin_dir / "tarn-keys").write_text(f'#!/bin/sh\numask 077\necho "secret {SECRET}" > "$1"\n')
        (self.bin_dir / "tarn-keys").chmod(0o755)
        self.hosts = self.folder / "hosts"
        self.hosts.write_text(TWO)
        self.address = ["--address", "127.0.0.1"]
        environment = unittest.mock.patch.dict(os.environ, {"FAKE_SSH": str(self.folder)})
        environment.start()
        self.addCleanup(environment.stop)

    def command(self, fake="", *more):
        ssh = f"{sys.executable} -S {HERE / 'fake_ssh.py'}"
        return super().command(fake, "--hosts", str(self.hosts), "--ssh", ssh, *self.address, *more)

    def processes(self):
        """The running processes of this test on all hosts: those with a path in its folder in their command line."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes() if entry.name.isdigit() and entry.name != str(os.getpid()) else b""
            except OSError:
                continue
            if str(self.folder).encode() in line and alive(entry.name):
                found.append((entry.name, line.replace(b"\0", b" ")[-200:]))
        return found

    def assert_nothing_left(self):
        self.assertTrue(eventually(lambda: not self.processes(), 15.0), self.processes())

    def connections(self):
        path = self.folder / "connections"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, launcher, condition):
        """Waits for the condition. If it does not become true, kills the launcher and fails with its output."""
        found = eventually(condition, 20.0)
        if not found:
            launcher.kill()
        self.assertTrue(found, None if found else launcher.communicate()[0])


class HostsTest(HostsCase):
    def test_a_run_on_two_hosts(self):
        done = self.launch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("2 servers with 2 shards each, 2 workers on 2 hosts; scheduler at tcp://", done.stdout)
        self.assertNotIn("tarn-launch:", done.stdout)
        self.assertEqual(len(self.pids()), 5)
        started = [line.split(": ") for line in self.lines("logs/launch.log") if ": on node" in line]
        where = {line[0].split()[-1]: line[2].split()[1] for line in started}
        self.assertEqual(where, {"server-0": "node1", "server-1": "node2", "worker-0": "node1", "worker-1": "node2"})
        arguments = self.lines("arguments")[0]
        for text in ('"--bind", "tcp://0.0.0.0:*", "--advertise", "127.0.0.1"', '"fleet.servers=2"', '"fleet.workers=2"'):
            self.assertIn(text, arguments)

    def test_keys_are_made_handed_over_where_nobody_sees_them_and_removed(self):
        launcher = self.launch_in_background("seconds = 60\n", 5)
        made = self.run_dir / "fleet.keys"
        self.assertEqual(made.stat().st_mode & 0o777, 0o600)
        self.wait_for(launcher, lambda: len(self.lines("keys")) == 4)
        for line in self.lines("keys"):
            self.assertIn(SECRET, line)
        for _, line in self.processes():
            self.assertNotIn(SECRET.encode(), line)
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=20)
        self.assertFalse(made.exists())
        self.assertNotIn(SECRET, "".join(self.lines("logs/launch.log")))

    def test_insecure_means_no_keys_and_own_keys_are_taken(self):
        done = self.launch("", "--insecure")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(self.lines("keys"), [])
        self.run_dir = self.folder / "other"
        own = self.folder / "own.keys"
        own.write_text("of my own")
        done = self.launch("", "--keys", str(own))
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len([line for line in self.lines("keys") if "'my'" in line]), 4)
        self.assertTrue(own.exists())

    def test_local_lines_need_no_ssh(self):
        self.hosts.write_text("local servers=2 workers=1\nnode1 workers=1\n")
        done = self.launch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(self.pids()), 5)
        self.assertEqual({host for _, host in self.connections()}, {"node1"})
        server = next(line for line in self.lines("logs/launch.log") if "server-0: pid" in line)
        self.assertIn("--bind tcp://0.0.0.0:* --keys ", server)
        self.hosts.write_text("localhost servers=2 workers=2\n")
        self.run_dir, self.address = self.folder / "all-here", []
        done = self.launch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(self.pids()), 5)
        self.assertNotIn("--keys", "".join(self.lines("logs/launch.log")))

    def test_the_file_counts_and_who_says_otherwise_is_told(self):
        done = self.launch("", "--set", "fleet.workers=3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("hosts: workers=2 in all, but --set says fleet.workers=3", done.stdout)
        self.hosts.write_text("node1 servers=1 workers=1 gpus=2\n")
        done = self.launch()
        self.assertEqual(done.returncode, 2)
        self.assertIn("hosts:1: 'gpus=2': expected servers=N", done.stdout)
        self.assertFalse(self.run_dir.exists())

    def test_the_schedulers_address_is_guessed_or_asked_for(self):
        self.hosts.write_text("127.0.0.2 servers=2 workers=2\n")
        self.address = []
        done = self.launch()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn('"--advertise", "127.0.0.1"', self.lines("arguments")[0])
        self.hosts.write_text("no..name servers=1 workers=1\n")
        self.run_dir = self.folder / "other"
        done = self.launch()
        self.assertEqual(done.returncode, 1)
        self.assertIn("--address HOST[:PORT]", done.stdout)
        self.assertFalse(self.run_dir.exists())
        self.address = ["--address", "here:70000"]
        done = self.launch()
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected HOST or HOST:PORT", done.stdout)


class PreflightTest(HostsCase):
    def refused(self, expected, fake="", *more):
        done = self.launch(fake, *more)
        self.assertEqual(done.returncode, 1, done.stdout)
        for text in expected:
            self.assertIn(text, done.stdout)
        self.assertFalse(self.run_dir.exists(), "nothing has begun")

    def test_all_hosts_that_do_not_answer_are_named(self):
        (self.folder / "down-node1").touch()
        (self.folder / "down-node2").touch()
        self.refused(["node1: cannot be reached (ssh: connect to host node1 port 22: Connection refused); try: ",
                      "node2: cannot be reached", "node1 true"])

    def test_missing_programs(self):
        self.refused(["node1: expected tarn-server and tarn-worker in /nowhere/build/release/bin or /nowhere/bin, of",
                      "--remote-dir DIR"], "", "--remote-dir", "/nowhere")

    def test_programs_that_do_not_start(self):
        there = self.folder / "there/bin"
        there.mkdir(parents=True)
        for name in ("tarn-server", "tarn-worker"):
            (there / name).write_text("#!/bin/sh\nexit 127\n")
            (there / name).chmod(0o755)
        self.refused([f"node1: the programs in {there} do not start there"], "", "--remote-dir", str(there.parent))

    def test_missing_data_where_workers_run(self):
        self.hosts.write_text("node1 servers=1\nnode2 workers=1\n")
        (self.folder / "d").mkdir()
        (self.folder / "d/a").touch()
        fake = '[data]\ndir = "d"\ntrain = "a"\nvalid = "b"\n'
        self.refused([f"node2: no {self.folder}/d/b: workers read the data under the same path"], fake)
        done = self.launch(fake, "--set", "data.dir=nowhere")
        self.assertIn(f"node2: no {self.folder}/nowhere/a", done.stdout)
        self.assertNotIn("node1:", done.stdout)

    def test_checkpoints_need_a_folder_that_servers_share(self):
        elsewhere = self.folder / "elsewhere"
        (self.folder / "rooted-node2").write_text(f"{self.run_dir} {elsewhere}")
        self.refused(["node2: servers there would write checkpoints where nobody else finds them", "--run-dir DIR",
                      "--set storage.durability=none"])
        self.assertFalse(elsewhere.exists())

    def test_a_folder_of_something_else_is_left_alone(self):
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        (self.folder / "rooted-node1").write_text(f"{self.run_dir} {elsewhere}")
        self.refused([f"node1: {elsewhere} is there already"], '[storage]\ndurability = "none"\n')
        self.assertTrue(elsewhere.exists())

    def test_what_a_program_saves_on_a_host_is_left_there(self):
        elsewhere = self.folder / "elsewhere"
        (self.folder / "rooted-node2").write_text(f"{self.run_dir} {elsewhere}")
        self.hosts.write_text("node1 servers=2 workers=1\nnode2 workers=1\n")
        saves = ("--", "sh", "-c", 'echo "$TARN_RANK" > "$TARN_RUN_DIR/model"')
        for _ in range(2):  # a run that continues has the same folder there
            done = self.launch('seconds = 60\n[storage]\ndurability = "none"\n', *saves)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn(f"launch: files of your programs are left: node2:{self.run_dir}", done.stdout)
            self.assertEqual((elsewhere / "model").read_text(), "1\n")
            self.assertFalse((elsewhere / "logs").exists())
            shutil.rmtree(self.run_dir)

    def test_ctrl_c_while_hosts_are_asked_ends_it(self):
        (self.folder / "slow").write_text("#!/bin/sh\nexec sleep 60\n")
        (self.folder / "slow").chmod(0o755)
        launcher = self.launch_in_background_of([*self.command(), "--ssh", str(self.folder / "slow")])
        self.wait_for(launcher, lambda: (self.run_dir / ".launch-token").exists())
        launcher.send_signal(signal.SIGINT)
        launcher.communicate(timeout=20)
        self.assertFalse(self.run_dir.exists())
        self.assert_nothing_left()

    def launch_in_background_of(self, command):
        launcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(launcher.stdout.close)
        self.addCleanup(launcher.kill)
        return launcher


class EndsTest(HostsCase):
    def ssh_of(self, rank_of):
        """The id of the local ssh process of a node, such as worker-1."""
        line = next(line for line in self.lines("logs/launch.log") if f"{rank_of}: pid " in line)
        return int(line.split(": pid ")[1].split(":")[0])

    def test_a_dead_worker_is_restarted(self):
        done = self.launch("seconds = 6.0\nworker_crashes = 1\ncrashing_rank = 1\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker-1 died: exit code 1; log: ", done.stdout)
        self.assertIn("    gradient is not finite", done.stdout)
        self.assertIn("worker-1 restarted (1 of 2)", done.stdout)
        self.assertEqual(len(self.pids()), 6)

    def test_a_server_that_dies_by_a_signal_fails_the_run_and_says_which(self):
        done = self.launch("seconds = 60\nserver_dies = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("server-1 died: killed by SIGABRT", done.stdout)
        self.assertIn("    disk is full", done.stdout)

    def test_what_a_server_said_comes_through(self):
        done = self.launch("seconds = 60\nserver_gives_up = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: server-1 died: exit code 1 (unavailable: disk is full); log: ", done.stdout)

    def test_ctrl_c_is_a_clean_stop_by_the_scheduler_alone(self):
        launcher = self.launch_in_background("seconds = 60\n", 5)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertEqual(self.lines("signals"), [f"scheduler {int(signal.SIGINT)}"])
        self.assert_nothing_left()

    def test_a_second_ctrl_c_kills(self):
        launcher = self.launch_in_background("seconds = 60\ndeaf = true\n", 5)
        launcher.send_signal(signal.SIGINT)
        self.assertTrue(eventually(lambda: self.lines("signals")))
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 130, output)
        nodes = [line for line in self.lines("signals") if "scheduler" not in line]
        self.assertEqual(sorted(nodes), [f"{role} {int(signal.SIGTERM)}" for role in ("server", "server", "worker", "worker")])
        self.assert_nothing_left()

    def test_kill_9_of_the_launcher_leaves_no_process(self):
        launcher = self.launch_in_background("seconds = 60\n", 5)
        launcher.kill()
        launcher.wait()
        self.assert_nothing_left()

    def test_a_lost_connection_ends_what_ran_behind_it(self):
        launcher = self.launch_in_background("seconds = 60\n", 5)
        first = next(int(line.split()[2]) for line in self.lines("pids") if line.startswith("worker 1 "))
        os.kill(self.ssh_of("worker-1"), signal.SIGKILL)
        self.assertTrue(eventually(lambda: not alive(first)))
        self.wait_for(launcher, lambda: len(self.pids()) == 6)
        time.sleep(0.2)
        os.kill(self.ssh_of("server-0"), signal.SIGKILL)
        output, _ = launcher.communicate(timeout=30)
        self.assertEqual(launcher.returncode, 1, output)
        self.assertIn("worker-1 restarted (1 of 2)", output)
        self.assertIn("server-0 died: killed by SIGKILL", output)
        self.assert_nothing_left()

    def test_a_host_that_goes_away_is_named(self):
        launcher = self.launch_in_background("seconds = 60\n", 5)
        (self.folder / "down-node2").touch()
        os.kill(self.ssh_of("worker-1"), signal.SIGKILL)
        self.wait_for(launcher, lambda: "going on without it" in "".join(self.lines("logs/launch.log")))
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=30)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertIn("worker-1 died: ssh does not get to node2; try: ", output)
        self.assert_nothing_left()

    def test_what_does_not_listen_is_killed(self):
        deaf = self.folder / "deaf"
        deaf.write_text(f"#!/bin/sh\ntrap '' TERM\necho $$ > {self.folder}/deaf.pid\nwhile :; do sleep 1; done\n")
        deaf.chmod(0o755)
        ssh = remote.Ssh(f"{sys.executable} -S {HERE / 'fake_ssh.py'}")
        node = remote.RemoteNode("worker", 0, ssh, "node1", [str(deaf)], self.folder / "log")
        watched = fleet.Fleet(lambda node, line: node.is_greeting(line))
        self.addCleanup(watched.close)
        watched.start(node)
        while not node.greeted:
            watched.wait(0.1)
        self.assertTrue(eventually((self.folder / "deaf.pid").exists))
        watched.kill()
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
