"""The loop of a sweep on a simulated executor: starts, restarts, waits and failures."""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli.run_output import ending_row
from rlbench.errors import UsageError
from rlbench.records import attempts
from rlbench.records.aside import set_aside
from rlbench.records.locks import FolderLock
from rlbench.records.store import CHANGED_DURING_RUN, folder_of
from rlbench.records.types import Outcome, Status
from rlbench.signals import Stop
from rlbench.sweep import scheduler
from rlbench.sweep.events import Begun, Ending, EpochEnd, Event, Exited, from_line, to_line
from rlbench.sweep.plan import Job
from rlbench.sweep.scheduler import LOSSES, RETRIES, Sweep
from tests.conftest import RecordRun
from tests.forging import locked

CATCH = suites.spec("toy", "dqn", "Catch")


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "POLL_SECONDS", 0.0)


def job(results: Path, seed: int = 0) -> Job:
    spec = CATCH.model_copy(update={"seed": seed})
    return Job(spec=spec, folder=folder_of(spec, results), threads=1, memory=1)


def finished(new_job: Job, results: Path, status: Status = "done", reason: str = "the budget is spent") -> None:
    store = locked(new_job.spec, results)
    numbers = {"env_steps": 7, "updates": 0, "epochs": 0, "seconds": 0.0, "final": 1.0, "best": 1.0}
    store.finish(Outcome(status=status, reason=reason, best_epoch=None, weights=None, **numbers))
    store.release()


class Scripted:
    """Each start of a job takes the next of its scripts: news, or something to do first."""

    def __init__(self, scripts: dict[int, Sequence[Sequence[Event | Callable[[], None]]]], room: int = 2) -> None:
        self.scripts = {seed: list(scenes) for seed, scenes in scripts.items()}
        self.most, self.stops_sent, self.killed = room, 0, 0
        self.running, self.started = dict[str, Job](), list[tuple[int, bool]]()

    def has_room(self, _job: Job) -> bool:
        return len(self.running) < self.most

    def start(self, new_job: Job, *, force: bool) -> None:
        assert self.has_room(new_job)
        new_job.folder.mkdir(parents=True, exist_ok=True)  # for its log
        self.running[new_job.name] = new_job
        self.started.append((new_job.spec.seed, force))

    in_process = False

    def events(self, _seconds: float) -> list[tuple[Job, Event]]:
        events_now: list[tuple[Job, Event]] = []
        for new_job in list(self.running.values()):
            for event in self.scripts[new_job.spec.seed].pop(0):
                if callable(event):
                    event()
                else:
                    events_now.append((new_job, event))
            if events_now and isinstance(events_now[-1][1], Exited):
                del self.running[new_job.name]
        return events_now

    def terminate(self) -> None:
        self.stops_sent += 1

    def kill(self) -> None:
        self.killed += 1


class EventLog:
    def __init__(self) -> None:
        self.paused: list[str] = []
        self.ended: list[Ending] = []

    def begin(self, _job: Job) -> None: ...

    def show(self, _job: Job, _message: object) -> None: ...

    def pause(self, _job: Job, reason: str) -> None:
        self.paused.append(reason)

    def end(self, ending: Ending) -> None:
        self.ended.append(ending)

    def stop(self) -> None: ...


def run_jobs(jobs: list[Job], engine: Scripted, **more: object) -> tuple[list[Ending], EventLog]:
    display = EventLog()
    return Sweep(jobs, engine, display, Stop(), **more).run(), display


def test_missing_jobs_start_once_and_ended_ones_never(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed) for seed in range(4)]
    finished(jobs[1], tmp_path)
    finished(jobs[2], tmp_path, "failed", "Diverged: loss")
    scripts = {n: [[Begun(0), lambda n=n: finished(jobs[n], tmp_path), Exited(0, "")]] for n in (0, 3)}
    engine = Scripted(scripts)
    endings, _ = run_jobs(jobs, engine)
    assert engine.started == [(0, False), (3, False)]
    assert [(e.status, e.attempts) for e in endings] == [("done", 1), ("done", 0), ("failed", 0), ("done", 1)]
    assert endings[2].reason == "Diverged: loss" and endings[2].log is None


def test_dead_process_is_restarted_a_limited_number_of_times(tmp_path: Path) -> None:
    mended, hopeless = job(tmp_path, 0), job(tmp_path, 1)
    dies = [Begun(0), Exited(-11, "whatever")]
    lives = [Begun(200), lambda: finished(mended, tmp_path), Exited(0, "")]
    engine = Scripted({0: [dies, dies, lives], 1: [dies] * (RETRIES + 1)})
    endings, display = run_jobs([mended, hopeless], engine)
    assert [(e.status, e.attempts) for e in endings] == [("done", 3), ("crashed", RETRIES + 1)]
    assert endings[1].reason == "ended by SIGSEGV" and endings[1].log == hopeless.folder / "log.txt"
    assert len(display.paused) == 2 + RETRIES
    lines = attempts.read_attempts(mended.folder)
    assert [line["event"] for line in lines] == ["begun", "ended"] * 3
    assert [line.get("how") for line in lines if line["event"] == "ended"] == ["crashed", "crashed", "done"]
    assert [line["number"] for line in lines if line["event"] == "begun"] == [1, 2, 3]


