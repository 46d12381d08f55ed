"""Capture several updates and replay them without the host, as a CUDA graph on a GPU.

The captured code is the eager updater's own, so no algorithm is written twice. It must follow the rules of capture:
fixed shapes, varying values in tensors at fixed addresses, no wait for the device. The updates before the first capture
run eagerly. The first replay of each capture is compared with eager updates. If capture fails or the numbers differ,
updates stay eager, and ``refusal`` has the reason.
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, TypeVarTuple

import torch
from torch import Tensor

from rlbench.algorithms.base import Cyclic
from rlbench.ops.state_dict import State, Stateful
from rlbench.records.types import Updated
from rlbench.training.protocols import Updater
from rlbench.training.updates import MeanMetrics

MAX_UPDATES: Final = 16
"""Most updates of one capture: its launch then costs less than one update, and more only take memory."""

WARMUP: Final = 3
"""Cycles of updates before the first capture, in which libraries choose kernels and optimizers create their state."""

RELATIVE_TOLERANCE: Final = 0.02
"""Tolerance of a replayed tensor, as a share of its change, since sums have another order."""

ROUNDING_TOLERANCE: Final = 1e-5
"""Additional tolerance, as a share of the tensor's size."""

CACHE: Final = "TORCHINDUCTOR_CACHE_DIR"


class CapturableUpdater(Updater, Protocol):
    """Interface of an eager updater."""

    @property
    def learner(self) -> Cyclic:
        """The learner."""

    @property
    def metrics(self) -> MeanMetrics:
        """The sums of its metrics."""


class CapturedGraph(Protocol):
    """Work that was recorded."""

    def replay(self) -> None:
        """Carry it out again, on the tensors that it was recorded on."""


class GraphRecorder(Protocol):
    """Captures work: as CUDA graphs on a GPU."""

    def run_eagerly(self, work: Callable[[], None]) -> None:
        """Carry ``work`` out as it is, where it would be recorded."""

    def record(self, work: Callable[[], None]) -> CapturedGraph:
        """Capture ``work`` without running it.

        Raises:
            RuntimeError: it cannot be recorded; every stream of random numbers stands where it stood.
        """


class GraphKey(NamedTuple):
    """The key of a captured graph."""

    phase: int  # of its first update
    length: int  # updates
    due: tuple[bool, ...]  # which of what is rarely due follows the last of them


class GraphUpdater:
    """Eager updates, captured and replayed; between replays, settings change by filling tensors in place.

    A state must be loaded here too whenever one is loaded elsewhere: that moves tensors, and drops the graphs.
    """

    def __init__(
        self,
        eager: CapturableUpdater,
        *,
        recorder: GraphRecorder,
        learner: Stateful,
        sampler: Stateful,
        generators: Sequence[torch.Generator],
    ) -> None:
        """``learner`` and ``sampler`` are all that an update changes, and the metrics; it draws from ``generators``."""
        self.eager, self.recorder, self.learner, self.sampler = eager, recorder, learner, sampler
        self.generators = tuple(generators)
        self.graphs: dict[GraphKey, CapturedGraph] = {}
        self.refusal: str | None = None  # why updates are eager after all
        self._warm = 0  # updates since the beginning, or since a state was loaded

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1``."""
        end = first + count
        while first < end:
            length = self._chunk_length(first, end - first)
            self._run_chunk(first, length)
            first += length

    def take(self) -> Updated | None:
        """Means since the last call; None if nothing was learned."""
        return self.eager.take()

    def state_dict(self) -> State:
        """The sums so far."""
        return self.eager.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Load the state and drop all captures, since tensors may have moved."""
        self.eager.load_state_dict(state)
        self.graphs.clear()
        self._warm = 0

    def _chunk_length(self, first: int, count: int) -> int:
        """The number of next updates in one graph: a power of two, up to the next rare periodic action."""
        learner = self.eager.learner  # a period within the cycle is in the phase of each recording
        rare = (p.period - first % p.period for p in learner.periodic_actions if learner.cycle_length % p.period)
        return 1 << (min(count, MAX_UPDATES, *rare).bit_length() - 1)

    def _run_chunk(self, first: int, length: int) -> None:
        learner, metrics = self.eager.learner, self.eager.metrics
        if self.refusal is not None:
            self.eager.run(first, length)
            return
        if self._warm < WARMUP * learner.cycle_length:
            self._run_eagerly(first, length)
            self._warm += length
            return
        due = tuple((first + length) % periodic.period == 0 for periodic in learner.periodic_actions)
        key = GraphKey(first % learner.cycle_length, length, due)
        if key in self.graphs:
            self.graphs[key].replay()
            metrics.count += length
            return
        try:
            self.graphs[key] = self._capture(first, length)
        except RuntimeError as error:
            self._refuse(f"could not be captured ({str(error).partition(chr(10))[0]})")
            self.eager.run(first, length)
            return
        self._verify(self.graphs[key], first, length)

    def _run_eagerly(self, first: int, length: int) -> None:
        self.recorder.run_eagerly(lambda: self.eager.run(first, length))

    def _capture(self, first: int, length: int) -> CapturedGraph:
        """The updates, recorded; that they were counted meanwhile is undone."""
        count = self.eager.metrics.count
        try:
            return self.recorder.record(lambda: self.eager.run(first, length))
        finally:
            self.eager.metrics.count = count

    def _verify(self, graph: CapturedGraph, first: int, length: int) -> None:
        """Replay the updates, compare them with eager ones from the same state, and keep the eager result."""
        before, sampled = [x.clone() for x in self._state_tensors()], _copy_state(self.sampler.state_dict())
        streams = [generator.get_state() for generator in self.generators]
        graph.replay()
        replayed_values = [x.clone() for x in self._state_tensors()]
        for x, old in zip(self._state_tensors(), before, strict=True):
            x.copy_(old)
        self.sampler.load_state_dict(sampled)
        for generator, stream in zip(self.generators, streams, strict=True):
            generator.set_state(stream)
        self._run_eagerly(first, length)
        if not _agree(before, replayed_values, list(self._state_tensors())):
            self._refuse("captured updates gave other numbers than eager ones")

    def _state_tensors(self) -> Iterator[Tensor]:
        """Every tensor that an update changes, of the learner and of the metrics, in the same order each time."""
        yield from _tensors({"learner": self.learner.state_dict(), "metrics": self.eager.metrics.state_dict()})

    def _refuse(self, reason: str) -> None:
        self.refusal = reason
        self.graphs.clear()


