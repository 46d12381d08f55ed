"""Several learners of one kind computed as one: their tensors lie side by side, an operation serves all of them.

Networks and what their optimizers gather get a leading axis of seeds, ``[S, ...]``, figures a last one, ``[..., S]``;
each learner's own tensors become views of its share, in place, so that it acts, is judged and is saved as ever. The
losses are the learner's own, mapped over the seeds: no algorithm is written twice, and no seed meets another's number.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from rlbench.fast.base import Source
from rlbench.fast.updater import Eager
from rlbench.ops.types import Transition

Owner: TypeAlias = object
"""What keeps tensors, networks and optimizers as attributes: a learner, or a part of one."""

COUNT: Final = "step"  # what torch's optimizers call the number of their steps, which is the same for all seeds
DRAWING: Final = frozenset(
    {"bernoulli", "dropout", "exponential", "multinomial", "normal", "rand", "rand_like"}
    | {"randint", "randint_like", "randn", "randn_like", "random", "randperm", "uniform"}
)


class Kept(NamedTuple):
    """A tensor that a learner keeps, and the axis along which those of several are laid."""

    tensor: Tensor
    axis: int | None  # None: one for all


class Loose(NamedTuple):
    """A parameter that is in no network."""

    owner: Owner
    name: str


class Stack:
    """Runs whose learners are of one kind and have made as many updates, learning as one until they are parted."""

    def __init__(
        self,
        members: Sequence[Eager[Transition]],
        parts: Sequence[tuple[Owner, ...]],
        losses: Sequence[str],
        streams: Sequence[torch.Generator],
    ) -> None:
        """``parts`` are, for every member, what of its learner keeps tensors itself.

        ``losses`` are the names of the learner's; all that they draw comes from ``streams``, one a member.
        """
        first, *_ = members
        self.members = tuple(members)
        self.owners = [(run.learner, run.metrics, *part) for run, part in zip(members, parts, strict=True)]
        learner, metrics, part = copy.deepcopy((first.learner, first.metrics, parts[0]))
        lay(self.owners, (learner, metrics, *part))
        lift((learner, *part), losses, streams)
        sources = Sources([member.source for member in members])
        self._eager = Eager(source=sources, learner=learner, batch=first.batch, metrics=metrics, summary=first.summary)

    def run(self, first: int, count: int) -> None:
        """Updates ``first`` … ``first + count − 1`` of every member."""
        self._eager.run(first, count)
        for member in self.members:
            member.metrics.count += count

    def part(self) -> None:
        """Let every member go on alone."""
        for owners in self.owners:
            free(owners)


class Sources:
    """The buffers of all seeds, each drawing by its own sampler."""

    def __init__(self, sources: Sequence[Source[Transition]]) -> None:
        self.sources = sources

    def sample(self, batch: int) -> Transition:
        """``batch`` transitions of every seed, tensors of ``[S, B, ...]``."""
        drawn = [source.sample(batch) for source in self.sources]
        return Transition._make(torch.stack(columns) for columns in zip(*drawn, strict=True))

    def reprioritize(self, slot: Tensor, priority: Tensor) -> None:
        """What was learned of slots ``[S, B]``."""
        for source, own, learned in zip(self.sources, slot, priority, strict=True):
            source.reprioritize(own, learned)


def lay(members: Sequence[Sequence[Owner]], whole: Sequence[Owner]) -> None:
    """Let what the owners of every member keep be views of what those of ``whole`` keep from now on."""
    for ours, *theirs in zip(_all_kept(whole), *map(_all_kept, members), strict=True):
        if ours.axis is None:
            ours.tensor.data = theirs[0].tensor.detach().clone()
        else:
            ours.tensor.data = torch.stack([kept.tensor.detach() for kept in theirs], ours.axis)
        for seed, kept in enumerate(theirs):
            kept.tensor.data = ours.tensor.data if ours.axis is None else ours.tensor.data.select(ours.axis, seed)


def free(member: Sequence[Owner]) -> None:
    """Let what a member's owners keep be its own again."""
    for kept in _all_kept(member):
        kept.tensor.data = kept.tensor.detach().clone()