def test_failed_run_is_not_repeated(tmp_path: Path) -> None:
    one = job(tmp_path)
    engine = Scripted({0: [[Begun(0), lambda: finished(one, tmp_path, "failed", "Diverged: x"), Exited(5, "log")]]})
    endings, _ = run_jobs([one], engine)
    assert [(e.status, e.reason) for e in endings] == [("failed", "Diverged: x")] and len(engine.started) == 1


@pytest.mark.parametrize(
    ("code", "status", "starts"),
    [(2, "refused", 1), (5, "halted", RETRIES + 1), (1, "crashed", RETRIES + 1), (143, "crashed", RETRIES + 1)],
)
def test_exit_code_gives_the_status_without_an_outcome(tmp_path: Path, code: int, status: str, starts: int) -> None:
    engine = Scripted({0: [[Begun(0), Exited(code, "" if code == 143 else "rlbench: its last words")]] * starts})
    endings, _ = run_jobs([job(tmp_path)], engine)
    reason = endings[0].reason
    assert [e.status for e in endings] == [status] and "rlbench" not in reason
    assert ("its log is empty" if code == 143 else "its last words") in reason
    assert len(engine.started) == starts


def test_a_halted_run_that_cannot_begin_again_has_halted(tmp_path: Path) -> None:
    """On a full disk the second process refuses the folder that the first one has written to."""
    engine = Scripted({0: [[Begun(0), Exited(5, "the disk is full")], [Exited(2, "the folder cannot be written")]]})
    endings, _ = run_jobs([job(tmp_path)], engine)
    assert [(e.status, e.reason) for e in endings] == [("halted", "the folder cannot be written")]


def test_a_run_whose_record_is_replaced_by_a_finished_one_halts_and_is_not_started_again(tmp_path: Path) -> None:
    one = job(tmp_path)
    engine = Scripted({0: [[Begun(0), lambda: finished(one, tmp_path), Exited(5, f"x {CHANGED_DURING_RUN}")]]})
    endings, _ = run_jobs([one], engine)
    assert [(e.status, e.reason) for e in endings] == [("halted", f"x {CHANGED_DURING_RUN}")]
    assert len(engine.started) == 1


def test_a_run_that_halts_on_a_full_disk_is_done_where_another_process_has_finished_it(tmp_path: Path) -> None:
    one = job(tmp_path)
    engine = Scripted({0: [[Begun(0), lambda: finished(one, tmp_path), Exited(5, "no space left on the disk")]]})
    assert [e.status for e in run_jobs([one], engine)[0]] == ["done"]


def test_a_finished_record_of_another_run_is_refused(tmp_path: Path) -> None:
    one, other, variant = job(tmp_path, 0), job(tmp_path, 1), replace(job(tmp_path, 2), folder=tmp_path / "variant")
    finished(one, tmp_path)
    shutil.copytree(one.folder, other.folder)
    shutil.copytree(one.folder, variant.folder)
    endings, _ = run_jobs([one, other, variant], Scripted({}))
    assert [e.status for e in endings] == ["done", "refused", "refused"]
    assert f"holds another run ({one.spec.id}, seed 0); move it away" in endings[1].reason


def test_lost_machine_does_not_fail_the_run(tmp_path: Path) -> None:
    one = job(tmp_path)
    gone = [Begun(0), Exited(1, "its machine was lost", lost=True)]
    engine = Scripted({0: [*[gone] * (RETRIES + 2), [Begun(0), lambda: finished(one, tmp_path), Exited(0, "")]]})
    assert run_jobs([one], engine)[0][0].status == "done"
    engine = Scripted({1: [gone] * (LOSSES + 1)})
    assert run_jobs([job(tmp_path, 1)], engine)[0][0].status == "crashed"


def test_locked_job_waits_and_is_taken_over_after_release(tmp_path: Path) -> None:
    locked, free = job(tmp_path, 0), job(tmp_path, 1)
    locked.folder.mkdir(parents=True)
    other = FolderLock(locked.folder)
    assert other.acquire()
    lets_go: list[Event | Callable[[], None]] = [Begun(0), lambda: finished(free, tmp_path)]
    lets_go += [other.release, Exited(0, "")]
    engine = Scripted({0: [[Begun(0), lambda: finished(locked, tmp_path), Exited(0, "")]], 1: [lets_go]})
    endings, display = run_jobs([locked, free], engine)
    assert [e.status for e in endings] == ["done", "done"]
    assert [seed for seed, _ in engine.started] == [1, 0]
    assert display.paused == [scheduler.WAIT_REASON], "once"


