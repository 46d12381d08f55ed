"""``rlbench run … --stack``: the seeds of a cell at once in this process, each with a record and an end of its own."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlbench.cli.carried import Row, Seat, carried
from rlbench.cli.live import Display, Plain
from rlbench.errors import UsageError

if TYPE_CHECKING:
    from rlbench.build.stacked import Member
    from rlbench.run import Stop
    from rlbench.spec.run import Runtime, Spec


def stacks(specs: Sequence[Spec], updates: str, jobs: str | None, engine: str) -> list[list[Spec]]:
    """The seeds of each cell, in the order in which they were asked for.

    Raises:
        UsageError: they cannot be stacked; the message says what to leave out.
    """
    if jobs is not None or engine != "local":
        raise UsageError("--stack: trains the seeds in this process; leave --jobs and --engine out, or --stack")
    if updates not in {"auto", "eager"}:
        raise UsageError(f"--stack: updates of several seeds are eager; leave --updates {updates} out, or --stack")
    cells: dict[str, list[Spec]] = {}
    for spec in specs:
        if why := _obstacle(spec):
            raise UsageError(f"--stack: {spec.name}: {why}, or leave --stack out")
        cells.setdefault(spec.id, []).append(spec)
    return list(cells.values())


def together(
    specs: Sequence[Spec], runtime: Runtime, results: Path, stop: Stop, shown: Display, *, force: bool
) -> list[Row]:
    """Carry the seeds of one cell on, each to its own end; what became of them."""
    from rlbench.build.device import device_of
    from rlbench.build.stacked import Company, Member
    from rlbench.cli.watch import Watch

    runtime, company = runtime.model_copy(update={"engine": "eager"}), Company()
    runs: list[Run] = []
    with Watch(runtime.patience) as watch:
        for i, spec in enumerate(specs):
            seat = Seat(Member(device_of(runtime)), len(specs), watch)
            own = shown if i == 0 else Beside(shown)
            steps = carried(spec, runtime, results, stop, own, force=force, seat=seat)
            runs.append(Run(seat.member, steps))
        live = runs
        try:
            while live := _advanced(live, stop):
                company.learn([run.member for run in live])
        finally:
            for run in runs:
                run.steps.close()
            stop.under_way = False
    return [run.told for run in runs if run.told is not None]


class Run:
    """One of the seeds."""

    def __init__(self, member: Member, steps: Generator[None, None, Row]) -> None:
        self.member, self.steps = member, steps
        self.begun = False
        self.told: Row | None = None  # at its end

    def advance(self) -> None:
        """Go on until updates are due, or to its end."""
        self.begun = True
        while self.told is None and not (self.member.waiting and self.member.waiting.count):
            with self.member.stream:
                try:
                    next(self.steps)
                except StopIteration as end:
                    self.told = end.value


class Beside(Plain):
    """What is shown of a seed beside the one whose bar moves: its lines."""

    def __init__(self, shown: Display) -> None:
        super().__init__()
        self.shown = shown

    def say(self, message: str) -> None:
        """A line, where the others' are."""
        self.shown.say(message)


def _advanced(runs: Sequence[Run], stop: Stop) -> list[Run]:
    """Those that wait for updates now; once a signal has come nothing is begun any more."""
    for run in runs:
        if run.begun or stop.signal is None:
            run.advance()
    return [run for run in runs if run.begun and run.told is None]


def _obstacle(spec: Spec) -> str:
    """Why the seeds of a cell cannot learn together; nothing if they can."""
    from rlbench.spec.algo import ActorCritic

    algo = spec.algo
    if not isinstance(algo, ActorCritic):
        return "only ddpg, td3, sac and redq on real actions are stacked; choose one of them"
    if spec.answers is not None:
        return "seeds are stacked in strict order alone; set task.answers=none"
    if algo.replay.priority is not None or algo.replay.hindsight is not None:
        return "only a uniform replay is stacked; set algo.replay.priority=none and algo.replay.hindsight=none"
    return ""
