"""Permitted imports between layers: the table of the architecture, and the laws that use it.

A new top-level module or package is a new decision: it is refused until it has a line here.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from tests.laws.source import ROOT, Finding, Import, Module, dotted

LAYERS: Final = (
    {"errors", "config", "faults", "disk", "signals"},  # 0 what a run is, what can go wrong, safe writing, stopping
    {"suites", "records", "seeds", "datasets"},  # 1 tables of specs, records, random streams, recorded experience
    {"ops", "curves"},  # 2 pure functions of tensors; curves that other programs measured
    {"nets", "buffers", "envs"},  # 3
    {"algorithms", "collectors"},  # 4
    {"training"},  # 5
    {"accel", "evaluation"},  # 6 faster steps of the same numbers; policies evaluated in other processes
    {"assembly", "checkpoint"},  # 7
    {"run", "generate"},  # 8
    {"sweep", "report"},  # 9
    {"cli", "__main__"},  # 10
)
LEVEL: Final = {unit: level for level, units in enumerate(LAYERS) for unit in units} | {"__init__": -1}

SIDEWAYS: Final = {
    ("config", "errors"),
    ("disk", "errors"),
    ("disk", "faults"),
    ("signals", "errors"),
    ("__main__", "cli"),
}  # within a layer, in this direction only
FORBIDDEN: Final = {("algorithms", "buffers"), ("algorithms", "envs")}  # below, and still not to be known

FAMILIES: Final = {f"rlbench.config.{name}" for name in ("online", "offline", "offline_discrete")}
"""Modules of the models that are an algorithm, or a part of one."""

HEAVY: Final = {"torch", "gymnasium", "gymnasium_robotics", "ale_py", "envpool", "minari", "mujoco", "ray", "wandb"}
LIGHT: Final = {
    "errors",
    "faults",
    "disk",
    "config",
    "suites",
    "records",
    "signals",
    "report",
    "datasets",
    "curves",
}  # never import what is heavy
READS_BY_LIBRARY: Final = {
    "rlbench/datasets/torchfile.py",  # reads a file of torch by torch
    "rlbench/datasets/download.py",  # downloads from Minari's remote by minari
}
LIGHT_AT_START: Final = {"seeds", "sweep", "cli", "__main__"}  # may, inside a function

IMPORTED_AS: Final = {"pillow": "PIL", "protobuf": "google"}  # distributions whose package has another name


def only_known_units(module: Module) -> Iterator[Finding]:
    """Every module has a place in the table."""
    if module.unit not in LEVEL:
        yield Finding(1, f"{module.unit!r} is in no layer; decide where it belongs and add it to LAYERS")


def downwards(module: Module) -> Iterator[Finding]:
    """Imports go down; neighbours in a layer do not know each other."""
    here = module.unit
    for found in module.imports:
        there = _unit(found)
        if found.target.startswith("."):
            yield Finding(found.line, f"relative import {found.target!r}: write it out from rlbench")
        elif there is None or there == here:
            continue
        elif there not in LEVEL:
            yield Finding(found.line, f"imports {there!r}, which is in no layer")
        elif (here, there) in FORBIDDEN:
            yield Finding(found.line, f"{here} must not know {there}")
        elif LEVEL[there] >= LEVEL.get(here, -1) and (here, there) not in SIDEWAYS:
            yield Finding(found.line, f"{here} (layer {LEVEL.get(here)}) imports {there} (layer {LEVEL[there]})")


def training_sees_protocols(module: Module) -> Iterator[Finding]:
    """Of what a trainer drives it may import ``base`` alone: the protocols."""
    if module.unit == "training":
        for found in module.imports:
            level, parts = LEVEL.get(_unit(found) or "", 0), found.target.split(".")
            if level in {3, 4} and parts[2:3] != ["base"]:
                yield Finding(
                    found.line, f"training sees only protocols, and {found.target} is none (…base holds them)"
                )


def families_in_assembly(module: Module) -> Iterator[Finding]:
    """Only ``assembly`` and the config models tell algorithms apart; all others read the data of a family."""
    if module.unit in {"assembly", "config"}:
        return
    for node in ast.walk(module.tree):
        classes: list[ast.expr] = []
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, union]):
                classes = [part for part in ast.walk(union) if isinstance(part, ast.Name | ast.Attribute)]
            case ast.MatchClass(cls=part):
                classes = [part]
            case ast.Compare(left=ast.Attribute(attr="kind" | "family", value=part)):
                if dotted(part).split(".")[-1] in {"algo", "method", "head"}:
                    yield Finding(node.lineno, f"compares the kind of {dotted(part)}: give the family what differs")
            case _:
                pass
        for part in classes:
            if module.full(part).rpartition(".")[0] in FAMILIES:
                yield Finding(part.lineno, f"asks for {module.full(part)}: give the family what differs, as data")


def light(module: Module) -> Iterator[Finding]:
    """What reads and prints records starts without torch and without an emulator."""
    for found in module.imports:
        there = _unit(found)
        heavy = found.target.split(".")[0] in HEAVY
        heavy |= there is not None and there not in LIGHT | LIGHT_AT_START | {"__init__"}
        later = module.unit in LIGHT_AT_START or module.path in READS_BY_LIBRARY
        if heavy and (found.runs == "at import" if later else module.unit in LIGHT):
            advice = "import it inside the function" if later else "do without"
            yield Finding(found.line, f"{found.target} brings torch or an emulator into {module.unit}: {advice}")
        if module.unit == "config" and found.target.split(".")[0] == "numpy":
            yield Finding(found.line, "config knows no numpy")


def empty_packages(module: Module) -> Iterator[Finding]:
    """``__init__.py`` is empty, but for the version in rlbench and the look-up in suites."""
    if not module.path.endswith("/__init__.py") or module.path == "rlbench/suites/__init__.py":
        return
    if module.path == "rlbench/__init__.py":
        yield from (Finding(found.line, "rlbench/__init__.py imports nothing") for found in module.imports)
    elif module.tree.body:
        yield Finding(1, "an __init__.py is empty: import from the module that defines the name")


def declared(module: Module) -> Iterator[Finding]:
    """An import statement names the standard library or a core dependency; an extra comes by ``import_module``."""
    for found in module.imports:
        root = found.target.split(".")[0]
        if not found.by_call and root not in sys.stdlib_module_names | core() | {"", "rlbench"}:
            yield Finding(found.line, f"{root} is no core dependency in pyproject.toml")


def _unit(found: Import) -> str | None:
    """The unit of rlbench that is imported, or None for anything else."""
    first, *rest = found.target.split(".")
    if first != "rlbench":
        return None
    return rest[0] if rest and rest[0] != "__version__" else "__init__"


def circles(modules: Iterable[Module]) -> list[str]:
    """The modules that import themselves through others; imports for types alone make no circle."""
    names = {module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in modules}
    imports = {
        name: {_module_of(found.target, names) for found in module.imports if found.runs != "never"} - {name, None}
        for name, module in names.items()
    }
    circles = []
    for name, direct in imports.items():
        reached, new = set[str | None](), direct
        while new:
            reached |= new
            new = set().union(*(imports[other] for other in new if other)) - reached
        if name in reached:
            circles.append(name)
    return sorted(circles)


def _module_of(target: str, names: Iterable[str]) -> str | None:
    """The module that an import brings: ``a.b`` of the name ``a.b.c`` where ``c`` is no module."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None


def unused(dependencies: Iterable[str], modules: Iterable[Module]) -> list[str]:
    """The dependencies of the core that no module imports, by the names of their packages."""
    imported = {found.target.split(".")[0] for module in modules for found in module.imports}
    return sorted({*dependencies} - imported)


@cache
def core() -> frozenset[str]:
    """The packages of the core dependencies in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = (re.split(r"[<>=!~ \[]", name)[0].replace("-", "_") for name in project["dependencies"])
    return frozenset(IMPORTED_AS.get(name, name) for name in names)


LAWS: Final = (
    only_known_units, downwards, training_sees_protocols, families_in_assembly, light, empty_packages, declared,
)  # fmt: skip