def test_process_ending_silently_is_given_up_after_several_attempts(tmp_path: Path) -> None:
    endings, _ = run_jobs([job(tmp_path)], Scripted({0: [[Exited(0, "")]] * 40}))
    assert [(e.status, e.reason) for e in endings] == [("crashed", "it ends again and again without a message")]


def test_unusable_folder_does_not_stop_other_jobs(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed) for seed in range(3)]

    class Unusable(Scripted):
        def start(self, new_job: Job, *, force: bool) -> None:
            if new_job.spec.seed == 1:
                raise UsageError(f"{new_job.folder}: not a folder; remove it")
            super().start(new_job, force=force)

    scripts = {n: [[Begun(0), lambda n=n: finished(jobs[n], tmp_path), Exited(0, "")]] for n in (0, 2)}
    endings, _ = run_jobs(jobs, Unusable(scripts))
    assert [e.status for e in endings] == ["done", "refused", "done"] and "not a folder" in endings[1].reason


def test_ended_jobs_are_reported_without_room_and_after_a_signal(tmp_path: Path) -> None:
    jobs = [job(tmp_path, seed) for seed in range(3)]
    finished(jobs[1], tmp_path)
    finished(jobs[2], tmp_path)
    stop = Stop()
    engine = Scripted({0: [[Begun(0)], [lambda: setattr(stop, "signal", 2)], [Exited(130, "")]]}, room=1)
    endings = Sweep(jobs, engine, EventLog(), stop).run()
    assert [e.status for e in endings] == ["interrupted", "done", "done"]


@pytest.mark.parametrize("tail", [b"\xff\xfe", b'{"checksum":"12'])
def test_torn_line_of_attempts_loses_no_other_line(tail: bytes, tmp_path: Path) -> None:
    attempts.note(tmp_path, {"event": "begun", "number": 1})
    with (tmp_path / attempts.ATTEMPTS).open("ab") as file:
        file.write(tail)
    attempts.note(tmp_path, {"event": "begun", "number": 2})
    assert [line["number"] for line in attempts.read_attempts(tmp_path)] == [1, 2]


@pytest.mark.parametrize("swap", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_special_file_in_the_place_of_the_attempts_ends_no_sweep(swap: Callable[[Path], None], tmp_path: Path) -> None:
    one, other = job(tmp_path), job(tmp_path, 1)
    path = one.folder / attempts.ATTEMPTS
    late = [lambda: finished(one, tmp_path), path.unlink, lambda: swap(path), Exited(0, "")]
    scripts = {0: [[Begun(0)], late], 1: [[Begun(0)], [lambda: finished(other, tmp_path), Exited(0, "")]]}
    endings, _ = run_jobs([one, other], Scripted(scripts))
    assert [(e.status, e.attempts) for e in endings] == [("done", 0), ("done", 1)]


@pytest.mark.parametrize("link", [False, True])
def test_attempts_follow_no_folder_that_is_moved_away(link: bool, tmp_path: Path) -> None:
    one, aside = job(tmp_path), tmp_path / "aside"
    late = [lambda: one.folder.parent.rename(aside), lambda: link and one.folder.parent.symlink_to(aside)]
    run_jobs([one], Scripted({0: [[Begun(0)], [*late, Exited(2, "")]]}))
    assert len(attempts.read_attempts(aside / one.folder.name)) == 1
    assert one.folder.parent.is_symlink() == link and (link or not one.folder.exists())


def test_job_whose_lock_is_taken_is_retried_without_counting_an_attempt(tmp_path: Path) -> None:
    one = job(tmp_path)
    late: list[Event | Callable[[], None]] = [lambda: finished(one, tmp_path), Exited(0, "")]
    endings, display = run_jobs([one], Scripted({0: [*[[Exited(0, "")]] * (RETRIES + 2), late]}))
    assert [(e.status, e.attempts) for e in endings] == [("done", 0)]
    assert len(display.paused) == RETRIES + 2 and attempts.read_attempts(one.folder) == []


def test_force_starts_over_once_and_not_again_after_a_crash(tmp_path: Path) -> None:
    one = job(tmp_path)
    finished(one, tmp_path)
    killed = [Begun(0), (one.folder / "outcome.json").unlink, Exited(-9, "")]
    ends = [Begun(200), lambda: finished(one, tmp_path), Exited(0, "")]
    engine = Scripted({0: [[Exited(1, "before it began")], killed, ends]})
    endings, _ = run_jobs([one], engine, force=True)
    assert engine.started == [(0, True), (0, True), (0, False)]
    assert endings[0].status == "done"


@pytest.mark.parametrize(("other", "starts"), [("goes on", [True]), ("starts over", [False]), ("has ended", [])])
@pytest.mark.parametrize("is_locked", [False, True])
def test_force_starts_over_the_record_of_its_beginning_and_none_that_another_process_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool, other: str, starts: list[bool]
) -> None:
    one, looks = job(tmp_path), [is_locked]
    finished(one, tmp_path)

    def at_work() -> None:
        if other != "goes on":
            set_aside(one.folder)
        if other == "has ended":
            finished(one, tmp_path)

    def look(_folder: Path) -> bool:
        if not looks or not looks.pop():
            return False
        at_work()
        return True

    monkeypatch.setattr(scheduler, "is_locked", look)
    held = [] if is_locked else [[at_work, Exited(0, "another process is running it")]]  # locked between two looks
    engine = Scripted({0: [*held, [Begun(0), lambda: finished(one, tmp_path), Exited(0, "")]]})
    (ending,), _ = run_jobs([one], engine, force=True)
    assert ending.status == "done" and [force for _, force in engine.started] == [True] * len(held) + starts


