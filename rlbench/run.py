"""Training of one run, from its first step or its checkpoint to its end.

Between two records of the trainer no step is in progress. Only there, and only by this module, epochs and checkpoints
are written, numbers that are not finite end the run, and a signal stops it.
"""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic
from typing import Final, TypeAlias, get_args

import torch

from rlbench import checkpoint
from rlbench.assembly.assemble import build
from rlbench.assembly.device import device_of
from rlbench.assembly.engine import SavedNumerics, active_engine, refusals, with_saved
from rlbench.assembly.environments import describe
from rlbench.assembly.restore import fingerprint
from rlbench.config.run import MAX_THREADS, EngineName, Runtime, Spec
from rlbench.datasets.checksums import Seal
from rlbench.errors import Diverged, Interrupted, RefusedFile, ResourceExhausted, RlbenchError, RunFailed, UsageError
from rlbench.ops.state_dict import State, module_state, subtree
from rlbench.records import manifest
from rlbench.records.attempts import note
from rlbench.records.machine import INSTRUCTIONS, TUNABLES
from rlbench.records.store import Store, read_record
from rlbench.records.types import MAX_RETURN, Epoch, Outcome, Progress, Status
from rlbench.signals import Stop, cause, interruption_behind
from rlbench.training.clock import Clock
from rlbench.training.offline import OfflineTrainer
from rlbench.training.online import OnlineTrainer

Trainer: TypeAlias = OnlineTrainer | OfflineTrainer

OUT_OF_MEMORY: Final = (
    "DefaultCPUAllocator",
    "can't allocate memory",
    "Cannot allocate memory",
    "can't start new thread",
)
"""Messages of a plain RuntimeError by which torch, the system and threads report exhausted memory."""

ROUNDING_FACTORS: Final = ("cpu", "vector_instructions", "gpu", *INSTRUCTIONS, TUNABLES)
"""Parts of an environment by which every sum is rounded."""


def run(spec: Spec, runtime: Runtime, store: Store, stop: Stop, seal: Seal | None = None) -> Iterator[Progress | Epoch]:
    """Train a run to its end, or to ``stop.until``, and yield each record; its outcome is in ``store.outcome``.

    A run that has ended yields nothing. ``seal`` holds the checksum of the data set, if it was computed just now.

    Raises:
        Interrupted: ``stop`` was set; the state is on disk and the same call resumes.
        RunFailed: the run cannot go on; its outcome gives the reason.
        RefusedFile: the checkpoint is damaged, another run's, or of older code.
        ResourceExhausted: memory is exhausted, or the disk full; the same call resumes.
    """
    if _clean_up_if_ended(store):
        return
    trainer: Trainer | None = None
    recorder: _Recorder | None = None
    try:
        previous = None if store.starts_over else _saved_numerics(store, device_of(runtime).type)
        trainer = build(spec, with_saved(runtime, previous), describe(spec), seal)
        store.start_over()
        begin = _take_over(trainer, previous, store)
        recorder = _Recorder(runtime, store, trainer, previous, begin)
        yield trainer.progress()
        for record in trainer:
            if isinstance(record, Epoch):
                recorder.keep(record)
            yield record
            if recorder.has_reached_stop_score(record) or recorder.save_if_due(stop, record):
                break
        recorder.finish(stop)
    except (Interrupted, ResourceExhausted, RefusedFile):
        raise  # the run has not failed: its checkpoint stays
    except UsageError as error:
        if recorder is None:
            raise
        raise ResourceExhausted(f"{error}; or open it again, and the same command resumes") from error
    except (MemoryError, RlbenchError, ArithmeticError, RuntimeError) as error:
        failure = _failure(error, store, trainer, recorder, stop)
        raise failure from (error.__cause__ if failure is error else error)  # no error is its own cause
    finally:
        if trainer is not None:
            trainer.close()


def _clean_up_if_ended(store: Store) -> bool:
    """Return whether the run has ended; a crash after a run's outcome leaves checkpoints, which are removed."""
    outcome = store.outcome
    if outcome is not None and outcome.status == "done":
        _remove_resume(store)
    return outcome is not None and outcome.status != "interrupted"


