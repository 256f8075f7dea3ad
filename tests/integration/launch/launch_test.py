"""Shows that tools/launch restarts dead workers, fails with the reason when a server dies, turns Ctrl-C into a clean
stop, and leaves no process behind however it ends. Fake programs stand in for the fleet (fake_program.py)."""

import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from launch_case import FLEET, TOOLS, LaunchCase, eventually

from tarn_tools import charts, launch_options, own_program, progress, report, series, stages, summary, trace


class LaunchTest(LaunchCase):
    def test_a_run_ends_with_a_table_and_a_report(self):
        done = self.launch('prints = "disk is slow"\n')
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(self.pids()), 5)
        for text in ("status", "finished", "eval AUC", "0.7500", "report.html", "scheduler: disk is slow"):
            self.assertIn(text, done.stdout)
        self.assertIn("<svg", (self.run_dir / "report.html").read_text())

    def test_programs_of_the_current_folder(self):
        """Not those of the same names in PATH."""
        command = [word if word != str(self.bin_dir) else "." for word in self.command("starts = 5\n")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.bin_dir)
        self.assert_nothing_left()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_quiet_shows_only_the_result(self):
        done = self.launch("", "--quiet")
        self.assertNotIn("launch:", done.stdout)
        self.assertIn("eval AUC", done.stdout)

    def test_a_dead_worker_is_restarted(self):
        done = self.launch("starts = 6\ndeaths = 1\nworker_crashes = 1\ncrashing_rank = 1\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker-1 restarted (1 of 2)", done.stdout)
        self.assertIn("gradient is not finite", done.stdout)
        self.assertEqual(len(self.pids()), 6)

    def test_a_worker_that_dies_for_ever_is_left_out(self):
        done = self.launch("starts = 7\ndeaths = 3\nworker_crashes = 9\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("worker-0 was restarted 2 times; going on without it", done.stdout)
        self.assertEqual(len(self.pids()), 7)

    def test_no_worker_left_fails_the_run(self):
        with unittest.mock.patch("launch_case.FLEET", FLEET.replace("workers = 2", "workers = 1")):
            done = self.launch("seconds = 60\nworker_crashes = 9\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: worker-0 died: exit code 1; log: ", done.stdout)
        self.assertIn("; it was restarted 2 times, and no worker is left", done.stdout)

    def test_a_dead_server_fails_the_run(self):
        done = self.launch("seconds = 60\nserver_dies = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("server-1 died: killed by SIGABRT", done.stdout)
        self.assertIn("logs/server-1.log", done.stdout)
        self.assertIn("    disk is full", done.stdout)
        self.assertIn(
            "server-1 died", json.loads((self.run_dir / "summary.json").read_text()).get("reason")
        )

    def test_a_killed_server_and_scheduler_say_what_is_lost(self):
        """Also how to go on, by what the run has kept."""
        none = 'the job has no checkpoints (storage.durability = "none")'
        states = (
            ("", (), "all trained parameters are lost: no checkpoint was complete. Start the job again"),
            ('[storage]\ndurability = "none"\n', (), f"all trained parameters are lost: {none}. Start the job again"),
            ('[storage]\ndurability = "none"\n', ("--resume", str(self.folder)),
             f"changes since the resume are lost: {none}. To resume again: GO_ON {self.folder}"),
            ("", ("ckpt-2", "ckpt-10"),
             "changes since the newest checkpoint, ckpt-10, are lost. To continue from it: GO_ON RUN"),
            ("", ("scheduler.state",), "nothing acknowledged is lost. To continue: GO_ON RUN"),
        )
        (self.folder / "MANIFEST").touch()
        for number, (fake, kept, text) in enumerate(states):
            for role, signal_name, dies in (("server-1", "SIGABRT", "server_dies = true\nseconds = 60\n"),
                                            ("scheduler", "SIGKILL", "scheduler_dies = true\n")):
                with self.subTest(text=text, role=role):
                    self.run_dir = self.folder / f"run-{number}-{role}"
                    more = kept if "--resume" in kept else ()
                    keeps = "".join(f'"{name}", ' for name in kept if name not in more)
                    done = self.launch(f"{dies}keeps = [{keeps}]\n{fake}", *more)
                    self.assertEqual(done.returncode, 1, done.stdout)
                    go_on = f"tools/launch --bin-dir {self.bin_dir} --resume"
                    told = text.replace("GO_ON", go_on).replace("RUN", str(self.run_dir))
                    reason = json.loads((self.run_dir / "summary.json").read_text())["reason"]
                    self.assertRegex(reason, f"^{role} died: killed by {signal_name}; log: ")
                    self.assertTrue(reason.endswith(f".log; {told}"), reason)
                    self.assertIn(f"failed: {reason}\n", done.stdout)

    def test_what_a_server_said_at_its_end_is_kept_while_the_scheduler_goes_on(self):
        done = self.launch("seconds = 60\nserver_gives_up = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: server-1 died: exit code 1 (unavailable: disk is full); log: ", done.stdout)
        self.assertNotIn("    start 1", done.stdout)  # it has printed the reason, so its log is not shown

    def refused(self, *words):
        """The error of tools/launch for a bad command line; nothing may start."""
        command = [sys.executable, str(TOOLS / "launch"), "--bin-dir", str(self.bin_dir), "--run-dir", str(self.run_dir), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertFalse(self.run_dir.exists())
        return done.stderr.splitlines()[-1]

    def test_a_program_without_dashes_is_shown_with_them(self):
        self.command()
        head = f"tools/launch --bin-dir {self.bin_dir} --run-dir {self.run_dir}"
        for program in (["python3", "my.py", "--rate", "3"], ["sh", "-c", "echo a b"], ["./mine"]):
            self.assertIn(f"two dashes: {head} job.toml -- {shlex.join(program)}", self.refused("job.toml", *program))
        self.assertIn(f"two dashes: {head} --resume . -- python3 my.py", self.refused("--resume", ".", "python3", "my.py"))
        self.assertNotIn("dashes", self.refused("job.toml", "--epochs", "3"))
        self.assertIn("unrecognized arguments: --epochs 3", self.refused("job.toml", "--epochs", "3"))
        self.assertIn("--restarts -1: expected at least 0", self.refused("job.toml", "--restarts", "-1"))

    def test_an_override_without_an_equals_sign_is_shown_with_one(self):
        self.command()
        for words in (["job.toml", "--set", "fleet.workers", "3"], ["--set", "fleet.workers", "3", "job.toml"]):
            self.assertIn("--set fleet.workers: expected section.key=value, such as --set fleet.workers=3", self.refused(*words))
        self.assertIn("such as --set fleet.workers=VALUE", self.refused("job.toml", "--set", "fleet.workers"))

    def test_a_job_with_nothing_to_train_on_starts_nothing(self):
        self.command()
        job = self.folder / "job.toml"
        job.write_text(job.read_text().replace('train = "rows"', ""))
        told = self.refused("job.toml", "--set", "fleet.workers=3")
        self.assertIn("the job has no training file", told)
        self.assertIn(f"--run-dir {self.run_dir} job.toml --set fleet.workers=3 -- PROGRAM [ARGUMENT...]", told)
        self.assertIn("the job has no training file", self.refused("--resume", "."))
        job.write_text("")
        self.assertIn("the job has no training file", self.refused("job.toml"))
        self.assertEqual(launch_options.parse_arguments([str(job), "--", "true"]).program, ["true"])
        (self.folder / "no.toml").write_text("no TOML")  # the scheduler reports what is wrong with it
        self.assertEqual(launch_options.parse_arguments([str(self.folder / "no.toml")]).program, [])

    def test_a_library_that_the_user_exports_counts_here_and_not_on_other_hosts(self):
        with unittest.mock.patch.dict(os.environ, {"TARN_LIBRARY": "/mine/libtarn.so"}):
            self.assertFalse([word for word in own_program.command(["x"], "/", "/b/bin", True, {}) if "TARN_LIBRARY" in word])
            self.assertIn("TARN_LIBRARY=/b/lib/libtarn.so", own_program.command(["x"], "/", "/b/bin", False, {}))
            done = self.launch("seconds = 60\n", "--", "sh", "-c", 'echo "it is $TARN_LIBRARY"')
        self.assertIn("worker-0: it is /mine/libtarn.so", done.stdout)
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop("TARN_LIBRARY", None)
            self.assertIn("TARN_LIBRARY=/b/lib/libtarn.so", own_program.command(["x"], "/", "/b/bin", True, {}))

    def test_what_a_process_prints_has_its_name_once(self):
        done = self.launch('prints = "tarn-scheduler: disk is slow"\n')
        self.assertIn("scheduler: disk is slow\n", done.stdout)
        self.assertNotIn("tarn-scheduler", done.stdout)

    def test_a_bad_job_is_told_and_leaves_no_folder(self):
        done = self.launch("bad_job = true\n")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("did you mean 'model'?", done.stdout)
        self.assertFalse(self.run_dir.exists())

    def test_ctrl_c_is_a_clean_stop_by_the_scheduler_alone(self):
        launcher = self.launch_in_background("seconds = 60\n", processes=5)
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertIn("stopped", output)
        self.assertEqual(self.lines("signals"), [f"scheduler {int(signal.SIGINT)}"])
        self.assert_nothing_left()

    def test_a_terminal_that_is_closed_is_a_clean_stop(self):
        """Nothing can be written to it any more. The shell and the kernel may both send a SIGHUP."""
        ours, theirs = os.openpty()
        launcher = self.launch_in_background("seconds = 60\n", processes=5, stdout=theirs, stderr=theirs)
        os.close(theirs)
        os.close(ours)
        launcher.send_signal(signal.SIGHUP)
        launcher.send_signal(signal.SIGHUP)
        self.assertEqual(launcher.wait(timeout=20), 0)
        self.assertEqual(self.lines("signals"), [f"scheduler {int(signal.SIGINT)}"])
        self.assertEqual(json.loads((self.run_dir / "summary.json").read_text())["status"], "stopped")
        self.assert_nothing_left()

    def test_nohup(self):
        launcher = self.launch_in_background("seconds = 60\n", processes=5,
                                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        launcher.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        self.assertIsNone(launcher.poll())
        self.assertEqual(self.lines("signals"), [])
        launcher.send_signal(signal.SIGINT)
        self.assertEqual(launcher.wait(timeout=20), 0)

    def test_who_stops_a_run_is_told_how_to_go_on(self):
        for fake, told in (("seconds = 60\ncuts = true\n", True), ("seconds = 60\n", False)):
            self.run_dir = self.folder / f"run-{told}"
            launcher = self.launch_in_background(fake, processes=5)
            launcher.send_signal(signal.SIGINT)
            output, _ = launcher.communicate(timeout=20)
            command = f"tools/launch --bin-dir {self.bin_dir} --resume {self.run_dir}\n"
            self.assertEqual(command in output, told, output)

    def test_a_run_goes_on_with_the_keys_that_it_had(self):
        keys = self.folder / "my fleet.keys"
        keys.touch()
        self.command()
        options = launch_options.parse_arguments([str(self.folder / "job.toml"), "--keys", str(keys), "--no-shm", "--quiet"])
        self.assertEqual(launch_options.go_on_command(options, "a b"), f"tools/launch --keys '{keys}' --no-shm --resume 'a b'")
        plain = launch_options.parse_arguments([str(self.folder / "job.toml")])
        self.assertEqual(launch_options.go_on_command(plain, "run"), "tools/launch --resume run")
        recorded = launch_options.parse_arguments([str(self.folder / "job.toml"), "--record"])
        self.assertEqual(launch_options.go_on_command(recorded, "run"),
                         "tools/launch --resume run --set storage.checkpoint_seconds=600.0")
        (self.folder / "scheduler.state").touch()
        self.assertEqual(launch_options.go_on_command(recorded, str(self.folder)), f"tools/launch --resume {self.folder}",
                         "a run with a log continues unchanged")
        hosts = self.folder / "hosts"
        hosts.write_text("node1 servers=2 workers=2\n")
        away = launch_options.parse_arguments(
            [str(self.folder / "job.toml"), "--hosts", str(hosts), "--ssh", "ssh -p 22", "--", "python3", "a b.py"])
        self.assertEqual(launch_options.go_on_command(away, "run"),
                         f"tools/launch --run-dir run-2 --hosts {hosts} --ssh 'ssh -p 22' --resume run -- python3 'a b.py'")

    def test_paths_of_overrides_count_from_the_current_folder(self):
        job = launch_options.overridden({"data": {"dir": "here", "train": "t"}}, ["data.dir=there", "storage.tier_dir=/x"])
        self.assertEqual(job["data"], {"dir": f"{os.getcwd()}/there", "train": "t"})
        self.assertEqual(job["storage"], {"tier_dir": "/x"})

    def test_ctrl_c_before_the_scheduler_listens_starts_nobody_else(self):
        launcher = subprocess.Popen(
            self.command("seconds = 60\nslow_seconds = 1.5\n"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=self.folder)
        self.addCleanup(launcher.stdout.close)
        self.addCleanup(launcher.kill)
        self.assertTrue(eventually(lambda: (self.run_dir / "job.toml").exists()))
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertEqual(len(self.pids()), 1, output)
        self.assert_nothing_left()

    def test_a_second_ctrl_c_kills(self):
        launcher = self.launch_in_background("seconds = 60\ndeaf = true\n", processes=5)
        launcher.send_signal(signal.SIGTERM)
        self.assertTrue(eventually(lambda: self.lines("signals")))
        self.assertIsNone(launcher.poll())
        launcher.send_signal(signal.SIGINT)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 130, output)
        self.assert_nothing_left()

    def test_kill_9_of_the_launcher_leaves_no_process(self):
        launcher = self.launch_in_background("seconds = 60\n", processes=5)
        launcher.kill()
        launcher.wait()
        self.assert_nothing_left()

    def test_a_dead_scheduler_fails_the_run_and_leaves_a_whole_summary(self):
        done = self.launch('scheduler_dies = true\n[consistency]\nmode = "ssp"\nstaleness = 4\napply = "immediate"\n')
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("scheduler died: killed by SIGKILL; log: ", done.stdout)
        told = json.loads((self.run_dir / "summary.json").read_text())
        known = {"job": "fake", "status": "failed", "mode": "ssp", "staleness_bound": 4, "apply": "immediate",
                 "servers": 2, "shards": 2, "workers": 2, "samples": 10, "train_logloss": 0.5, "staleness_max": 2}
        self.assertEqual({key: told[key] for key in known}, known)
        self.assertIn("killed by SIGKILL", told["reason"])
        for key in ("seconds", "samples_per_second", "eval_auc", "eval_logloss", "eval_accuracy", "staleness_mean",
                    "pull_bytes", "push_bytes", "parameters_hash"):
            self.assertIn(key, told)

    def test_what_a_process_said_long_before_is_not_why_it_died(self):
        lately = self.launch('prints = "disk is slow"\nscheduler_dies = true\n')
        self.assertIn("killed by SIGKILL (disk is slow); log: ", lately.stdout)
        self.run_dir = self.folder / "later"
        later = self.launch('prints = "disk is slow"\nscheduler_dies = true\nseconds = 6\n')
        self.assertIn("failed: scheduler died: killed by SIGKILL; log: ", later.stdout)

    def test_the_reason_is_the_schedulers_though_a_server_ends_first(self):
        done = self.launch("ends_badly = true\n")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("failed: worker 1: no such file\n", done.stdout)
        # Both servers print the reason: it is shown once, and once more as the reason of the failure.
        self.assertEqual(done.stdout.count("worker 1: no such file"), 2, done.stdout)
        self.assertNotIn("died", done.stdout)

    def test_a_reason_of_two_lines_is_shown_once(self):
        done = self.launch('ends_badly = true\nreason = """worker 1: bad rows:\n  train:3: no label"""\n')
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout.count("train:3: no label"), 2, done.stdout)
        self.assertNotIn("died", done.stdout)

    def test_who_fails_by_itself_is_told(self):
        done = self.launch('ends_badly = true\nreason = "shard 3: disk is full"\n')
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("server-1 died: exit code 1; log: ", done.stdout)
        self.assertNotIn("server-0 died", done.stdout)

    def test_a_diverged_run_is_no_success(self):
        done = self.launch("diverges = true\nseconds = 60\n")
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertIn("diverged: worker 1: training has diverged at clock 7 (epoch 1)\n", done.stdout)
        self.assertRegex(done.stdout, "status +diverged\n")
        for text in ("died", "restarted", "done"):
            self.assertNotIn(text, done.stdout)
        best = self.run_dir / "checkpoints/ckpt-2"
        self.assertIn(f"--resume {best} --set optimizer.learning_rate=SMALLER\n", done.stdout)
        page = (self.run_dir / "report.html").read_text()
        self.assertIn('<span class="badge bad">diverged</span>', page)
        self.assertIn("training has diverged at clock 7", page)

    def test_a_diverged_run_without_a_good_checkpoint_goes_on_from_its_newest(self):
        for number in (9, 10, "9-copied"):
            (self.run_dir / f"checkpoints/ckpt-{number}").mkdir(parents=True)
            (self.run_dir / f"checkpoints/ckpt-{number}/MANIFEST").touch()
        record = {"status": "diverged", "best_checkpoint": ""}
        overrides = ("optimizer.learning_rate=SMALLER",)
        self.assertEqual(summary.resumable(record, self.run_dir), (self.run_dir / "checkpoints/ckpt-10", overrides))
        self.assertEqual(summary.resumable({"status": "stopped"}, self.run_dir), (self.run_dir, ()))
        self.assertIsNone(summary.resumable({"status": "done"}, self.run_dir))
        self.assertIsNone(summary.resumable(record, self.folder))

    def test_who_dies_while_the_fleet_stops_is_told(self):
        launcher = self.launch_in_background("seconds = 60\nworker_fails_at_stop = true\n", processes=5)
        launcher.send_signal(signal.SIGTERM)
        output, _ = launcher.communicate(timeout=20)
        self.assertEqual(launcher.returncode, 0, output)
        self.assertIn("worker-1 died: exit code 1; log: ", output)
        self.assertIn("cannot write", output)
        self.assertNotIn("restarted", output)
        self.assert_nothing_left()

    def test_keys_go_to_every_program(self):
        keys = self.folder / "fleet.keys"
        done = self.launch("", "--keys", str(keys))
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("no such key file", done.stdout)
        keys.touch()
        self.assertEqual(self.launch("", "--keys", str(keys), "--insecure").returncode, 0)
        lines = [line for line in self.lines("logs/launch.log") if ": pid " in line]
        self.assertEqual(len(lines), 5)
        for line in lines:
            self.assertIn(f"--keys {keys}", line)
            self.assertIn("--insecure", line)

    def test_insecure_is_told(self):
        done = self.launch("", "--insecure")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("launch: warning: --insecure: anyone who can connect to a port of this fleet can", done.stdout)

    def test_a_reader_that_goes_away_does_no_harm(self):
        with subprocess.Popen(
            self.command("seconds = 3.0\n"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder
        ) as launcher:
            launcher.stdout.readline()
            launcher.stdout.close()
            complaints = launcher.stderr.read()
            self.assertEqual(launcher.wait(timeout=20), 0, complaints)
        self.assertEqual(complaints, "")
        self.assertTrue((self.run_dir / "report.html").exists())
        self.assert_nothing_left()

    def test_without_bin_dir_the_programs_are_brought_up_to_date(self):
        root = self.folder / "tree"
        (root / "tools").mkdir(parents=True)
        builder = root / "tools/build"
        builder.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/calls"\n')
        builder.chmod(0o755)
        with unittest.mock.patch.object(launch_options, "ROOT", root):
            options = argparse.Namespace(bin_dir=None, quiet=True)
            self.assertEqual(launch_options.find_programs(options), root / "build/release/bin")
            builder.write_text("#!/bin/sh\necho does not compile; exit 1\n")
            with self.assertRaises(subprocess.CalledProcessError) as failed:
                launch_options.find_programs(options)
        self.assertEqual((root / "tools/calls").read_text(), "release tarn-scheduler tarn-server tarn-worker\n")
        self.assertIn("does not compile", failed.exception.stdout)




class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_dir = pathlib.Path(folder.name)

    def test_missing_and_damaged_files_still_give_a_page(self):
        self.assertIn("no data", report.write(self.run_dir).read_text())
        (self.run_dir / "summary.json").write_text(
            '{"job": "<b>", "seconds": null, "epochs": [3], "stage_seconds": {"pull": 1}}'
        )
        (self.run_dir / "metrics.jsonl").write_text(
            '{"role": "scheduler", "time": 1, "loss": 0.5}\n[]\n{"role": "sched'
        )
        page = report.write(self.run_dir).read_text()
        self.assertIn("&lt;b&gt;", page)
        self.assertNotIn("<b> ", page)
        self.assertNotIn("http", page.replace("http-equiv", ""))

    def test_rates_survive_the_restart_of_a_worker(self):
        lines = [
            {"role": "worker", "rank": 0, "time": t, "pull_bytes": value}
            for t, value in ((0, 0), (1, 100), (2, 200), (3, 10), (4, 110))
        ]
        metrics = series.Metrics(lines)
        self.assertEqual([value for _, value in metrics.rate("pull_bytes")], [100, 100, 100])

    def test_what_a_killed_run_is_told_by_are_metrics_of_the_scheduler(self):
        table = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", (TOOLS.parent / "docs/run.md").read_text(), re.M)
        known = {name for name, reporters in table if "scheduler" in reporters or "sum" in reporters}
        self.assertEqual(set(summary.FROM_METRICS) - known, set())

    def test_texts(self):
        self.assertEqual(progress.duration(95), "1:35")
        self.assertEqual(summary.byte_count(1536), "1.5 kB")
        self.assertIsNone(summary.cache_text({"cache_rows": 0}))
        lost = {"best_kept": False, "best_epoch": 3, "best_checkpoint": "run/checkpoints/ckpt-1"}
        self.assertIn("epoch 3 could not be kept", dict(summary.rows(lost))["best epoch"])
        for kept in (True, None):
            self.assertNotIn("best epoch", dict(summary.rows(lost | {"best_kept": kept})))
        spared = {"cache_rows": 2000, "cache_hits": 500, "combined_pushes": 7}
        self.assertEqual(summary.cache_text(spared), "25.0% of 2,000 rows, 7 pushes combined")
        self.assertEqual(summary.hot_text({"hot_rows": 200, "hot_hits": 150}), "75.0% of 200 rows")
        self.assertIsNone(summary.passed_over_text({"batches_passed_over": 0}))
        passed_over = {"status": "done", "batches_passed_over": 3}
        self.assertIn(("batches passed over", "3 (their gradients do not fit fp16)"), summary.rows(passed_over))
        self.assertEqual(summary.malformed_text({"malformed_lines": 2}), "2, skipped (in the workers' logs)")
        self.assertIsNone(summary.malformed_text({"malformed_lines": 0}))
        skipped = dict(summary.rows({"status": "done", "rows_not_finite": 1500}))["gradients skipped"]
        self.assertEqual(skipped, "1,500, infinite or NaN: their rows were skipped (see the servers' logs)")
        self.assertNotIn("gradients skipped", dict(summary.rows({"status": "done", "rows_not_finite": 0})))
        late = dict(summary.rows({"status": "done", "gradients_discarded": 1500}))["gradients discarded"]
        self.assertEqual(late, "1,500, which came too late")
        self.assertNotIn("gradients discarded", dict(summary.rows({"status": "done", "gradients_discarded": 0})))
        passed = {"status": "done", "samples": 9, "train_logloss": None}
        self.assertEqual(summary.loss_text(passed), "none: no batch was pushed")
        self.assertIsNone(summary.loss_text(passed | {"status": "stopped"}))
        self.assertEqual(summary.loss_text(passed | {"train_logloss": 0.5}), "0.5000")
        epochs = {"best_epoch": 1, "epochs": [{}, {}], "best_checkpoint": "/x/checkpoints/ckpt-3"}
        self.assertEqual(summary.rows(epochs), [("best epoch", "1 of 2 (ckpt-3): its losses and scores follow")])
        for newest, best in (("/x/checkpoints/ckpt-5", "ckpt-3"), ("/resumed/checkpoints/ckpt-5", "/x/checkpoints/ckpt-3")):
            text = f"1 of 2 ({best}): its losses and scores follow"
            self.assertEqual(summary.rows(epochs | {"checkpoint": newest}), [("best epoch", text)])
        none = epochs | {"checkpoint": "/x/checkpoints/ckpt-5", "best_checkpoint": ""}
        self.assertEqual(summary.rows(none), [("best epoch", "1 of 2: its losses and scores follow")])
        self.assertEqual(summary.rows(epochs | {"epochs": [{}]}), [])
        scores = {"eval_auc": 0.75, "valid_rows": 5, "test_rows": 9}
        self.assertEqual(summary.rows(scores), [("test AUC", "0.7500")])
        self.assertEqual(summary.rows(scores | {"test_rows": 0}), [("validation AUC", "0.7500")])
        self.assertEqual(summary.fleet_text(1, 2, 1), "1 server with 2 shards each, 1 worker")
        self.assertEqual(charts.short(4e7, " ") + "B/s", "40 MB/s")
        record = {"progress": 0.5, "loss": float("nan"), "auc": 0.75, "samples": 1000, "eta_seconds": 3}
        self.assertEqual(progress.plain_line(record), " 50%  3 s left  1,000 samples  AUC 0.7500")
        self.assertEqual(progress.plain_line({"samples": 0, "state": "waiting"}), "waiting")

    def test_a_run_that_never_trained_shows_no_zeros(self):
        record = {"status": "failed", "samples": 0, "seconds": 0.0, "samples_per_second": 0.0, "staleness_mean": 0.0,
                  "staleness_max": 0, "pull_bytes": 0, "push_bytes": 0}
        names = [name for name, _ in summary.rows(record)]
        self.assertEqual(names, ["status", "samples", "time"])
        (self.run_dir / "summary.json").write_text(json.dumps(record))
        page = report.write(self.run_dir).read_text()
        self.assertNotIn("no data", page)
        self.assertIn("Nothing was trained", page)

    def test_traces_are_joined_and_keep_what_they_say_of_themselves(self):
        def part(begin, one_slice_in):
            span = {"ph": "X", "name": "pull", "pid": 0, "tid": 3, "ts": begin, "dur": 0.001}
            return json.dumps({"traceEvents": [span], "otherData": {"one_slice_in": one_slice_in}})

        (self.run_dir / "logs").mkdir()
        (self.run_dir / "logs/trace-worker-0-3.json").write_text(part(2000000000.125, 1))
        (self.run_dir / "logs/trace-worker-1-4.json").write_text(part(2000000000.126, 4))
        (self.run_dir / "logs/trace-worker-2-5.json").write_text("[]")
        joined = json.loads(trace.merge(self.run_dir).read_text())
        self.assertEqual([event["ts"] for event in joined["traceEvents"]], [0, 0.001])
        self.assertEqual(joined["otherData"], {"worker-0-3": {"one_slice_in": 1}, "worker-1-4": {"one_slice_in": 4}})
        self.assertEqual([file.name for file in (self.run_dir / "logs").iterdir()], ["trace-worker-2-5.json"])

    def test_a_summary_says_what_bounds_the_job(self):
        seconds = {"read": 2, "plan": 1, "room": 6, "flight": 5, "pull": 1, "compute": 6, "push": 1, "wait": 1, "wall": 10}

        def bound(**changed):
            return stages.bound({"stage_seconds": seconds | changed})

        self.assertEqual(bound(), ("compute", "it is busy 60% of the time"))
        self.assertEqual(bound(push=7, compute=1)[0], "push")
        self.assertEqual(bound(pull=7, compute=1)[0], "pulls")
        self.assertEqual(bound(wait=7, compute=1, read=8)[0], "the reader")
        self.assertEqual(bound(wait=7, compute=1)[0], "work")
        self.assertEqual(bound(compute=1), ("messages", "the training loop sends and receives 60% of the time"))
        self.assertEqual(
            stages.table({"stage_seconds": seconds}),
            [
                ("reader", "30%", "70%", "60% for room, 10% for work"),
                ("pulls", "50%", "50%", "for batches to come in"),
                ("compute", "60%", "20%", "10% for rows, 10% for data"),
                ("push", "10%", "90%", "for gradients"),
            ],
        )
        for of_an_older_run in ({}, {"stage_seconds": {"pull": 1}}, {"stage_seconds": seconds | {"wall": 0}}):
            self.assertEqual(stages.table(of_an_older_run), [])
            self.assertIsNone(summary.bound_text(of_an_older_run))
            self.assertEqual(report.stage_table(of_an_older_run), "")
        self.assertIn("What bounds this job: compute; it is busy 60% of the time.", report.stage_table({"stage_seconds": seconds}))

    def test_the_live_line_keeps_its_columns(self):
        record = {"progress": 0.5, "eta_seconds": 3, "samples": 1000, "epoch": 1, "samples_per_second": 912345.6,
                  "loss": 0.5, "auc": 0.75, "staleness_mean": 1.25}
        line = progress.live_line(record, 99)
        self.assertEqual(
            line, "[####----]   50%  3 s left      epoch 1  912,346 samples/s  loss 0.5000  AUC 0.7500  staleness 1.25"
        )
        later = progress.live_line(record | {"eta_seconds": 3999, "samples_per_second": 12.0, "state": "train"}, 99)
        for word in ("epoch", "loss", "AUC", "staleness"):
            self.assertEqual(line.index(word), later.index(word))
        scored = progress.live_line({"progress": 1.0, "state": "checkpoint", "samples": 9, "loss": 0.5}, 99)
        self.assertIn("100%  checkpoint", scored)
        self.assertEqual(scored.index("loss"), line.index("loss"))
        for words in ("3 s left", "loss", "staleness"):  # what matters is there on 80 columns
            self.assertIn(words, progress.live_line(record, 79))
        for columns in range(100):
            self.assertLessEqual(len(progress.live_line(record, columns)), columns)


if __name__ == "__main__":
    unittest.main()
