"""One spelling for every specification: canonical JSON, its hash, and one ``path = value`` line per field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """The manners of every specification: immutable, no unknown fields, no silent conversions of type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)


WIDE: Final = 32_768

LearnsFrom: TypeAlias = Literal["replay", "rollouts", "data"]


class Family(Frozen):
    """A family of algorithms; class variables say what its learners need and can do."""

    learns_from: ClassVar[LearnsFrom]
    vectors_only: ClassVar[bool] = False  # observations and actions are vectors, and networks plain layers
    epsilon_greedy: ClassVar[bool] = False  # evaluated with the protocol's chance of a random action
    smoke_limits: ClassVar[Mapping[str, float]]  # of settings in a smoke run

    @property
    def wide(self) -> bool:
        """A second thread pays: a batch is of frames, or a layer gives at least ``WIDE`` numbers."""
        values = dict(fields(self))
        if self.vectors_only:
            batch, widths = values["batch"], values["widths"]
            return isinstance(batch, int) and isinstance(widths, tuple) and batch * max(widths, default=1) >= WIDE
        return values["torso.kind"] == "nature"

    @property
    def speed_group(self) -> str:
        """The name that algorithms of about one speed share."""
        return str(getattr(self, "family"))  # noqa: B009 - each family declares its own literal


def canonical(model: BaseModel, exclude: frozenset[str] = frozenset()) -> str:
    """JSON with sorted keys and no spaces of all that sets a model apart from its type's defaults.

    Defaults stay out, so that a field added later, with a default that changes nothing, keeps every old identity.
    What kind of model it is always stays in.
    """
    return json.dumps(_distinct(model, exclude), sort_keys=True, separators=(",", ":"), allow_nan=False)


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


def _distinct(model: BaseModel, exclude: frozenset[str]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            found[name] = _distinct(value, frozenset())
        elif name not in exclude and (name in _ALWAYS or value != field.default):
            found[name] = value
    return found


_ALWAYS = {"kind", "family", "revision"}
