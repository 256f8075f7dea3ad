"""tools/launch: runs a fleet for one job, from the start to the table of results."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time

from tarn_tools import fleet as fleets
from tarn_tools import called, cores, deployment, errors, launch_options, own_program, progress, report, summary, trace

EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_DIVERGED, EXIT_KILLED = 0, 1, 2, 4, 130
# Exit codes of the programs after which a restart is useless: bad usage, diverged.
PROGRAM_FINAL = (2, EXIT_DIVERGED)
ENDED_BADLY = ("failed", "diverged")  # values of `status` in summary.json that have a reason
ADDRESS_SECONDS_MAX = 120.0  # a scheduler that resumes verifies the checkpoint before it listens
SHUTDOWN_SECONDS_MAX = 30.0  # time for servers and workers to end after the scheduler
STOPPED_SECONDS_MAX = 5.0  # the same after a stop, and after all of the user's programs have ended
REASON_SECONDS_MAX = 5.0  # after a server's end or a divergence: wait for the scheduler to write why the job ended
RESTART_SECONDS = 0.25  # before the first restart of a worker, doubled each time
RESTART_SECONDS_MAX = 4.0
TAIL_LINES = 8
LAST_LINE_SECONDS = 5.0  # output of a process within this time before its end is taken as the reason
SAME_LINE_CHARS = 60  # lines that end in this many equal characters, within SAME_LINE_SECONDS, are the same message
SAME_LINE_SECONDS = 5.0


class Failure(Exception):
    """The run cannot continue. `code`: the launcher's exit code."""

    def __init__(self, reason, code=EXIT_FAILED):
        super().__init__(reason)
        self.code = code