class _Recorder:
    """Writes epochs and checkpoints of a running trainer to disk."""

    def __init__(
        self, runtime: Runtime, store: Store, trainer: Trainer, previous: SavedNumerics | None, begin: int
    ) -> None:
        self.spec, self.runtime, self.store, self.trainer = store.spec, runtime, store, trainer
        self.begin, self.previous = begin, previous  # the first epoch of this process; the checkpoint's numerics
        self.steps_before, self.updates_before = trainer.clock.steps, trainer.clock.updates
        self.saved_engine = previous.engine if previous is not None and trainer.clock.updates else None
        self.folder = store.folder / "checkpoint"
        self.reason, self.refusals, self.paused = "finished all steps", tuple[str, ...](), False
        self._saved_at, self._segment = monotonic(), trainer.clock.steps // self.spec.budget.segment

    def keep(self, epoch: Epoch) -> None:
        """Append an epoch, and keep its policy where it is the best so far."""
        _refuse_diverged(epoch, self.trainer)
        _store_epoch(self.store, epoch, self.trainer)
        self.note_refusals()

    def note_refusals(self) -> None:
        """Log once each reason why updates are eager after all; record the engine, and a resume that changed it."""
        before, self.refusals = self.refusals, refusals(self.trainer.updater, self.trainer.learner)
        if self.saved_engine not in (None, self._last_engine()):
            _add_inexact(self.trainer, self.steps_before)
        for reason in self.refusals:
            if reason not in before:
                note(self.store.folder, {"event": "engine", "updates": f"eager: {reason}"})
                updates = f"{self._last_engine()}: {reason.partition(' (')[0]}"  # the rest may name paths
                self.store.environment = {**self.store.environment, "updates": updates}
                self.store.note_resumption(self.begin, self.updates_before)

    def _last_engine(self) -> str:
        """Return the engine of the latest update, which is the checkpoint's until this process has made one."""
        if self.saved_engine is not None and self.trainer.clock.updates == self.updates_before and not self.refusals:
            return self.saved_engine
        return active_engine(self.trainer.updater, self.trainer.learner)

    def _numerics(self) -> SavedNumerics:
        """Return the numerics of a checkpoint; a process without a request or an update keeps the request before."""
        requested, device = self.runtime.update_engine, device_of(self.runtime).type
        if self.previous is not None and (requested == "auto" or self.trainer.clock.updates == self.updates_before):
            requested = self.previous.requested
        return SavedNumerics(device, torch.get_num_threads(), self._last_engine(), _rounding(self.store), requested)

    def has_reached_stop_score(self, record: Progress | Epoch) -> bool:
        """Return whether an epoch's evaluation reaches the score where the protocol stops."""
        stop, evaluated = self.spec.protocol.stop, record.evaluated if isinstance(record, Epoch) else None
        if stop is None or evaluated is None or evaluated.mean < stop:
            return False
        self.reason = f"stopped early at score {stop:g}"
        return True

    def save_if_due(self, stop: Stop, record: Progress | Epoch) -> bool:
        """Write the resume checkpoint at each segment, interval, signal and pause; return whether the run pauses.

        Raises:
            Interrupted: ``stop`` is set.
        """
        clock, segment = self.trainer.clock, self.trainer.clock.steps // self.spec.budget.segment
        overdue = monotonic() - self._saved_at > self.runtime.checkpoint_seconds
        until, budget = stop.until, self.spec.budget.steps
        self.paused = isinstance(record, Epoch) and until is not None and until <= record.steps < budget
        if self.paused or stop.signal is not None or segment != self._segment or overdue:
            _refuse_non_finite_state(self.trainer)
            self.note_refusals()
            numerics = self._numerics()._asdict()
            self.store.verify_unchanged()
            state = {"trainer": self.trainer.state_dict(), "run": _origin(self.store, clock.epochs), **numerics}
            checkpoint.save(self.folder / "resume", state)
            self._saved_at, self._segment = monotonic(), segment
        if stop.signal is not None:
            _finish(self.store, clock, self.trainer.inexact, cause(stop.signal), "interrupted")
            raise Interrupted(
                f"{self.store.folder}: stopped at {clock.steps:,} steps; the same command resumes", signal=stop.signal
            )
        return self.paused

    def finish(self, stop: Stop) -> None:
        """Save the last policy, write the outcome and remove the resume checkpoint; of a paused run keep it."""
        trainer, store = self.trainer, self.store
        if self.paused:
            _finish(store, trainer.clock, trainer.inexact, f"--until {stop.until:,} steps", "interrupted")
            return
        policy = module_state(trainer.learner.policy_net())
        store.verify_unchanged()
        checkpoint.save(self.folder / "last", _policy_state(store, trainer, policy, trainer.clock.epochs - 1))
        _finish(store, trainer.clock, trainer.inexact, self.reason, "done", fingerprint({"policy": policy}))
        _remove_resume(store)


def _failure(
    error: Exception, store: Store, trainer: Trainer | None, recorder: _Recorder | None, stop: Stop
) -> Exception:
    """Record a run as failed, unless the machine is at fault; return the error to raise."""
    if _is_out_of_memory(error):
        reason = f"memory is exhausted ({_first_line(error)})"
        return ResourceExhausted(f"{store.spec.name}: {reason}; free some and run the same command again: it resumes")
    if trainer is None or interruption_behind(error) is not None:
        return error  # the run has not begun, or it was stopped
    store.write_traceback(traceback.format_exc())
    _keep_outstanding(store, trainer, recorder, stop)
    _finish(store, trainer.clock, trainer.inexact, f"{type(error).__name__}: {_first_line(error)}")
    return error if isinstance(error, RlbenchError) else RunFailed(f"{store.spec.name}: {_first_line(error)}")


