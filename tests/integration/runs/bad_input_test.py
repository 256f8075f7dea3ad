"""Shows that bad input to real programs ends in one clear error that names what, where and what was expected, and
leaves no process: job files, data files, ports, folders, checkpoints of another job, full disks."""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import unittest

from fleet_case import BIN, ROOT, FleetCase


class BadInputTest(FleetCase):
    rows = 4_000

    def fails(self, job, name, *more, code=None):
        """Launches a run that must fail and leave no process. Returns its output."""
        returned, _, output = self.launch(job, name, *more, timeout=120)
        self.assertNotEqual(returned, 0, output)
        if code is not None:
            self.assertEqual(returned, code, output)
        for program in ("tarn-scheduler", "tarn-server", "tarn-worker"):
            left = subprocess.run(["pgrep", "-f", f"{program}.*{self.folder / name}"], capture_output=True, text=True)
            self.assertEqual(left.stdout, "", f"{program} was left behind")
        return output

    def edited(self, old, new, **more):
        path = self.job(**more)
        text = path.read_text()
        self.assertIn(old, text)
        path.write_text(text.replace(old, new))
        return path

    def test_unknown_key_names_line_and_nearest(self):
        output = self.fails(self.edited("batch_rows", "batch_row"), "key", code=2)
        self.assertRegex(output, r"job-.*\.toml:\d+")
        self.assertIn("batch_rows", output)

    def test_wrong_type_names_expected_and_found(self):
        output = self.fails(self.edited("epochs = 1", 'epochs = "one"'), "type", code=2)
        self.assertIn("epochs", output)
        self.assertRegex(output, "integer")

    def test_asp_with_aggregated_is_refused(self):
        output = self.fails(self.job(mode="asp", apply="aggregated"), "asp", code=2)
        self.assertIn("asp", output)
        self.assertIn("aggregated", output)

    def test_help_of_every_program_starts_nothing(self):
        empty = self.folder / "empty"
        empty.mkdir()
        programs = [path for path in sorted(BIN.glob("tarn-*")) if not path.suffix and os.access(path, os.X_OK)]
        self.assertIn(BIN / "tarn-worker", programs)
        for program in programs:
            done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=30, cwd=empty)
            self.assertEqual(done.returncode, 0, f"{program}: {done.stderr}")
            self.assertIn("usage", done.stdout.lower(), program)
            self.assertEqual(os.listdir(empty), [], program)

    def test_the_job_of_the_readme_runs_as_it_is_pasted(self):
        text = (ROOT / "README.md").read_text().partition("```toml\n")[2].partition("```")[0]
        root = self.folder / "root"
        (root / "data").mkdir(parents=True)
        (root / "data/criteo-1m").symlink_to(self.data)  # as tools/quickstart makes it, and smaller
        (root / "my-fm.toml").write_text(text)
        done = subprocess.run(self.command("my-fm.toml", "run"), capture_output=True, text=True, timeout=240, cwd=root)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_job_without_data_shows_how_a_program_is_given(self):
        path = self.folder / "no-data.toml"
        path.write_text("[job]\n")
        output = self.fails(path, "no-data", code=2)
        self.assertIn("the job has no training file", output)
        self.assertIn("--quiet -- PROGRAM [ARGUMENT...]", output)
        self.assertFalse((self.folder / "no-data").exists(), "nothing has begun")

    def test_errors_of_a_job_begin_with_what_is_wrong(self):
        for override, why in (("a=3", "scheduler: --set 'a=3': unknown section 'a'"),
                              ("optimizer.learning_rate=0,1", "with a decimal point: 0.1"),
                              ("data.format=csv", "criteo is tab-separated text")):
            output = self.fails(self.job(), "wrong", "--set", override, code=2)
            self.assertIn(why, output)
            self.assertNotIn("tarn-scheduler", output)

    def test_a_job_that_is_too_long_with_all_settings_is_refused(self):
        path = self.job()
        path.write_text(path.read_text() + "".join(f'[tables.t{number}]\nexpire_clocks = 9\n' for number in range(850)))
        output = self.fails(path, "long", code=2)
        self.assertIn(f"{path}, with all settings written out: more than 4096 dots", output)

    def test_a_run_without_checkpoints_says_so_when_it_is_resumed(self):
        self.run_ok(self.job(), "fleeting")
        output = self.fails(self.job(), "fleeting-2", "--resume", self.folder / "fleeting", code=2)
        self.assertIn('this run has no checkpoint, because its job has storage.durability = "none"', output)

    def test_the_first_line_of_another_format_is_named(self):
        lines = (self.data / "train.tsv").read_text().splitlines()
        (self.data / "narrow.tsv").write_text("".join(line.rpartition("\t")[0] + "\n" for line in lines))
        job = self.edited('train = "train.tsv"', 'train = "narrow.tsv"', workers=3, split_rows=256)
        self.assertIn("narrow.tsv:1: 39 tab-separated fields: expected 40", self.fails(job, "narrow"))

    def test_a_node_without_the_keys_is_asked_for_them(self):
        keys, run_dir = self.folder / "fleet.keys", self.folder / "keyed"
        subprocess.run([BIN / "tarn-keys", keys], check=True, stdout=subprocess.DEVNULL)
        port = self.folder / "port-keyed"
        scheduler = subprocess.Popen(
            [BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir, "--keys", keys, "--port-file", port],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        nodes = []
        try:
            while not port.exists():
                self.assertIsNone(scheduler.poll())
                time.sleep(0.01)
            for program, *more in (["tarn-worker"], ["tarn-server", "--rank", "0", "--join-seconds", "40"]):
                command = [BIN / program, "--scheduler", port.read_text().strip(), "--insecure", *more]
                nodes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
            for node in nodes:  # the first note comes after ten seconds, and a node gives up in the end
                self.assertTrue(any("(--keys)" in line for line in node.stderr))
        finally:
            for process in (scheduler, *nodes):
                process.kill()
                process.wait()
            for node in nodes:
                node.stderr.close()

    def test_a_node_that_waits_for_its_scheduler_is_ended_by_a_signal(self):
        empty = self.folder / "no-scheduler"
        empty.mkdir()
        for node in (("tarn-server", "--rank", "0", "--shards", "1"), ("tarn-worker",)):
            for scheduler in (empty, "tcp://127.0.0.1:9"):
                for number in (signal.SIGTERM, signal.SIGINT):
                    with self.subTest(node=node[0], scheduler=scheduler, signal=number):
                        self.ends_while_it_waits([BIN / node[0], *node[1:], "--scheduler", scheduler], number)

    @staticmethod
    def listens(port):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def ends_while_it_waits(self, command, number):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([*command, "--insecure", "--http", f"127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while not self.listens(port):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        time.sleep(0.5)  # it opens the port shortly before it waits for the scheduler
        process.send_signal(number)
        output = process.communicate(timeout=10)[1]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("terminated by a signal", output)

    def test_missing_data_file_is_named(self):
        output = self.fails(self.edited('train = "train.tsv"', 'train = "nothing.tsv"'), "missing")
        self.assertIn("nothing.tsv", output)

    def test_a_pipe_as_data_file_is_refused_at_once(self):
        os.mkfifo(self.data / "pipe.tsv")
        output = self.fails(self.edited('train = "train.tsv"', 'train = "pipe.tsv"'), "pipe")
        self.assertIn(f"data file {self.data}/pipe.tsv is a pipe (FIFO)", output)

    def test_a_data_file_that_is_cut_short_is_named(self):
        whole = self.data / "short.tsv"
        shutil.copy(self.data / "train.tsv", whole)
        path = self.edited('train = "train.tsv"', 'train = "short.tsv"', epochs=400)
        run_dir = self.folder / "short"
        process = subprocess.Popen(self.command(path, run_dir), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        deadline = time.time() + 60
        metrics = run_dir / "metrics.jsonl"
        while time.time() < deadline and not (metrics.exists() and '"state":"train"' in metrics.read_text()):
            time.sleep(0.05)
        bytes_before = whole.stat().st_size
        os.truncate(whole, 100)
        output, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn(f"data file {whole} was truncated while it was read: it has 100 bytes, expected {bytes_before}", output)
        self.assertNotIn("SIGBUS", output)

    def limited(self, limit, name):
        """Launches a run under that ulimit, which must fail. Returns its output and its seconds."""
        began = time.time()
        command = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", *self.command(self.job(), self.folder / name)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stdout, time.time() - began

    def test_too_few_files_are_named_at_the_start(self):
        output, seconds = self.limited("-n 24", "files")
        self.assertIn("this process may open 24 files (ulimit -Hn), expected at least", output)
        self.assertLess(seconds, 60)

    def test_too_little_address_space_is_named_at_the_start(self):
        output, seconds = self.limited("-v 300000", "space")
        self.assertIn("this process may have 292 MiB of address space (ulimit -v 300000), expected at least", output)
        self.assertNotIn("SIGABRT", output)
        self.assertLess(seconds, 60)

    def test_malformed_data_names_file_and_line(self):
        shutil.copy(self.data / "train.tsv", self.data / "broken.tsv")
        lines = (self.data / "broken.tsv").read_text().splitlines()
        lines[99] = "2\tnot a row"
        (self.data / "broken.tsv").write_text("\n".join(lines))
        job = self.edited('train = "train.tsv"', 'train = "broken.tsv"')
        output = self.fails(job, "malformed")
        self.assertIn("broken.tsv:100", output)
        # Within data.malformed_max the line is skipped, and counted in every epoch.
        summary = self.run_ok(job, "malformed-allowed", "--set", "data.malformed_max=1", "--set", "train.epochs=2")
        self.assertEqual(summary["malformed_lines"], 2)

    def test_a_training_set_of_one_class_is_told(self):
        lines = (self.data / "train.tsv").read_text().splitlines()
        (self.data / "zeros.tsv").write_text("".join(f"0{line[1:]}\n" for line in lines))
        job = self.edited('train = "train.tsv"', 'train = "zeros.tsv"')
        code, _, output = self.launch(job, "one-class")
        self.assertEqual(code, 0, output)
        self.assertIn(f"epoch 1: all {len(lines)} labels of the training set are 0", output)

    def test_a_resume_with_nothing_left_to_train_says_so(self):
        job = self.job(durability="checkpoint", checkpoint_final=True)
        self.run_ok(job, "whole")
        code, summary, output = self.launch(job, "again", "--resume", self.folder / "whole")
        self.assertEqual((code, summary["samples"]), (0, self.rows), output)
        self.assertIn("nothing to train: all 1 epochs are done", output)
        code, _, output = self.launch(job, "more", "--resume", self.folder / "whole", "--set", "train.epochs=2")
        self.assertEqual(code, 0, output)
        self.assertNotIn("nothing to train", output)

    def test_a_path_of_the_command_line_counts_from_the_current_folder(self):
        elsewhere = self.folder / "jobs"
        elsewhere.mkdir()
        job = shutil.move(self.edited(f'dir = "{self.data}"', 'dir = "nowhere"'), elsewhere / "job.toml")
        command = self.command(job, self.folder / "from-here", "--set", f"data.dir={self.data.name}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_file_is_no_folder_for_a_run(self):
        job = self.job()
        done = subprocess.run([BIN / "tarn-scheduler", "--job", job, "--run-dir", job], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, f"tarn-scheduler: --run-dir {job}: expected a folder, found a file\n")

    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            run_dir = self.folder / "port"
            (run_dir / "logs").mkdir(parents=True)
            done = subprocess.run(
                [BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir, "--insecure", "--bind", f"tcp://127.0.0.1:{port}"],
                capture_output=True, text=True, timeout=30)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(str(port), done.stdout + done.stderr)
        self.assertIn("in use", done.stdout + done.stderr)

    def test_a_run_that_is_not_over_is_not_begun_anew(self):
        run_dir = self.folder / "not-over"
        (run_dir / "logs").mkdir(parents=True)
        state = run_dir / "scheduler.state"
        state.write_bytes(b"all that can go on from the logs")
        done = subprocess.run([BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--resume {run_dir}", done.stderr)
        self.assertEqual(state.read_bytes(), b"all that can go on from the logs")

    def test_a_folder_with_checkpoints_is_not_begun_anew(self):
        run_dir = self.folder / "done"
        manifest = run_dir / "checkpoints/ckpt-7/MANIFEST"
        manifest.parent.mkdir(parents=True)
        manifest.touch()
        done = subprocess.run([BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir],
                              capture_output=True, text=True, timeout=30)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"--resume {run_dir}", done.stderr)
        self.assertTrue(manifest.exists())

    def test_a_newer_checkpoint_that_is_not_whole_is_named(self):
        job, run_dir = self.job(durability="checkpoint"), self.folder / "cut-short"
        self.run_ok(job, run_dir.name)
        partial = run_dir / "checkpoints/ckpt-99"
        partial.mkdir()
        told = self.folder / "told"
        with open(told, "w", encoding="utf-8") as errors:
            command = [BIN / "tarn-scheduler", "--resume", run_dir, "--run-dir", self.folder / "behind", "--port-file",
                       self.folder / "port-behind"]
            scheduler = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            try:
                while not (self.folder / "port-behind").exists():
                    self.assertIsNone(scheduler.poll())
                    time.sleep(0.01)
            finally:
                scheduler.kill()
                scheduler.wait()
        self.assertIn(f"{partial}: skipped", told.read_text())

    def test_a_folder_has_one_scheduler(self):
        run_dir = self.folder / "one"
        (run_dir / "logs").mkdir(parents=True)
        command = [BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir, "--port-file", run_dir / "port"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            try:
                while not (run_dir / "port").exists():
                    self.assertIsNone(first.poll())
                    time.sleep(0.01)
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
            finally:
                first.kill()
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{run_dir}/scheduler.lock: another scheduler is running in this folder", done.stderr)

    def test_a_scheduler_waits_for_one_that_goes(self):
        run_dir = self.folder / "soon"
        (run_dir / "logs").mkdir(parents=True)
        command = [BIN / "tarn-scheduler", "--job", self.job(), "--run-dir", run_dir, "--port-file", run_dir / "port"]
        with open(run_dir / "scheduler.lock", "w", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            second = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.2)
            self.assertFalse((run_dir / "port").exists())
        try:
            while not (run_dir / "port").exists():
                self.assertIsNone(second.poll())
                time.sleep(0.01)
        finally:
            second.kill()
            second.wait()

    def test_checkpoint_of_other_tables_is_refused(self):
        job = self.job(durability="checkpoint", checkpoint_final=True)
        self.run_ok(job, "first")
        output = self.fails(job, "wider", "--resume", self.folder / "first", "--set", "model.embedding_dim=8")
        self.assertIn("model", output)

    def test_damaged_checkpoint_names_the_file(self):
        job = self.job(durability="checkpoint", checkpoint_final=True, epochs=2)
        self.run_ok(job, "sound")
        newest = sorted((self.folder / "sound/checkpoints").glob("ckpt-*"))[-1]
        sst = max(newest.glob("*.sst"), key=lambda p: p.stat().st_size)
        data = bytearray(sst.read_bytes())
        data[len(data) // 2] ^= 0x10
        sst.write_bytes(data)
        output = self.fails(job, "damaged", "--resume", self.folder / "sound", "--set", "train.epochs=3")
        self.assertIn(sst.name, output)

    @unittest.skipUnless(os.geteuid() == 0, "needs root to mount a small file system")
    def test_full_disk_is_told_and_training_data_survives(self):
        small = self.folder / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True).returncode != 0:
            self.skipTest("cannot mount a tmpfs here")
        try:
            job = self.job(durability="checkpoint", checkpoint_final=True)
            code, summary, output = self.launch(job, "small/run")
            self.assertNotEqual(code, 0, output)
            self.assertRegex(output, "(?i)no space left")
        finally:
            subprocess.run(["umount", "-l", small])


if __name__ == "__main__":
    unittest.main(verbosity=2)
