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
    {"errors", "config", "faults", "disk", "signals", "versions"},  # 0 configuration, errors, safe writing, signals
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
    ("versions", "errors"),
    ("__main__", "cli"),
}  # within a layer, in this direction only
FORBIDDEN: Final = {("algorithms", "buffers"), ("algorithms", "envs")}  # exceptions: lower, but not importable

FAMILIES: Final = {f"rlbench.config.{name}" for name in ("online", "offline")}
"""Modules of the config models of algorithms and of their parts."""

HEAVY: Final = {"torch", "gymnasium", "gymnasium_robotics", "ale_py", "envpool", "minari", "mujoco", "ray", "wandb"}
LIGHT: Final = {  # never import HEAVY
    *("errors", "faults", "disk", "config", "suites", "records", "signals", "versions", "report", "datasets", "curves")
}
READS_BY_LIBRARY: Final = {
    "rlbench/datasets/torchfile.py",  # reads a file of torch by torch
    "rlbench/datasets/minari.py",  # downloads from Minari's remote by minari
}
LIGHT_AT_START: Final = {"seeds", "sweep", "cli", "__main__"}  # may, inside a function

IMPORTED_AS: Final = {"pillow": "PIL", "protobuf": "google"}  # distributions whose package has another name


def units_have_layers(module: Module) -> Iterator[Finding]:
    """Every unit is in a layer."""
    if module.unit not in LEVEL:
        yield Finding(1, f"{module.unit!r} is in no layer; decide where it belongs and add it to LAYERS")


def downwards(module: Module) -> Iterator[Finding]:
    """Imports go to lower layers; units of one layer do not import each other."""
    here = module.unit
    for item in module.imports:
        there = _unit(item)
        if item.target.startswith("."):
            yield Finding(item.line, f"relative import {item.target!r}: write it out from rlbench")
        elif there is None or there == here:
            continue
        elif there not in LEVEL:
            yield Finding(item.line, f"imports {there!r}, which is in no layer")
        elif (here, there) in FORBIDDEN:
            yield Finding(item.line, f"{here} must not import {there}")
        elif LEVEL[there] >= LEVEL.get(here, -1) and (here, there) not in SIDEWAYS:
            yield Finding(item.line, f"{here} (layer {LEVEL.get(here)}) imports {there} (layer {LEVEL[there]})")


def training_sees_protocols(module: Module) -> Iterator[Finding]:
    """``training`` imports only the protocols, ``base``, of the objects that a trainer drives."""
    if module.unit == "training":
        for item in module.imports:
            level, parts = LEVEL.get(_unit(item) or "", 0), item.target.split(".")
            if level in {3, 4} and parts[2:3] != ["base"]:
                yield Finding(item.line, f"{item.target} is no protocol: training imports only …base")


def families_in_assembly(module: Module) -> Iterator[Finding]:
    """Only ``assembly`` and the config models distinguish algorithms; all others read the data of a family."""
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
                    yield Finding(node.lineno, f"compares the kind of {dotted(part)}: make it data of the family")
            case _:
                pass
        for part in classes:
            if module.full(part).rpartition(".")[0] in FAMILIES:
                yield Finding(part.lineno, f"checks for {module.full(part)}: make the difference data of the family")


def light_imports(module: Module) -> Iterator[Finding]:
    """Modules that read and print records start without torch and without an emulator."""
    for item in module.imports:
        there = _unit(item)
        heavy = item.target.split(".")[0] in HEAVY
        heavy |= there is not None and there not in LIGHT | LIGHT_AT_START | {"__init__"}
        later = module.unit in LIGHT_AT_START or module.path in READS_BY_LIBRARY
        if heavy and (item.runs == "at import" if later else module.unit in LIGHT):
            advice = "import it inside the function" if later else "do without"
            yield Finding(item.line, f"{item.target} imports torch or an emulator into {module.unit}: {advice}")
        if module.unit == "config" and item.target.split(".")[0] == "numpy":
            yield Finding(item.line, "config imports no numpy")


def empty_packages(module: Module) -> Iterator[Finding]:
    """``__init__.py`` is empty, except for the version and numpy's threads in rlbench, and the look-up in suites."""
    if not module.path.endswith("/__init__.py") or module.path == "rlbench/suites/__init__.py":
        return
    if module.path == "rlbench/__init__.py":
        others = (item for item in module.imports if item.target != "os")
        yield from (Finding(item.line, "rlbench/__init__.py imports os alone") for item in others)
    elif module.tree.body:
        yield Finding(1, "an __init__.py is empty: import from the module that defines the name")


def declared(module: Module) -> Iterator[Finding]:
    """An import statement names the standard library or a core dependency; ``import_module`` imports extras."""
    for item in module.imports:
        root = item.target.split(".")[0]
        if not item.by_call and root not in sys.stdlib_module_names | core() | {"", "rlbench"}:
            yield Finding(item.line, f"{root} is no core dependency in pyproject.toml")


def _unit(item: Import) -> str | None:
    """The unit of rlbench that is imported, or None for anything else."""
    first, *rest = item.target.split(".")
    if first != "rlbench":
        return None
    return rest[0] if rest and rest[0] != "__version__" else "__init__"


def circles(modules: Iterable[Module]) -> list[str]:
    """Modules that import themselves through others; imports for types alone make no circle."""
    names = {module.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): module for module in modules}
    imports = {
        name: {_module_of(item.target, names) for item in module.imports if item.runs != "never"} - {name, None}
        for name, module in names.items()
    }
    circles = []
    for name, direct in imports.items():
        ancestors, new = set[str | None](), direct
        while new:
            ancestors |= new
            new = set().union(*(imports[other] for other in new if other)) - ancestors
        if name in ancestors:
            circles.append(name)
    return sorted(circles)


def _module_of(target: str, names: Iterable[str]) -> str | None:
    """The module of an import: ``a.b`` of the name ``a.b.c`` where ``c`` is no module."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None


def unused(dependencies: Iterable[str], modules: Iterable[Module]) -> list[str]:
    """The dependencies of the core that no module imports, by the names of their packages."""
    packages = {item.target.split(".")[0] for module in modules for item in module.imports}
    return sorted({*dependencies} - packages)


@cache
def core() -> frozenset[str]:
    """The packages of the core dependencies in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = (re.split(r"[<>=!~ \[]", name)[0].replace("-", "_") for name in project["dependencies"])
    return frozenset(IMPORTED_AS.get(name, name) for name in names)


LAWS: Final = (
    units_have_layers, downwards, training_sees_protocols, families_in_assembly, light_imports, empty_packages,
    declared,
)  # fmt: skip
