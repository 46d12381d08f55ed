"""CUDA graphs: work that a card was given once, given again in one launch, as the documentation of torch asks.

Recording happens on a stream of its own, on which the same work has run before: there handles and workspaces of
libraries and the nodes of gradients were made, none of which may be made while recording. All graphs share one pool of
memory, for none outlives its replay with anything that is read later. Generators are registered, so that each replay
draws on where the last one stopped.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import torch

_stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream  # which torch has given no types


class CudaGraphs:
    """Records on one card; ``generators`` are all that the work draws from, the card's own among them."""

    def __init__(self, card: torch.device, generators: Sequence[torch.Generator]) -> None:
        self.card, self.generators = card, tuple(generators)
        self.stream = _stream(card)
        self.pool = torch.cuda.graph_pool_handle()

    def beside(self, work: Callable[[], None]) -> None:
        """Carry ``work`` out on the stream for recording, after all and before all that is asked for otherwise."""
        usual = torch.cuda.current_stream(self.card)
        self.stream.wait_stream(usual)
        with torch.cuda.stream(self.stream):
            work()
        usual.wait_stream(self.stream)

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Record ``work`` without carrying it out.

        Raises:
            RuntimeError: it cannot be recorded.
        """
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators:
            graph.register_generator_state(generator)
        usual, streams = torch.cuda.current_stream(self.card), [g.get_state() for g in self.generators]
        collects = gc.isenabled()
        gc.disable()  # what it would free may be memory of the card, which ends a recording
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                work()
        except RuntimeError:
            torch.cuda.set_stream(usual)  # torch.cuda.graph leaves its own behind when it cannot end the recording
            for generator, stream in zip(self.generators, streams, strict=True):
                self._freed(generator, stream)
            raise
        finally:
            if collects:
                gc.enable()
        return graph

    def _freed(self, generator: torch.Generator, stream: torch.Tensor) -> None:
        """Give a generator that was left recording, and would refuse to draw, a state that is not, at ``stream``."""
        fresh = torch.Generator(self.card)
        fresh.set_state(stream)
        generator.graphsafe_set_state(fresh.graphsafe_get_state())
