"""Limits of sizes and names."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Final

from tests.laws.layers import LEVEL
from tests.laws.source import ROOT, Finding, Module

MODULE: Final = 400
LEARNER: Final = 155
FUNCTION: Final = 48
MEDIAN: Final = 140  # of all modules
SCRIPT: Final = 20
LONG_SCRIPTS: Final = {"setup": 60, "nightly": 30}
READING: Final = 1000  # of all files of the reading path, less one
PATH: Final = (
    "rlbench/training/online.py", "rlbench/collectors/sync.py", "rlbench/buffers/ring.py",
    "rlbench/training/updates.py", "rlbench/algorithms/dqn.py", "rlbench/nets/torsos.py",
    "rlbench/nets/dueling.py", "rlbench/nets/q_heads.py", "rlbench/ops/return_distributions.py",
)  # fmt: skip
"""The code path of one step of DQN, in this order: the nine files that CONTRIBUTING.md recommends to newcomers."""

C51: Final = (
    ("rlbench/ops/return_distributions.py", "CategoricalReturn"),
    ("rlbench/nets/q_heads.py", "C51Head"),
    ("rlbench/config/online.py", "C51HeadConfig"),
)
"""The code that C51 adds to DQN."""

DIFFERENCE: Final = 36  # lines of it, without docstrings

VAGUE_MODULES: Final = {"util", "utils", "common", "misc", "helper", "helpers", "impl", "tools", "core"}
VAGUE_CLASS: Final = re.compile(r"^_?(Base|Abstract)[A-Z]|(Manager|Helper|Wrapper|Mixin|Impl)$")
VAGUE_SUFFIX: Final = re.compile(r"_(fn|cls)$")


def short_modules(module: Module) -> Iterator[Finding]:
    """A module has at most ``MODULE`` lines, a learner at most ``LEARNER``."""
    limit = LEARNER if module.unit == "algorithms" else MODULE
    length = len(module.text.splitlines())
    if length > limit:
        yield Finding(limit + 1, f"{length} lines, {limit} are allowed: split it where it has two subjects")


def short_functions(module: Module) -> Iterator[Finding]:
    """A function has at most ``FUNCTION`` lines.

    In ``cli/`` the options of a command do not count: they are a table.
    """
    for function in module.functions():
        first = function.body[0].lineno if module.unit == "cli" else function.lineno
        length = (function.end_lineno or first) - first + 1
        if length > FUNCTION:
            yield Finding(function.lineno, f"{function.name} has {length} lines, {FUNCTION} are allowed")


def descriptive_names(module: Module) -> Iterator[Finding]:
    """The name of a module or class names its content; no name ends with its kind."""
    stems = {PurePosixPath(part).stem for part in module.path.split("/")}
    for stem in sorted(stems & VAGUE_MODULES):
        yield Finding(1, f"{stem!r} is a vague name of a module: name its content")
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef(name=name) if VAGUE_CLASS.search(name):
                yield Finding(node.lineno, f"{name}: a vague name; name its task")
            case ast.FunctionDef(name=name) | ast.arg(arg=name) if VAGUE_SUFFIX.search(name):
                yield Finding(node.lineno, f"{name}: verbs for functions, nouns for data, no suffix for the kind")


def lines(modules: Sequence[Module]) -> int:
    """Lines of the package."""
    return sum(len(module.text.splitlines()) for module in modules)


def count_modules(modules: Sequence[Module]) -> int:
    """Modules of the package."""
    return len(modules)


def lines_of_tests(_: Sequence[Module]) -> int:
    """Lines of the tests."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py"))


def duplicate_names(modules: Sequence[Module]) -> int:
    """Public functions and classes whose name is defined more than once in their layer."""
    places: dict[tuple[int, str], set[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((LEVEL.get(module.unit, -1), node.name), set()).add(module.path)
    return sum(len(paths) > 1 for paths in places.values())


def import_depth(modules: Sequence[Module]) -> int:
    """Modules of ``report`` in the longest chain of imports; imports for types alone do not count."""
    imports = {
        module.path.split("/")[-1].removesuffix(".py"): {
            item.target.split(".")[2]
            for item in module.imports
            if item.target.startswith("rlbench.report.") and item.runs != "never"
        }
        for module in modules
        if module.unit == "report"
    }

    def height(name: str) -> int:
        return 1 + max((height(other) for other in imports[name] & set(imports) if other != name), default=0)

    return max(map(height, imports), default=0)


RATCHETS: Final = (
    # count, maximum, target, and rounding of the maximum
    (lines, 38_405, 28_000, 1_000),
    (count_modules, 240, 205, 10),
    (lines_of_tests, 42_449, 28_000, 1_000),
    (duplicate_names, 10, 0, 10),
    (import_depth, 6, 6, 1),
)
"""Counts that only decrease: a maximum is today's count, rounded up; who lowers a count lowers its maximum."""

LAWS: Final = (short_modules, short_functions, descriptive_names)