@pytest.mark.parametrize("part", [None, "spec.json", "epochs.jsonl"])
def test_force_is_passed_on_where_a_record_stands(tmp_path: Path, part: str | None) -> None:
    one = job(tmp_path)
    one.folder.mkdir(parents=True)
    if part is not None:
        (one.folder / part).touch()
    engine = Scripted({0: [[Exited(2, "rlbench: no")]]})
    run_jobs([one], engine, force=True)
    assert engine.started == [(0, part is not None)]


@pytest.mark.parametrize(("script", "status"), [([Exited(2, "rlbench: no")], "refused"), ([], "interrupted")])
def test_a_forced_job_that_never_began_has_no_outcome_of_the_record_before(
    tmp_path: Path, script: list[Event], status: str
) -> None:
    one, stop = replace(job(tmp_path), until=0), Stop()
    finished(one, tmp_path)
    stopping = [lambda: setattr(stop, "signal", 15), Exited(143, "")]
    (ending,) = Sweep([one], Scripted({0: [script or stopping]}), EventLog(), stop, force=True).run()
    assert (ending.status, ending.outcome, ending.is_paused, ending.starts_over) == (status, None, False, True)
    row = ending_row(ending)
    assert (row["env_steps"], row["best"], row["final"]) == (0, None, None)


def test_a_forced_run_of_another_process_shows_its_numbers(record_run: RecordRun, tmp_path: Path) -> None:
    folder = record_run([-0.6, 0.5], suite="toy", task="Catch", status=None)
    one, engine = job(tmp_path / "results"), Scripted({0: [[Exited(0, "another process is running it", "running")]]})
    engine.in_process = True
    assert one.folder == folder
    (ending,) = run_jobs([one], engine, force=True)[0]
    assert (ending.status, ending_row(ending)["best"]) == ("running", 0.5)


def test_signal_lets_processes_save_their_state_and_starts_no_job(tmp_path: Path) -> None:
    jobs, stop, display = [job(tmp_path, seed) for seed in range(3)], Stop(), EventLog()
    signalled = [Begun(0), lambda: setattr(stop, "signal", 15)]
    engine = Scripted({0: [signalled, [], [Exited(143, "")]], 1: [[], [Exited(143, "")]]})
    endings = Sweep(jobs, engine, display, stop).run()
    assert [e.status for e in endings] == ["interrupted"] * 3
    assert (engine.stops_sent, engine.killed, len(engine.started)) == (1, 0, 2)


def test_process_that_does_not_end_in_time_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for patience, again in ((0.0, False), (100.0, True)):
        monkeypatch.setattr(scheduler, "PATIENCE", patience)
        stop = Stop()
        send = partial(lambda stop, again: (setattr(stop, "signal", 2), setattr(stop, "again", again)), stop, again)
        engine = Scripted({0: [[send], [], [Exited(-9, "")]]})
        Sweep([job(tmp_path)], engine, EventLog(), stop).run()
        assert engine.killed == 1


def test_pipe_lines_round_trip_and_torn_ones_are_dropped() -> None:
    epoch = EpochEnd(number=1, steps=2, seconds=0.5, evaluation=None, episodes=0, steps_per_second=1e3)
    for event in (Begun(5), epoch):
        assert from_line(to_line(event)) == event
    for text in ("", "{", "[]", "5", '{"kind": "Exited", "code": 0}', '{"kind": "Begun"}', '{"steps": 3}'):
        assert from_line(text) is None