class Launch:
    """One run. `execute` returns the exit code and leaves no process."""

    def __init__(self, options, bin_dir, folder):
        self._options, self._bin_dir, self._folder, self._run_dir = options, bin_dir, folder, folder.path
        self._display = progress.Display(options.quiet, options.plain)
        self._metrics = progress.MetricsTail(self._run_dir / "metrics.jsonl")
        self._journal = open(self._run_dir / "logs/launch.log", "a", buffering=1, encoding="utf-8", errors="backslashreplace")
        self._signals = []
        self._stopping = False
        self._restarts_max = 0
        self._deployment = deployment.Deployment(options, bin_dir, self._run_dir)
        self._port_file = self._run_dir / ".scheduler-address"
        self._begun = False
        self._listened = False  # the scheduler of one of the starts has accepted the job and listened
        self._previous_summary = summary.version(self._run_dir / "summary.json")  # of a run that continues in its folder
        self._shards = 1  # of a server
        self._resume = options.resume
        self._starts_again = 0  # how often this launcher has started the whole fleet again
        self._earlier_starts = 0  # of the fleet of this run, also by launchers before this one
        self._make_fleet()

    def _make_fleet(self):
        self._fleet = fleets.Fleet(self._on_output)
        self._scheduler = None
        self._cores = cores.Cores()  # while this machine trains
        self._complete = False  # all processes have been started
        self._killing = False
        self._programs_done = False  # all of the user's programs have ended
        self._ended = []  # ended nodes that are not handled yet
        self._late_failure = ""  # of a program, after the end of the training
        self._restarts_due = []  # (time, node)
        self._shown = []  # (node, line, when), the latest only

    def execute(self):
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
            if name != signal.SIGHUP or signal.getsignal(name) != signal.SIG_IGN:  # nohup ignores it
                signal.signal(name, self._on_signal)
        started = time.time()
        try:
            code, reason = self._run_fleet()
            while code == EXIT_FAILED and self._may_start_again():
                self._prepare_again(reason)
                code, reason = self._run_fleet()
        finally:
            self._leave_hosts()
            self._port_file.unlink(missing_ok=True)
            if not self._was_refused() and self._metrics.poll():
                self._display.progress(self._metrics.latest)
            self._display.finish()
            self._fleet.close()
        return self._conclude(code, reason, time.time() - started)

    def _run_fleet(self):
        """Starts all processes and waits for their end. Returns an exit code and the reason of a failure."""
        code, reason = EXIT_OK, ""
        try:
            self._start_all()
            self._supervise()
        except (Failure, deployment.CannotDeploy) as failure:
            code, reason = getattr(failure, "code", EXIT_FAILED), str(failure)
        finally:
            self._kill()
        return code, reason

    def _may_start_again(self):
        """Whether --restarts allows another start of the fleet. A fleet that was never complete would fail again."""
        over = self._summary().get("status") == "done"
        return self._complete and not self._stopping and not over and self._starts_again < self._options.restarts

    def _prepare_again(self, reason):
        """Prepares another start: from the logs of the run, else its newest checkpoint, else from where it began."""
        self._starts_again += 1
        has_checkpoint = bool(summary.complete_checkpoints(self._run_dir))
        if has_checkpoint or (self._run_dir / "scheduler.state").exists():
            self._resume = str(self._run_dir)
        start = f"the newest state in {self._resume}" if self._resume else "its beginning: there is no checkpoint"
        self._note(f"failed: {reason}")
        self._announce(f"launch: the fleet starts again ({self._starts_again} of {self._options.restarts}) from {start}")
        (self._run_dir / "summary.json").unlink(missing_ok=True)
        self._fleet.close()
        self._make_fleet()

    def _kill(self):
        for node in self._newly_ended(0):
            if node.code != 0:
                self._show_death(node)
        # From here on the processes' output, which is about being killed, is not shown.
        self._killing = True
        self._fleet.kill()

    def _leave_hosts(self):
        self._signals.clear()  # a signal from now on ends the fetching of files
        for place, why in self._deployment.close(self._begun, lambda: bool(self._signals)).items():
            self._announce(f"launch: {why}: {place}")

    # --- starting ---

    def _begin(self, node):
        self._await_room(node)
        if self._stopping:
            return node
        self._start(node)
        self._note(f"{node.name}: pid {node.process.pid}: {node.command_text()}")
        return node

    def _await_room(self, node):
        while not self._deployment.has_room_for(node, self._fleet.running()) and not self._stopping:
            self._handle_ends(0.05)
            self._handle_signals()

    def _start(self, node):
        try:
            self._fleet.start(node)
        except OSError as error:
            raise Failure(f"cannot run {node.argv[0]}: {error.strerror}") from error

    def _start_all(self):
        if not self._begun:
            self._deployment.prepare(lambda: bool(self._signals))
            self._handle_signals()
            if self._stopping:
                return
            self._begun = True
            if self._options.insecure and not self._options.keys:
                self._announce("launch: warning: --insecure: anyone who can connect to a port of this fleet can read and change the job")
        self._port_file.unlink(missing_ok=True)
        arguments = ["--port-file", str(self._port_file), *self._deployment.scheduler_arguments()]
        arguments += self._job_arguments()
        if self._resume:
            arguments += ["--resume", self._resume]
        self._scheduler = self._begin(self._deployment.node("scheduler", 0, arguments))
        address = self._await_address()
        if not address:
            return  # stopped before anything else began
        self._listened = True
        if summary.version(self._run_dir / "summary.json") == self._previous_summary:
            (self._run_dir / "summary.json").unlink(missing_ok=True)  # it describes the previous end
        job = launch_options.read_toml(self._run_dir / "job.toml", unreadable=None)
        if job is None:
            raise Failure(f"{self._run_dir}/job.toml cannot be read; expected the job that the scheduler has written, in UTF-8")
        sizes = job.get("fleet", {})
        if not self._starts_again:
            self._restarts_max = self._allowed_restarts(sizes)
        self._earlier_starts = own_program.count_start(self._run_dir, self._starts_again) if self._options.program else 0
        servers, workers = sizes.get("servers", 1), sizes.get("workers", 1)
        self._shards = sizes.get("shards", 1)
        if self._options.record:
            self._say(f"launch: records the run for {called.here('tools/replay')}, without periodic checkpoints")
        self._say(
            f"launch: {summary.fleet_text(servers, sizes.get('shards', 1), workers)}{self._deployment.where()}; "
            f"scheduler at {address}"
        )
        for role, count in (("server", servers), ("worker", workers)):
            for rank in range(count):
                self._handle_signals()
                if self._stopping:
                    return
                self._begin(self._node(role, rank, address, sizes))
        self._complete = True
        self._end_with_programs()

    def _node(self, role, rank, address, sizes):
        if role == "worker" and self._options.program:
            return self._deployment.program_node(address, rank, sizes, self._earlier_starts)
        return self._deployment.node(role, rank, ["--scheduler", address, "--rank", str(rank)], sizes)

    def _job_arguments(self):
        """A fleet that starts again has the job with which it began, even if its file was edited meanwhile."""
        resolved = self._run_dir / "job.toml"
        if self._starts_again and resolved.exists():
            return ["--job", str(resolved)]
        job = [] if self._options.job is None else ["--job", self._options.job]
        return job + [word for override in self._options.overrides for word in ("--set", override)]

    def _allowed_restarts(self, sizes):
        """The allowed restarts of a dead worker. A program of the user is restarted only if the job allows it."""
        if self._options.program:
            sizes = launch_options.section(launch_options.effective_job(self._options), "fleet")
            return sizes.get("worker_restarts", 0)
        return sizes.get("worker_restarts", 3)

    def _await_address(self):
        """Waits until the scheduler listens and returns its address; None if it ended cleanly before."""
        deadline = time.monotonic() + ADDRESS_SECONDS_MAX
        while time.monotonic() < deadline:
            self._handle_ends(0.02)
            self._handle_signals()
            if not self._scheduler.running or self._stopping:
                return None
            try:
                text = self._port_file.read_text()
            except OSError:
                continue
            if text.endswith("\n"):
                self._port_file.unlink(missing_ok=True)
                return text.strip()
        raise Failure(f"the scheduler does not listen after {ADDRESS_SECONDS_MAX:.0f} s; log: {self._scheduler.log}")

    # --- running ---

    def _supervise(self):
        """Supervises the fleet until all processes have ended."""
        shutdown_deadline = None
        while self._fleet.running() or self._restarts_due:
            self._handle_ends(0.2)
            self._handle_signals()
            if self._metrics.poll():
                self._display.progress(self._metrics.latest)
            self._watch_cores()
            if self._scheduler.running:
                self._restart_due_workers()
                continue
            while self._restarts_due:
                self._note_late_failure(self._restarts_due.pop(0)[1])
            stopped = self._stopping or self._programs_done
            if shutdown_deadline is None:
                shutdown_deadline = time.monotonic() + (STOPPED_SECONDS_MAX if stopped else SHUTDOWN_SECONDS_MAX)
            elif time.monotonic() > shutdown_deadline:
                if stopped:
                    return
                left = self._fleet.running()
                names = ", ".join(node.name for node in left)
                if self._options.program and all(node.role == "worker" for node in left):
                    self._announce(f"launch: the fleet has ended; waiting for {names}, which may still score or save")
                    shutdown_deadline = time.monotonic() + SHUTDOWN_SECONDS_MAX
                    continue
                raise Failure(f"still running {SHUTDOWN_SECONDS_MAX:.0f} s after the scheduler had ended: {names}")
        if self._late_failure:
            raise Failure(self._late_failure)

    def _note_late_failure(self, node):
        """Notes a program that failed after all data was trained: it had more to do, such as to save its model."""
        if self._options.program and not self._stopping and self._summary().get("status") == "done":
            self._late_failure = self._late_failure or self._death(node)

    def _watch_cores(self):
        """Measures the cores from the first sample to the scheduler's end, if the whole fleet is on this machine."""
        if self._options.hosts:
            return
        if not self._scheduler.running:
            self._cores.stop()
        elif progress.number(self._metrics.latest or {}, "samples"):
            self._cores.start()

    def _newly_ended(self, seconds):
        """Like Fleet.wait, but also returns the processes that ended earlier and are not handled yet."""
        ended, self._ended = self._ended + self._fleet.wait(seconds), []
        return ended

    def _handle_ends(self, seconds):
        self._ended += self._fleet.wait(seconds)
        while self._ended:
            self._on_exit(self._ended.pop(0))

    def _on_exit(self, node):
        code = node.code
        self._note(f"{node.name}: {node.how_it_ended()}")
        if code == 0 or (self._stopping and node is self._scheduler and code == -signal.SIGINT):
            self._end_with_programs()
            return  # SIGINT: the scheduler was stopped before it could handle signals
        if node.role == "worker" and code not in (own_program.NOT_STARTED if self._is_own(node) else PROGRAM_FINAL):
            self._on_worker_death(node)
            return
        bad_job = node.role == "scheduler" and code == EXIT_USAGE
        diverged = self._diverged(node)
        others = self._await_reason() if (node.role == "server" and code > 0) or diverged else []
        for dead in [node, *others]:
            if not bad_job:
                self._show_death(dead)
        killed = f"; {self._loss()}" if node.role in ("server", "scheduler") and code < 0 else ""
        raise Failure(self._death(node) + killed, EXIT_USAGE if bad_job else EXIT_DIVERGED if diverged else EXIT_FAILED)

    def _end_with_programs(self):
        """Stops the scheduler when all of the user's programs have ended, none of which is to be restarted."""
        left = self._ended or self._restarts_due or any(worker.running for worker in self._fleet.of_role("worker"))
        may_end = self._options.program and self._complete and not (self._stopping or self._programs_done)
        if may_end and not left and self._scheduler.running:
            self._programs_done = True
            self._scheduler.signal(signal.SIGINT)

    def _await_reason(self):
        """Waits until the scheduler has written why the job ended. A server that ends by itself may know the
        reason earlier, and a worker whose training diverges ends right after its message to the scheduler.

        Returns the other processes that died meanwhile.
        """
        dead = []
        deadline = time.monotonic() + REASON_SECONDS_MAX
        while self._scheduler.running and time.monotonic() < deadline:
            for node in self._newly_ended(0.05):
                self._note(f"{node.name}: {node.how_it_ended()}")
                dead += [node] if node.code != 0 else []
        return dead

    def _on_worker_death(self, node):
        self._show_death(node)
        if self._stopping:
            return
        if not self._scheduler.running:
            self._note_late_failure(node)
            return
        if self._options.program and not self._restarts_max:
            raise Failure(self._death(node))
        if node.restarts < self._restarts_max:
            delay = min(RESTART_SECONDS * 2**node.restarts, RESTART_SECONDS_MAX)
            self._restarts_due.append((time.monotonic() + delay, node))
            return
        if self._options.program:  # only the program knows whether others can do its part
            raise Failure(f"{self._death(node)}; it was restarted {node.restarts} times")
        if not self._restarts_due and not any(worker.running for worker in self._fleet.of_role("worker")):
            raise Failure(f"{self._death(node)}; it was restarted {node.restarts} times, and no worker is left")
        self._announce(f"launch: {node.name} was restarted {node.restarts} times; going on without it")

    def _restart_due_workers(self):
        now = time.monotonic()
        due = [node for when, node in self._restarts_due if when <= now]
        self._restarts_due = [(when, node) for when, node in self._restarts_due if when > now]
        for node in due:
            if self._stopping:
                continue
            node.restarts += 1
            self._start(node)
            self._announce(f"launch: {node.name} restarted ({node.restarts} of {self._restarts_max})")

    def _on_signal(self, number, _frame):
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _handle_signals(self):
        while self._signals:
            name = signal.Signals(self._signals.pop(0)).name
            if self._stopping and name == "SIGHUP":  # a shell and the kernel may both send it
                continue
            if self._stopping:
                raise Failure(f"killed by a second {name}", EXIT_KILLED)
            self._stopping = True
            if self._programs_done:  # a second signal to the scheduler would end its checkpoint
                self._announce(f"launch: {name}: the programs have ended, and the fleet is stopping; press again to kill")
                continue
            if self._scheduler is not None and self._scheduler.running:
                self._scheduler.process.send_signal(signal.SIGINT)
            none = 'stopping without a checkpoint (storage.durability = "none")'
            how = none if self._durability() == "none" else "writing a checkpoint, then stopping"
            self._announce(f"launch: {name}: {how}; press again to kill")

    # --- output ---

    def _note(self, text):
        with contextlib.suppress(OSError):  # on a full disk the terminal still shows it
            self._journal.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")

    def _say(self, text):
        self._note(text)
        self._display.say(text)

    def _announce(self, text):
        self._note(text)
        self._display.fail(text)

    def _on_output(self, node, line):
        """Shows the output of a process. All processes print the reason of a job's end; it is shown once."""
        self._note(f"{node.name}: {line}")
        if node.is_greeting(line):
            return
        node.last_line, node.last_line_at = line, time.monotonic()
        if self._is_own(node):
            self._on_program_output(node, line)
            return
        if self._killing:
            return
        line = line.removeprefix(f"tarn-{node.role}: ")
        if not self._was_shown(node, line):
            self._display.fail(f"{node.name}: {line}")

    def _is_own(self, node):
        return node.role == "worker" and bool(self._options.program)

    def _on_program_output(self, node, line):
        """Shows the output of a user's program, except messages about being stopped."""
        with contextlib.suppress(OSError), open(node.log, "a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(line + "\n")
        if not self._killing and not self._stopping:
            self._display.say(f"{node.name}: {line}")

    def _was_shown(self, node, line):
        """Whether the same line was shown shortly before; stores the line if not."""
        now = time.monotonic()
        self._shown = [entry for entry in self._shown if now - entry[2] < SAME_LINE_SECONDS]
        for other, shown, _ in self._shown:
            long = min(len(line), len(shown)) >= SAME_LINE_CHARS and line[-SAME_LINE_CHARS:] == shown[-SAME_LINE_CHARS:]
            if long or (other is not node and shown and (line.endswith(shown) or shown.endswith(line))):
                return True
        self._shown.append((node, line, now))
        return False

    def _recent_last_line(self, node):
        """The last output of an ended process, if it is recent enough to explain its end."""
        return node.last_line if node.ended_at - node.last_line_at < LAST_LINE_SECONDS else ""

    def _death(self, node):
        """Text: how a process ended, its reason if known, and the path of its log."""
        why = self._recent_last_line(node).removeprefix(f"tarn-{node.role}: ")
        return f"{node.name} died: {node.how_it_ended()}{why and f' ({why})'}; log: {node.log_hint}"

    def _loss(self):
        """Text: what is lost when a server or the scheduler is killed, and how to continue."""
        go_on = self._go_on_command(self._run_dir)
        if (self._run_dir / "scheduler.state").exists():
            of_programs = ", unless programs keep state: the run then continues from its newest checkpoint"
            return f"nothing acknowledged is lost{of_programs if self._options.program else ''}. To continue: {go_on}"
        if kept := summary.complete_checkpoints(self._run_dir):
            return f"changes since the newest checkpoint, {kept[-1].parent.name}, are lost. To continue from it: {go_on}"
        why = "no checkpoint was complete"
        if self._durability() == "none":
            why = 'the job has no checkpoints (storage.durability = "none")'
        if self._options.resume:
            return f"changes since the resume are lost: {why}. To resume again: {self._go_on_command(self._options.resume)}"
        return f"all trained parameters are lost: {why}. Start the job again"

    def _ended_with_job(self, node):
        """Whether a process ended because the job had failed for another reason."""
        reason = self._reason()
        if node.code <= 0 or not reason:
            return False
        first, shards = node.rank * self._shards, range(self._shards)
        own = [f"shard {first + i}: " for i in shards] if node.role == "server" else [f"{node.role} {node.rank}: "]
        printed = node.role == "scheduler" or self._recent_last_line(node).endswith(reason.splitlines()[-1])
        return printed and not reason.startswith(tuple(own))

    def _durability(self):
        return launch_options.section(launch_options.read_toml(self._run_dir / "job.toml"), "storage").get("durability")

    def _summary(self):
        """The scheduler's summary.json; empty if it has not written one since this launcher began."""
        path = self._run_dir / "summary.json"
        return summary.read(path) if summary.version(path) != self._previous_summary else {}

    def _was_refused(self):
        """Whether this is a run that was to continue in its folder, and its scheduler has not accepted that."""
        return self._folder.keep and not self._listened and not self._summary()

    def _diverged(self, node):
        """Whether a process ended because the training has diverged, which is a result and not a death."""
        return node.code == EXIT_DIVERGED and not self._is_own(node)

    def _reason(self):
        """The scheduler's reason of the job's failure; empty if unknown."""
        record = self._summary()
        return record.get("reason") if record.get("status") in ENDED_BADLY else ""

    def _show_death(self, node):
        if self._ended_with_job(node) or self._diverged(node) or (self._stopping and self._is_own(node)):
            return
        self._deployment.fetch_log(node)
        self._announce(f"launch: {node.name} died: {node.how_it_ended()}; log: {node.log_hint}")
        if not self._recent_last_line(node):
            for line in fleets.tail(node.log, TAIL_LINES):
                self._display.fail(f"    {line}")

    # --- the end ---

    def _settle_summary(self, code, reason, seconds):
        """Returns the summary and the reason of a failure; writes summary.json if the scheduler could not."""
        record = self._summary()
        self._cores.stop()
        if record and (more := self._cores.record()):
            record |= more
            self._write_summary(record)
        if not code and record:
            if self._options.program:
                done = self._programs_done and record.get("reason") == "stopped"  # with its checkpoint (scheduler/impl.cc)
                record = self._of_programs(record, seconds, done=done)
                self._write_summary(record)
            return record, ""
        if record.get("status") in ENDED_BADLY and record.get("reason"):
            return record, record["reason"]  # the scheduler knows the first cause
        if record.get("status") == "done":
            return record, reason  # processes that died later had finished their work
        job = launch_options.read_toml(self._run_dir / "job.toml") or launch_options.read_job(self._options)
        known = {"job": launch_options.job_name(self._options), "seconds": round(seconds, 3)} | record
        record = summary.complete(known, job, self._metrics.latest or {})
        status = "diverged" if code == EXIT_DIVERGED else "failed" if code else "stopped"
        record |= {"status": status, "reason": reason}
        record = self._of_programs(record, seconds) if self._options.program else record
        self._write_summary(record)
        return record, reason

    def _go_on_command(self, start, *overrides):
        return launch_options.go_on_command(self._options, start, overrides)

    def _of_programs(self, record, seconds, done=False):
        """Completes the summary of a fleet of user programs. Its scheduler counts samples only if it leases data. done:
        all programs have ended and then the fleet, which the launcher has stopped."""
        counted = () if progress.number(record, "samples") else ("samples", "samples_per_second", "train_seconds")
        unknown = dict.fromkeys(("model", *counted))
        if reported := (self._metrics.latest or {}).get("reported"):
            unknown["reported"] = reported
        return record | unknown | ({"status": "done", "reason": ""} if done else {}) | {"seconds": round(seconds, 3)}

    def _write_summary(self, record):
        part = self._run_dir / "summary.json.new"  # atomic: a kill during the write leaves the old file
        part.write_text(json.dumps(record, indent=2) + "\n")
        part.replace(self._run_dir / "summary.json")

    def _conclude_refused(self, code, reason):
        """Reports why a run did not continue. Its summary and report describe its previous end, and stay."""
        self._note(f"not continued: {reason}")
        if code != EXIT_USAGE and reason:  # the scheduler has printed what is wrong with the job
            progress.Outlet(sys.stderr).write(f"failed: {reason}\n")
        self._display.fail(f"launch: the run did not continue; its results in {self._run_dir} stay as they were")
        self._journal.close()
        return code

    def _remove_logs(self, code):
        """Removes the servers' logs of a run that has ended: no run continues from them."""
        is_over = code == EXIT_OK and not (self._run_dir / "scheduler.state").exists()
        if is_over and self._durability() == "log":  # otherwise a folder log/ is the user's
            shutil.rmtree(self._run_dir / "log", ignore_errors=True)

    def _conclude(self, code, reason, seconds):
        if not self._begun or (code == EXIT_USAGE and not (self._run_dir / "metrics.jsonl").exists()):
            for line in reason.splitlines() if not self._begun else []:
                progress.Outlet(sys.stderr).write(f"{called.here('tools/launch')}: {line}\n")
            self._journal.close()
            self._folder.remove()  # nothing was trained, and the error was reported
            return code
        if self._was_refused():
            return self._conclude_refused(code, reason)
        record, reason = self._settle_summary(code, reason, seconds)
        status = "diverged" if record.get("status") == "diverged" else "failed"
        if status == "diverged":
            code = EXIT_DIVERGED  # even if another process ended first
        if reason:
            self._note(f"{status}: {reason}")
        self._remove_logs(code)
        page = None
        try:
            trace.merge(self._run_dir)
            page = report.write(self._run_dir)
        except Exception as error:  # an error of the report must not fail the run
            self._announce(f"launch: no report: {type(error).__name__}: {error}")
        self._display.fail(summary.table(record, self._run_dir, page, self._go_on_command))
        if reason:
            progress.Outlet(sys.stderr).write(f"{status}: {reason}\n")
        self._journal.close()
        return code


@called.interruptible("tools/launch")
def main(argv):
    options = launch_options.parse_arguments(argv)
    try:
        libraries = [launch_options.CLIENT_TARGET] if options.program else []
        bin_dir = launch_options.find_programs(options, launch_options.programs(options), libraries)
        folder = launch_options.make_run_dir(options)
    except OSError as error:
        print(f"{called.here('tools/launch')}: {errors.message(error)}", file=sys.stderr)
        return EXIT_USAGE
    except subprocess.CalledProcessError as error:
        print(f"{called.here('tools/launch')}: the programs cannot be built:\n{error.stdout or ''}", end="", file=sys.stderr)
        return EXIT_FAILED
    return Launch(options, bin_dir, folder).execute()