def _tensors(state: State) -> Iterator[Tensor]:
    for value in state.values():
        if isinstance(value, dict):
            yield from _tensors(value)
        elif isinstance(value, Tensor):
            yield value.detach()


def _copy_state(state: State) -> State:
    return {
        key: _copy_state(value) if isinstance(value, dict) else value.clone() if isinstance(value, Tensor) else value
        for key, value in state.items()
    }


def _agree(before: list[Tensor], replayed_values: list[Tensor], eager_values: list[Tensor]) -> bool:
    """True if both values agree relative to their distance from ``before``; NaN never does."""
    agreement = []
    for old, ours, theirs in zip(before, replayed_values, eager_values, strict=True):
        error, change, size = (x.double().norm() for x in (ours - theirs, theirs - old, theirs))
        agreement.append(error <= RELATIVE_TOLERANCE * change + ROUNDING_TOLERANCE * size)
    return bool(torch.stack(agreement).all())


Backend: TypeAlias = Callable[..., object]
"""A compiler backend of torch."""

GivenT = TypeVarTuple("GivenT")
FoundT = TypeVar("FoundT")


class CompiledLoss(Generic[*GivenT, FoundT]):
    """``plain``, by ``backend``; it draws the numbers that ``plain`` would."""

    def __init__(self, plain: Callable[[*GivenT], FoundT], *, backend: str | Backend = "inductor") -> None:
        options: dict[str, str | int | bool | Callable[..., object]] = {"fallback_random": True}
        self.plain = self.compiled = plain
        self.refusal = _cache_refusal() if backend == "inductor" else None  # why it is not compiled after all
        if self.refusal is None:
            self.compiled = torch.compile(
                plain,
                fullgraph=True,
                dynamic=False,
                backend=backend,
                options=options if backend == "inductor" else None,
            )
        self._has_run = False

    def __call__(self, *args: *GivenT) -> FoundT:
        """Return the result of ``plain``."""
        if self.refusal is not None:
            return self.plain(*args)
        if self._has_run:
            return self.compiled(*args)
        try:
            result = self.compiled(*args)
        except RuntimeError as error:  # a break in the graph, no C++ compiler, a kernel that cannot be made
            self.refusal = f"could not be compiled ({_error_summary(error)})"
            return self.plain(*args)
        self._has_run = True
        return result


def _cache_refusal() -> str | None:
    """Choose a cache that nobody else can write to, since its files are executed; the reason if there is none.

    inductor's own is a folder in ``/tmp``, which another user can make beforehand.
    """
    from torch._inductor import config  # noqa: PLC0415 - takes a second
    from torch._inductor.runtime.cache_dir_utils import cache_dir  # noqa: PLC0415 - as it

    try:
        state = Path(cache_dir()).lstat()
        if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # a link has these modes, too
            os.environ[CACHE] = mkdtemp(prefix="rlbench-inductor-")
            config.cpp_cache_precompile_headers = False  # they would lie in the folder of others all the same
            atexit.register(shutil.rmtree, os.environ[CACHE], ignore_errors=True)
    except OSError as error:
        return f"inductor has no cache ({error.strerror})"
    return None


def _error_summary(error: RuntimeError) -> str:
    """The name of an error and the first two lines of its message; the first may only name the backend."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([f"{type(error).__name__}:", *lines[:2]])


_stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream  # which torch has given no types


class CudaGraphRecorder:
    """Records on one GPU; ``generators`` are all that the work draws from, the GPU's own among them."""

    def __init__(self, gpu: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.gpu, self.generators = gpu, tuple(generators)
        self.stream = _stream(gpu)
        self.pool = torch.cuda.graph_pool_handle()

    def run_eagerly(self, work: Callable[[], None]) -> None:
        """Run ``work`` on the capture stream, after all earlier and before all later work of the current stream."""
        usual = torch.cuda.current_stream(self.gpu)
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            work()
        usual.wait_stream(self.stream)

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Capture ``work`` without running it.

        Raises:
            RuntimeError: it cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        usual, streams = torch.cuda.current_stream(self.gpu), [g.get_state() for g in self.generators]
        collects = gc.isenabled()
        gc.disable()  # what it would free may be memory of the GPU, which ends a recording
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError:
            torch.cuda.set_stream(usual)  # torch.cuda.graph leaves its own behind when it cannot end the recording
            for generator, stream in zip(self.generators, streams, strict=True):
                self._reset_generator(generator, stream)
            raise
        finally:
            if collects:
                gc.enable()
        return graph

    def _reset_generator(self, generator: torch.Generator, stream: torch.Tensor) -> None:
        """Give a generator that was left recording, and would refuse to draw, a state that is not, at ``stream``."""
        fresh = torch.Generator(self.gpu)
        fresh.set_state(stream)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
