"""Resolution of options and settings to one ``Spec``, with the source of every field.

Precedence: option > ``--set`` > ``RLBENCH_*`` > ``--config`` > suite table > default. ``--smoke`` is an option
that only makes a run smaller: it caps the values of the others.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from rlbench import faults, suites
from rlbench.config.canonical import SELECTORS, fields, meanings
from rlbench.config.names import parse_count
from rlbench.config.overrides import DOTS, Setting, apply_settings, flatten, parse
from rlbench.config.run import Spec
from rlbench.config.tasks import AtariTask, GymnasiumTask, OfflineTask
from rlbench.errors import UnknownName, UsageError, suggest_path
from rlbench.suites.plugins import Package

IDENTITY = {
    "suite": "the suite is the first argument",
    "algorithm": "the algorithm is the second argument",
    "algo": "the algorithm is the second argument",
    "algo.revision": "the revision belongs to the code",
    "task": "use --task",
    "task.id": "use --task",
    "task.game": "use --task",
    "task.world": "use --task",
    "task.world.id": "use --task",
    "task.dataset": "use --dataset",
    "task.package": "use --import",
    "task.version": "it is the installed package's",
    "task.suite": "the suite is the first argument",
    "seed": "use --seeds",
    "smoke": "use --smoke",
}
"""Fields that identify the run; each has its own option or argument."""

TRAINING_ENVS: Final[Mapping[str, object]] = {"envs": 1, "async_batch": None, "clip": True, "episodic_life": True}
"""Settings of training environments, with the values of offline runs, which have none."""

MAX_CONFIG_BYTES = 2**16  # of a TOML file of settings
PLAIN = "write plain fields as algo.lr = 1e-4"

SCALARS = (str, int, float, bool, list)
"""Types of TOML values that a field can have; any other value, such as a date, becomes text."""

OPTION_VARIABLES = (
    "RESULTS", "DEVICE", "SEEDS", "DATASETS", "D4RL_MIRROR", "ENV_TIMEOUT", "EVAL_WORKERS", "UPDATE_ENGINE",
    "TRACK_DIR", "REFERENCES", "REFERENCE",
)  # fmt: skip
"""Environment variables that set no field, after ``RLBENCH_``."""

FIELD_PREFIXES = ("ALGO__", "TASK__", "PROTOCOL__", "BUDGET__")
"""Prefixes of environment variables that set a field, after ``RLBENCH_``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """A ``Spec`` and the source of each of its fields."""

    spec: Spec
    sources: Mapping[str, str]  # path of an override → "default", "suite table", "--set", a file and commit, …

    def rows(self) -> list[tuple[str, object, str, str]]:
        """Every field as ``(path, value, source, meaning)``, in the order of declaration."""
        texts = (text for _, text in meanings(self.spec))
        return [
            (path, value, self.sources[path], text)
            for (path, value), text in zip(_override_paths(self.spec), texts, strict=True)
        ]


def resolve(
    suite: str,
    algorithm: str,
    task: str,
    *,
    seed: int | None = None,
    sets: Iterable[str] = (),
    config: Path | None = None,
    steps: int | None = None,
    smoke: bool = False,
    environ: Mapping[str, str] | None = None,
    dataset: str = "",
    package: Package | None = None,
) -> Resolved:
    """Resolve the spec of one run; ``dataset`` names another data set than the task's own.

    ``package`` brings the environment of a task ``gym:…``.

    Raises:
        UnknownName: a suite, algorithm, task or field does not exist.
        UsageError: a value does not fit its field, a field has its own option, or the file cannot be read.
    """
    table = suites.spec(suite, algorithm, task, seed=seed or 0, dataset=dataset, package=package)
    settings = settings_from_file(config) if config else []
    settings += settings_from_environment(environ or {})
    settings += [parse(text) for text in sets]
    settings = [_check_settable(setting) for setting in settings]
    if dataset:
        text = dataset.encode(errors="replace").decode()  # of a file whose name is no UTF-8, which the field refuses
        settings.append(Setting("task.dataset", text, "--dataset"))
    if smoke:
        settings += _smoke_settings(apply_settings(table, settings))
    if steps is not None:
        settings.append(Setting("budget.steps", steps, "--steps"))
    spec = apply_settings(table, settings)
    _refuse_ignored(spec)
    return Resolved(spec=spec, sources=_sources(spec, settings, explicit_seed=seed is not None))


def _refuse_ignored(spec: Spec) -> None:
    """Refuse settings that nothing reads; a record of earlier code may have them, and is read and replayed."""
    task = spec.task
    if isinstance(task, OfflineTask):
        if spec.protocol.epsilon > 0 and not spec.algo.epsilon_greedy:
            problem = "only Q-learning is evaluated with it"
            raise UsageError(f"protocol.epsilon={spec.protocol.epsilon}: {problem}; set it to 0")
        for name, value in TRAINING_ENVS.items():
            if getattr(task.world, name, value) != value:
                problem = "offline runs train in no environment"
                raise UsageError(f"task.world.{name}: {problem}; set it to {str(value).lower()}")
    elif isinstance(task, GymnasiumTask) and task.clip and task.size is None:
        raise UsageError(f"task.clip: {task.id} shows vectors, whose rewards stay as they are; set it to false")


