"""``algo.head.n_atoms=51`` → a typed copy of a Spec, or an error that suggests a field.

The value is parsed by the field's own type and nothing is ever evaluated. A part that can be one of several
models is chosen by name (``algo.torso=mlp``) and starts from that model's defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from rlbench.config.canonical import SELECTORS, fields
from rlbench.config.names import DOTTED, printable
from rlbench.errors import UnknownName, UsageError

ModelT = TypeVar("ModelT", bound=BaseModel)

LARGE: Final = 1e60  # beyond every setting; a product of a few such numbers is still a float
DOTS: Final = 1_000
"""On a line of TOML; its parser takes time and memory by the square of the dots of a key."""

OTHER_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "lr": ("learning_rate",),
    "actor_lr": ("learning_rate",),
    "critic_lr": ("learning_rate",),
    "gamma": ("discount", "discount_factor"),
    "batch": ("batch_size",),
    "minibatches": ("batch_size", "num_minibatches"),
    "capacity": ("buffer_size", "memory_size"),
    "rollout_length": ("n_steps", "num_steps"),
    "n_step": ("n_steps",),
    "epochs": ("n_epochs", "update_epochs"),
    "clip": ("clip_range", "clip_coef"),
    "entropy": ("ent_coef",),
    "alpha": ("ent_coef",),
    "value": ("vf_coef",),
    "gae_lambda": ("lambda", "trace"),
    "tau": ("polyak",),
    "target_update_interval": ("target_network_frequency",),
    "updates_per_step": ("train_freq", "gradient_steps"),
    "delay": ("policy_delay", "policy_frequency"),
    "max_kl": ("target_kl", "delta"),
    "learning_starts": ("warmup", "start_timesteps"),
    "widths": ("net_arch", "hidden_sizes"),
    "hidden": ("net_arch", "hidden_sizes"),
    "steps": ("total_timesteps",),
    "envs": ("num_envs", "n_envs"),
    "frame_skip": ("frameskip",),
    "stack": ("frame_stack",),
    "noops": ("noop_max",),
    "episodes": ("n_eval_episodes",),
}
"""Names of rlbench's settings in Stable-Baselines3, CleanRL, Tianshou and the papers."""


class Setting(NamedTuple):
    """The value of one field, and its source."""

    path: str  # dotted, e.g. "algo.lr"
    value: object  # text to be parsed by the field's type, or a value read from a TOML file
    source: str  # "--set", "RLBENCH_ALGO__LR", "config.toml", "--steps"


def parse(text: str, source: str = "--set") -> Setting:
    """``path=value`` from a command line.

    Raises:
        UsageError: the text has no ``=``.
    """
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"{source} {text!r}: expected FIELD=VALUE, for example {source} algo.lr=1e-4")
    return Setting(path.strip(), value.strip(), source)


def flatten(tree: Mapping[str, object], source: str, prefix: str = "") -> list[Setting]:
    """The leaves of a TOML document as settings, in the order of the file."""
    settings: list[Setting] = []
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            settings += flatten(value, source, f"{prefix}{name}.")
        else:
            settings.append(Setting(prefix + name, value, source))
    return settings


def apply_settings(model: ModelT, settings: Iterable[Setting]) -> ModelT:
    """Return a validated copy with every setting applied, later ones over earlier ones.

    A new run takes the current revision of its family.

    Raises:
        UnknownName: a path names no field; the nearest field is in the message.
        UsageError: a value is not of its field's type, or the fields contradict each other.
    """
    settings = list(settings)
    for setting in settings:
        try:
            model = _replace(model, setting.path.split("."), setting)
        except UnknownName as error:
            near = _paths(model, setting.path) if error.kind == "field" else []
            if not near:
                raise
            raise UnknownName("field", setting.path, near, where=setting.source) from None
    try:
        return type(model).model_validate_json(model.model_dump_json(exclude={"algo": {"revision"}}))
    except ValidationError as error:
        sources = f"{', '.join(s.source + ' ' + s.path for s in settings)}: " if settings else ""
        raise UsageError(f"{sources}{one_line(error)}") from None


def _paths(model: BaseModel, path: str) -> list[str]:
    """The paths of fields that end as ``path`` does, or in a synonym from the literature."""
    last = path.rpartition(".")[2].lower()
    names = {last, *(own for own, others in OTHER_NAMES.items() if last in others)} - {*SELECTORS}
    return [name for name, _ in fields(model) if name.rpartition(".")[2] in names]


