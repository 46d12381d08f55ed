"""Canonical JSON of a configuration, its hash, and its fields as ``(path, value)``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo


class Frozen(BaseModel):
    """The base of every configuration: immutable, no unknown fields, no silent conversions of type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)


WIDE: Final = 32_768

SELECTORS: Final = ("kind", "family")
"""Fields that select the model of a part; overrides write them as the part itself, ``algo.torso=mlp``."""

SIGNS: Final = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}

LearnsFrom: TypeAlias = Literal["replay", "rollouts", "data"]


class Export(NamedTuple):
    """The form in which a policy file holds an actor."""

    activation: str = "relu"
    squash: str = "tanh"
    log_std_bounds: tuple[str, str] = ("", "")
    log_std: bool = True  # False leaves a std that is added after the squashing out: the format adds it before


class Family(Frozen):
    """A family of algorithms; class variables declare its requirements and abilities."""

    learns_from: ClassVar[LearnsFrom]
    vectors_only: ClassVar[bool] = False  # observations and actions are vectors, and networks plain layers
    epsilon_greedy: ClassVar[bool] = False  # evaluated with the protocol's probability of a random action
    smoke_limits: ClassVar[Mapping[str, float]]  # of settings in a smoke run

    @property
    def gains_from_threads(self) -> bool:
        """True if a second thread pays: batches hold frames, or a layer outputs at least ``WIDE`` numbers."""
        values = dict(fields(self))
        if self.vectors_only:
            batch, widths = values["batch"], values["widths"]
            return isinstance(batch, int) and isinstance(widths, tuple) and batch * max(widths, default=1) >= WIDE
        return values["torso.kind"] == "nature"

    @property
    def export(self) -> Export | str:
        """The form of the actor in a policy file, or the reason why there is none."""
        return "games of Q-learning are recorded with --epsilon; else record another run's"

    @property
    def normalizes_obs(self) -> bool:
        """The policy sees normalized observations."""
        return dict(fields(self)).get("normalize_obs") is True

    @property
    def speed_group(self) -> str:
        """The name shared by algorithms of similar speed."""
        return str(getattr(self, "family"))  # noqa: B009 - each family declares its own literal


def canonical(model: BaseModel, exclude: frozenset[str] = frozenset()) -> str:
    """JSON with sorted keys and no spaces, of the fields that differ from their defaults.

    Defaults are left out, so that a new field whose default changes nothing keeps every old identity. The kind of the
    model is always included.
    """
    return json.dumps(_identity_fields(model, exclude), sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(text: str) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of ``text``."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fields(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every field as ``(dotted path, value)``, depth first in the order of declaration: the paths overrides take."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def meanings(model: BaseModel, prefix: str = "", part: str = "") -> Iterator[tuple[str, str]]:
    """The meaning of each of ``fields`` as ``(dotted path, text)``: description and range; of a part, its docstring."""
    for name, field in type(model).model_fields.items():
        value, text = getattr(model, name), field.description or ""
        if isinstance(value, BaseModel):
            yield from meanings(value, f"{prefix}{name}.", text.partition(";")[0])
        elif name in SELECTORS:
            yield prefix + name, (type(model).__doc__ or "").partition("\n")[0].rstrip(".").replace("``", "")
        else:
            words = ": ".join(filter(None, (part, text)))
            yield prefix + name, " ".join(filter(None, (words, _range(field))))


def _range(field: FieldInfo) -> str:
    """The range of a field, ``(> 0, ≤ 1)``, or the words to choose from."""
    words = [str(word) for word in get_args(field.annotation)] if get_origin(field.annotation) is Literal else []
    bounds = [
        f"{sign} {getattr(m, kind):,}" for m in field.metadata for kind, sign in SIGNS.items() if hasattr(m, kind)
    ]
    text = ", ".join(bounds) or " or ".join(words) * (len(words) > 1)
    return f"({text})" if text else ""


def _identity_fields(model: BaseModel, exclude: frozenset[str]) -> dict[str, object]:
    distinct: dict[str, object] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            distinct[name] = _identity_fields(value, frozenset())
        elif name not in exclude and (name in _ALWAYS or value != field.default):
            distinct[name] = value
    return distinct


_ALWAYS = {*SELECTORS, "revision"}