def settings_from_file(path: Path) -> list[Setting]:
    """Read the settings of a TOML file; the choice of a part comes before the part's own fields."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1).decode()
        if len(text) > MAX_CONFIG_BYTES or any(line.count(".") > DOTS for line in text.splitlines()):
            raise UsageError(f"--config {path}: too large, or too many dots in a line; {PLAIN}")
        empty: dict[str, object] = {name: {} for name in ("task", "algo", "protocol", "budget")}  # without fields
        settings = flatten({n: v for n, v in tomllib.loads(text).items() if empty.get(n) != v}, path.name)
    except OSError as error:
        near = suggest_path(path) or "; check the path"
        raise UsageError(f"--config {path}: cannot be read ({error.strerror}){near}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--config {path}: not UTF-8 text; expected a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"--config {path}: not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets without end
        raise UsageError(f"--config {path}: has a value that no field can have; {PLAIN}") from None
    plain = [s if isinstance(s.value, SCALARS) else s._replace(value=str(s.value)) for s in settings]
    return sorted(plain, key=lambda setting: setting.path.rpartition(".")[2] not in SELECTORS)


def settings_from_environment(environ: Mapping[str, str]) -> list[Setting]:
    """Read settings such as ``RLBENCH_ALGO__LR=1e-3``; ``RLBENCH_STEPS`` sets ``budget.steps``."""
    settings = []
    for name in sorted(environ):
        rest = name.removeprefix("RLBENCH_")
        if rest == name:
            continue
        if rest == "STEPS":
            settings.append(Setting("budget.steps", parse_count(environ[name], name), name))
        elif rest.startswith(FIELD_PREFIXES):
            settings.append(Setting(rest.lower().replace("__", "."), environ[name], name))
        elif rest not in OPTION_VARIABLES and name != faults.VARIABLE:
            words = ("STEPS", *OPTION_VARIABLES, *(f"{prefix}…" for prefix in FIELD_PREFIXES))
            raise UnknownName("environment variable", name, [f"RLBENCH_{word}" for word in words])
    return settings


def _check_settable(setting: Setting) -> Setting:
    """Normalize a setting's path; refuse a field that has its own option."""
    parent, _, last = setting.path.rpartition(".")
    path = parent if last in SELECTORS and parent else setting.path
    if path in IDENTITY:
        raise UsageError(f"{setting.source} {setting.path}: cannot be set, it identifies the run; {IDENTITY[path]}")
    return setting._replace(path=path)


def _smoke_settings(spec: Spec) -> list[Setting]:
    steps = 200 if spec.algo.learns_from == "data" else 2_000  # each of them is a gradient step
    caps: dict[str, tuple[float, float]] = {
        "budget.steps": (spec.budget.steps, steps),
        "budget.epoch": (spec.budget.epoch, steps // 2),
        "budget.segment": (spec.budget.segment, steps // 2),
        "protocol.episodes": (spec.protocol.episodes, 2),
        "protocol.envs": (spec.protocol.envs, 2),
    }
    values = dict(fields(spec.algo))
    limits = dict(spec.algo.smoke_limits)
    if "method.minibatches" in values:
        limits["method.minibatches"] = min(int(str(values["rollout_length"])), 4) * spec.task.envs
    caps |= {f"algo.{path}": (float(str(values[path])), limit) for path, limit in limits.items()}
    if isinstance(spec.task, AtariTask):
        caps["task.max_frames"] = (spec.task.max_frames, 2_000)
    elif isinstance(spec.task, OfflineTask) and isinstance(spec.task.world, AtariTask):
        caps["task.world.max_frames"] = (spec.task.world.max_frames, 2_000)
    limited = [Setting(path, limit, "--smoke") for path, (value, limit) in caps.items() if value > limit]
    return [*limited, Setting("smoke", True, "--smoke")]


def _sources(spec: Spec, settings: list[Setting], *, explicit_seed: bool) -> dict[str, str]:
    last = {setting.path: setting.source for setting in settings}
    identity = {"suite": "argument", "algorithm": "argument", "task": "argument", "task.id": "argument"}
    if explicit_seed:
        identity["seed"] = "--seed"
    defaults, references = _defaults(spec), suites.sources(spec)
    sources = {}
    for path, value in _override_paths(spec):
        unset = "default" if path in defaults and defaults[path] == value else "suite table"
        sources[path] = last.get(path) or identity.get(path) or references.get(path) or unset
    return sources


def _override_paths(spec: Spec) -> list[tuple[str, object]]:
    """List every field under the path of overrides: ``algo.torso = nature`` for ``algo.torso.kind``."""
    rows = []
    for path, value in fields(spec):
        parent, _, last = path.rpartition(".")
        rows.append((parent if last in SELECTORS else path, value))
    return rows


def _defaults(model: BaseModel, parent_default: BaseModel | None = None, prefix: str = "") -> dict[str, object]:
    """Default of each field of ``model``; a required field is absent."""
    defaults: dict[str, object] = {}
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        has_parent_default = isinstance(parent_default, type(model))
        own_default = field.get_default(call_default_factory=True, validated_data=dict(model))
        default = getattr(parent_default, name) if has_parent_default else None if field.is_required() else own_default
        if isinstance(value, BaseModel):
            defaults |= _defaults(value, default if isinstance(default, BaseModel) else None, f"{prefix}{name}.")
            if isinstance(default, BaseModel):
                defaults[prefix + name] = next((getattr(default, s) for s in SELECTORS if hasattr(default, s)), None)
        elif name not in SELECTORS and (has_parent_default or not field.is_required()):
            defaults[prefix + name] = default
    return defaults