def written(value: object) -> str:
    """Format a value as ``--set`` takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return ",".join(written(part) for part in value) if value else "[]"
    return str(value)


def one_line(error: ValidationError) -> str:
    """The first problem of a validation error, in one line without URLs."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return printable(f"{where}: {what}" if where else what)  # a field may have any name


def _replace(node: ModelT, path: list[str], setting: Setting) -> ModelT:
    name, *rest = path
    fields = type(node).model_fields
    if name not in fields or name == "kind":
        names = [n for n in fields if n != "kind"]
        raise UnknownName(
            "field", name, names, where=f"{setting.source} {setting.path}: {type(node).__name__.removesuffix('Config')}"
        )
    current = getattr(node, name)
    if rest:
        if not isinstance(current, BaseModel):
            raise UsageError(f"{setting.source} {setting.path}: {name} is {current!r} and has no fields")
        value: object = _replace(current, rest, setting)
    else:
        value = _value(fields[name].rebuild_annotation(), current, setting)
    return node.model_copy(update={name: value})


def _value(annotation: Any, current: object, setting: Setting) -> object:
    models = {_kind(m): m for m in _members(annotation) if isinstance(m, type) and issubclass(m, BaseModel)}
    text = setting.value
    if models and isinstance(text, str):
        if text == "none" and NoneType in _members(annotation):
            return None
        if text not in models:
            raise UnknownName("choice", text, models, where=f"{setting.source} {setting.path}")
        model = models[text]
        try:
            return current if type(current) is model else model()
        except ValidationError as error:
            raise UsageError(
                f"{setting.source} {setting.path}={text}: cannot be chosen alone; {one_line(error)}"
            ) from None
    words = [word for m in _members(annotation) for word in (get_args(m) if get_origin(m) is Literal else (m,))]
    if isinstance(text, str) and text not in words and all(isinstance(word, str) for word in words):
        raise UnknownName("choice", text, words, where=f"{setting.source} {setting.path}")
    complaint = ""
    for candidate in _readings(text):
        numbers = candidate if isinstance(candidate, list) else [candidate]
        if any(isinstance(number, int | float) and not abs(number) < LARGE for number in numbers):
            complaint = complaint or f"it must lie between -{LARGE:g} and {LARGE:g}"
            continue
        try:
            return TypeAdapter(annotation).validate_json(json.dumps(candidate), strict=True)
        except ValidationError as error:
            complaint = complaint or one_line(error)
    if isinstance(text, str) and DOTTED.fullmatch(text):
        complaint = f"{text} may also be {text.replace('.', '')}; write it without a dot"
    raise UsageError(f"{setting.source} {setting.path}={text}: expected {_name(annotation)}; {complaint}")


def _readings(value: object) -> list[object]:
    """Possible values of a text, the most specific first: JSON, a list without brackets, the text itself."""
    if not isinstance(value, str):
        return [value]
    readings: list[object] = []
    plain = value.replace("_", "") if value.replace("_", "").lstrip("+-").replace(".", "", 1).isdigit() else value
    words = {"none": None, "true": True, "false": False, "yes": True, "no": False}
    if value.lower() in words:
        readings.append(words[value.lower()])
    for text in (plain, f"[{plain}]"):
        try:
            readings.append(json.loads(text))
        except (ValueError, RecursionError):  # no JSON, or brackets without end
            continue
    with suppress(ValueError, OverflowError):
        number = float(plain)  # 1e6 for an int, 1e-4 for a float
        readings.append(int(number) if number.is_integer() and not DOTTED.fullmatch(plain) else number)
    return [*readings, value]


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, also within ``Annotated``; any other type is its own alternative."""
    if get_origin(annotation) in {Union, UnionType}:
        return tuple(m for a in get_args(annotation) for m in _members(a))
    if hasattr(annotation, "__metadata__"):
        return _members(get_args(annotation)[0])
    return (annotation,)


def _kind(model: type[BaseModel]) -> str:
    """The name that selects a model: the value of its ``kind``, or its class without ``Config``."""
    field = model.model_fields.get("kind") or model.model_fields.get("family")
    return str(field.default) if field else model.__name__.removesuffix("Config").lower()


def _name(annotation: Any) -> str:
    names: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    names |= {NoneType: "none", tuple: "a list such as 64,64"}
    words: list[object] = []
    for member in _members(annotation):
        origin = get_origin(member)
        words += get_args(member) if origin is Literal else [names.get(origin or member, member)]
    return " or ".join(map(str, words))