def fail_lost_run(store: Store, reason: str) -> None:
    """Record a run as failed whose process is gone, from its epochs on disk."""
    before = store.outcome
    _finish(store, next(iter(store.epochs[-1:]), Clock()), () if before is None else before.inexact, reason)


def _is_out_of_memory(error: BaseException) -> bool:
    """True if an error reports exhausted memory."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(text in str(error) for text in OUT_OF_MEMORY)


def _saved_numerics(store: Store, device: str) -> SavedNumerics | None:
    """Device, threads and engine of this run's checkpoint, None without one; refuse another run's."""
    folder = store.folder / "checkpoint" / "resume"
    if not checkpoint.exists(folder):
        return None
    values = manifest.read_manifest(manifest.current(folder)).values
    manifest.refuse_foreign(folder, values, store.spec, store.environment_sums, store.epoch_sums)
    saved_device, threads, engine, rounding, requested = (values.get(name) for name in SavedNumerics._fields)
    if "run/spec" not in values or type(threads) is not int or not isinstance(engine, str):
        what = "does not name its run and its number of threads"
        raise RefusedFile(f"{folder}: was made by an older rlbench and {what}; finish it there, or use --force")
    if not 1 <= threads <= MAX_THREADS:
        raise RefusedFile(f"{folder}: was made with {threads:,} threads, at most {MAX_THREADS:,} are; use --force")
    if saved_device != device:
        raise RefusedFile(
            f"{folder}: was made on {saved_device}, not {device}; resume with --device {saved_device}, or use --force"
        )
    rounding = re.sub(r', "\w+": null|"\w+": null(, )?', "", str(rounding))  # older ones also name what was not set
    request: EngineName = next((name for name in get_args(EngineName) if name == requested), "auto")
    return SavedNumerics(device, threads, engine, rounding, request)


def _rounding(store: Store) -> str:
    """Return the values of ``ROUNDING_FACTORS`` that are set, in JSON."""
    return json.dumps({n: value for n in ROUNDING_FACTORS if (value := store.environment.get(n)) is not None})


def _take_over(trainer: Trainer, previous: SavedNumerics | None, store: Store) -> int:
    """Load the checkpoint, if any; note this process, and a resume that is not bit-exact; return its first epoch."""
    if previous is not None:
        _resume(trainer, store)
        store.environment = {**store.environment, "torch_threads": torch.get_num_threads()}
    elif store.epochs:
        _refuse_other_data(store)
    clock, begin = trainer.clock, 0 if previous is None else max(1, trainer.clock.epochs)
    engine = active_engine(trainer.updater, trainer.learner)
    store.note_resumption(begin, clock.updates, engine if previous is not None and previous.engine == engine else None)
    if previous is not None and (previous.threads, previous.rounding) != (torch.get_num_threads(), _rounding(store)):
        _add_inexact(trainer, clock.steps)
    return begin


def _add_inexact(trainer: Trainer, step: int) -> None:
    """List a resume at ``step`` among those that were not bit-exact."""
    trainer.inexact = tuple(dict.fromkeys((*trainer.inexact, step)))


def _refuse_other_data(store: Store) -> None:
    """Refuse to begin again, without a checkpoint, a run whose epochs learned from another data file."""
    now, before = store.environment.get("data"), read_record(store.folder).environment.get("data")
    if isinstance(now, dict) and isinstance(before, dict) and now.get("sha256") != before.get("sha256"):
        problem = f"its epochs learned from another data file than {str(now.get('sha256'))[:12]}"
        raise RefusedFile(f"{store.folder}: {problem}; bring it back, or start over with --force")


def _resume(trainer: Trainer, store: Store) -> None:
    """Load the checkpoint's state, if it is no further than the record; interruptions and errors of memory pass."""
    folder = store.folder / "checkpoint" / "resume"
    state = checkpoint.load(folder)
    try:
        trainer.load_state_dict(subtree(state, "trainer"))
        _refuse_non_finite_state(trainer)
    except (RefusedFile, MemoryError):
        raise
    except (RlbenchError, RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        if _is_out_of_memory(error) or interruption_behind(error) is not None:
            raise
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise RefusedFile(f"{folder}: is not this run's state ({reason}); restore it, or use --force") from error
    recorded_epochs, checkpoint_epochs = len(store.epochs), trainer.clock.epochs
    if checkpoint_epochs > recorded_epochs:
        path = store.folder / "epochs.jsonl"
        raise RefusedFile(
            f"{path}: holds {recorded_epochs} epochs, its checkpoint counts {checkpoint_epochs}; "
            "restore it, or use --force"
        )


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _keep_outstanding(store: Store, trainer: Trainer, recorder: _Recorder | None, stop: Stop) -> None:
    """Record the engine, and epochs whose evaluation was pending, when training failed."""
    with suppress(RlbenchError, MemoryError):
        if recorder is not None:
            recorder.note_refusals()
        for record in trainer.outstanding():
            if isinstance(record, Epoch):
                _refuse_diverged(record, trainer)
                _store_epoch(store, record, trainer)
            if stop.signal is not None:
                return


def _remove_resume(store: Store) -> None:
    """Remove the resume checkpoint of a run that has ended, unless it is another attempt's; its policies stay."""
    folder = store.folder / "checkpoint"
    if not manifest.is_foreign(folder / "resume", store.spec, store.environment_sums, store.epoch_sums):
        checkpoint.discard(folder / "resume")
    for name in ("best", "last"):
        checkpoint.recover(folder / name)


def _store_epoch(store: Store, epoch: Epoch, trainer: Trainer) -> None:
    earlier, folder = store.epochs[: epoch.number], store.folder / "checkpoint" / "best"
    best = max((e.evaluated.mean for e in earlier if e.evaluated is not None), default=None)
    if store.replaces(epoch):
        store.verify_unchanged()
        if checkpoint.exists(folder) and not manifest.is_earlier(folder, epoch.number):
            store.best = None
            checkpoint.discard(folder)  # before its epoch is replaced: a process killed between leaves none
    store.append(epoch)
    if epoch.evaluated is not None and (best is None or epoch.evaluated.mean > best):
        checkpoint.save(folder, _policy_state(store, trainer, trainer.evaluated_policy, epoch.number))
        store.best = folder


def _origin(store: Store, epochs: int) -> State:
    """Run, code and attempt of a checkpoint that follows so many epochs."""
    sums = store.epoch_sums
    attempt = {"environments_sha256": store.environment_sums[-1], "epochs_sha256": sums[min(epochs, len(sums) - 1)]}
    return {**manifest.origin(store.spec, store.environment), **attempt}


def _policy_state(store: Store, trainer: Trainer, policy: State, epoch: int) -> State:
    """A policy's weights, normalization and run: the state from which it can be evaluated again."""
    obs_moments = trainer.obs_moments
    own: State = {"policy": policy, "epoch": epoch, "run": _origin(store, epoch + 1)}
    return own if obs_moments is None else {**own, "scale": obs_moments}


def _finish(
    store: Store,
    clock: Clock | Epoch,
    inexact: tuple[int, ...],
    reason: str,
    status: Status = "failed",
    weights: str | None = None,
) -> None:
    epochs = store.epochs
    means = [(e.evaluated.mean, -e.number) for e in epochs if e.evaluated is not None]
    store.finish(
        Outcome(
            status=status,
            reason=reason,
            env_steps=clock.env_steps,
            updates=clock.updates,
            epochs=len(epochs),
            seconds=clock.seconds,
            final=means[-1][0] if means else None,
            best=max(means)[0] if means else None,
            best_epoch=-max(means)[1] if means else None,
            weights=weights,
            inexact=inexact,
            environments_sha256=store.environment_sums[-1],
            epochs_sha256=store.epoch_sums[-1],
        )
    )


def _refuse_diverged(epoch: Epoch, trainer: Trainer) -> None:
    """Raise ``Diverged`` for the first number of an epoch that is not finite, or is no return of a record."""
    means = {} if epoch.updated is None else epoch.updated.means
    faults = [f"{name} is not a finite number" for name, value in means.items() if not math.isfinite(value)]
    for name, episodes in (("evaluated", epoch.evaluated), ("collected", epoch.collected)):
        if episodes is not None and not all(abs(points) <= MAX_RETURN for points in episodes.returns):
            faults.append(f"{name} return is not a finite number up to {MAX_RETURN:g}")
    if faults:
        raise Diverged(f"epoch {epoch.number}, {epoch.steps:,} steps: {faults[0]}")
    if epoch.updates == trainer.clock.updates:  # else training has gone on
        _refuse_non_finite_state(trainer)


def _refuse_non_finite_state(trainer: Trainer) -> None:
    """Raise ``Diverged`` for a weight or a sum that is not finite, so that no such state is saved."""
    for name, value in checkpoint.flatten({**trainer.learner.state_dict(), "updates": trainer.updater.state_dict()}):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not torch.isfinite(value).all():
            raise Diverged(f"{trainer.clock.steps:,} steps: {name} is not a finite number")