def lift(owners: Sequence[Owner], losses: Sequence[str], streams: Sequence[torch.Generator]) -> None:
    """Put in the place of every loss of the first owner the same loss of all seeds at once."""
    learner, *_ = owners
    networks = [value for value in vars(learner).values() if isinstance(value, nn.Module)]
    loose = [Loose(o, name) for o in owners for name, value in vars(o).items() if isinstance(value, nn.Parameter)]
    for name in losses:
        setattr(learner, name, Lifted(getattr(learner, name), networks, loose, streams))


class Lifted:
    """A loss ``plain``, mapped over seeds: every tensor that it takes or gives has a leading axis ``[S, ...]``."""

    def __init__(
        self,
        plain: Callable[..., object],
        networks: Sequence[nn.Module],
        loose: Sequence[Loose],
        streams: Sequence[torch.Generator],
    ) -> None:
        self.held, self.loose, self.streams = _Held(plain, networks), loose, streams
        self.seeds = torch.arange(len(streams), device=streams[0].device)
        self._mapped = torch.vmap(self._one, randomness="same")  # "same": what is drawn is told apart by ``Draws``

    def __call__(self, batch: tuple[Tensor, ...]) -> object:
        """What ``plain`` gives of ``batch``, whose tensors are ``[S, B, ...]``, each with a leading ``[S]``."""
        loose = [getattr(owner, name) for owner, name in self.loose]
        return self._mapped(self.seeds, dict(self.held.named_parameters()), loose, batch)

    def _one(self, seed: Tensor, parameters: dict[str, Tensor], loose: list[Tensor], batch: object) -> object:
        with Draws(self.streams, seed), _Swapped(self.loose, loose):
            return functional_call(self.held, parameters, (batch,))


class Draws(TorchFunctionMode):
    """While it stands: what a loss draws comes from each seed's own stream, the numbers that it would draw alone."""

    def __init__(self, streams: Sequence[torch.Generator], seed: Tensor) -> None:
        super().__init__()
        self.streams, self.seed = streams, seed

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """One call of torch.

        Raises:
            NotImplementedError: it draws in a way for which nobody has said how to draw for each seed.
        """
        like = args[0] if args else None
        if func is torch.randn_like and isinstance(like, Tensor):
            return self._of(
                [torch.randn(like.shape, generator=g, device=g.device, dtype=like.dtype) for g in self.streams]
            )
        if func is torch.rand and isinstance(like, int) and len(args) == 1:
            return self._of([torch.rand(like, generator=g, device=g.device) for g in self.streams])
        name = getattr(func, "__name__", "").rstrip("_")
        if name in DRAWING:
            raise NotImplementedError(f"{name}: nobody has said how several seeds draw it")
        return func(*args, **(kwargs or {}))

    def _of(self, drawn: list[Tensor]) -> Tensor:
        """Of ``[...]`` for every seed those of the seed at hand, which is known only to the map."""
        return torch.stack(drawn).index_select(0, self.seed.unsqueeze(0)).squeeze(0)


class _Held(nn.Module):
    """A loss as what torch can call with other parameters than its networks hold."""

    def __init__(self, plain: Callable[[object], object], networks: Sequence[nn.Module]) -> None:
        super().__init__()
        self.plain, self.networks = plain, nn.ModuleList(networks)

    def forward(self, batch: object) -> object:
        """The loss of one seed."""
        return self.plain(batch)


class _Swapped:
    """While it stands: other values of loose parameters."""

    def __init__(self, loose: Sequence[Loose], values: Sequence[Tensor]) -> None:
        self.loose, self.values = loose, values
        self.before = [getattr(owner, name) for owner, name in loose]

    def __enter__(self) -> None:
        self._put(self.values)

    def __exit__(self, *_: object) -> None:
        self._put(self.before)

    def _put(self, values: Sequence[Tensor]) -> None:
        for (owner, name), value in zip(self.loose, values, strict=True):
            setattr(owner, name, value)


def _all_kept(owners: Sequence[Owner]) -> Iterator[Kept]:
    """Every tensor, in the same order for each learner of a kind."""
    for owner in owners:
        for value in vars(owner).values():
            match value:
                case nn.Module():
                    yield from (Kept(parameter, 0) for parameter in value.parameters())
                case torch.optim.Optimizer():
                    yield from _gathered(value)
                case Tensor():
                    yield Kept(value, -1)
                case _:
                    pass


def _gathered(optimizer: torch.optim.Optimizer) -> Iterator[Kept]:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gathered = optimizer.state.get(parameter, {})
            yield from (Kept(gathered[name], None if name == COUNT else 0) for name in sorted(gathered))
