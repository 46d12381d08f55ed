"""Shapes, errors and sources in docstrings, and reasons for every disabled rule.

A shape stands in double backticks: ``[B, A]``, ``[...]``, ``[]``.
"""

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

from rlbench import errors
from tests.laws.source import ROOT, Finding, Module, dotted

SHAPED: Final = {
    "ops", "nets", "buffers", "algorithms", "collectors", "accel", "envs", "training", "evaluation", "assembly",
    "datasets",
}  # fmt: skip
ARRAYS: Final = {"Tensor", "NDArray", "Frames", "Row", "ReturnDistribution"}  # types whose shape no type checker knows
SHAPE: Final = re.compile(r"``[^`]*\[[^\]`]*\][^`]*``")

ERRORS: Final = {name for scope in (errors, builtins) for name, of in vars(scope).items() if isinstance(of, type)}
SILENT: Final = {"NotImplementedError", "KeyboardInterrupt", "SystemExit"}  # not for the caller to handle

LOSSES: Final = {"algorithms", "ops"}
SOURCE: Final = re.compile(r"https?://|\b\d{4}\.\d{5}\b|\b(eq\.|algorithm) \d|\b[A-Z][a-z]+ (19|20)\d\d\b")

EXCUSE: Final = re.compile(r"#\s*(noqa|type:\s*ignore)\b")
EXPLAINED: Final = re.compile(r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|type:\s*ignore\[[a-z, -]+\])\s+(#|-) \w")


class Named(NamedTuple):
    """A function that others call, and the docstrings around it, innermost first."""

    node: ast.FunctionDef
    docs: tuple[str, ...]


def shapes(module: Module) -> Iterator[Finding]:
    """A public function of arrays says their shapes."""
    if module.unit in SHAPED:
        for node, docs in _public(module.tree, ()):
            if _mentioned(node) & ARRAYS and not SHAPE.search(docs[0]):
                yield Finding(node.lineno, f"{node.name}: say the shape of what it takes or gives, as ``[B, A]``")


def refusals(module: Module) -> Iterator[Finding]:
    """A public function that raises an error names it."""
    if module.unit in {"cli", "__main__"}:  # there errors are for people, and --help says what they need
        return
    for node, docs in _public(module.tree, ()):
        for found in ast.walk(node):
            raised = _raised(found)
            if raised in ERRORS - SILENT and not re.search(rf"\b{raised}\b", docs[0]):
                yield Finding(node.lineno, f"{node.name} raises {raised}: say when, under Raises")
                break


def sources(module: Module) -> Iterator[Finding]:
    """A loss cites what it is from, or its class or module does."""
    if module.unit in LOSSES:
        for node, docs in _public(module.tree, ()):
            if re.search(r"(^|_)loss$", node.name) and not any(SOURCE.search(doc) for doc in docs):
                yield Finding(node.lineno, f"{node.name}: cite the paper and the equation")


def excuses(module: Module) -> Iterator[Finding]:
    """A rule is switched off for a line by its name and with a reason: ``noqa: X123 - why``."""
    for line, comment in module.comments:
        if EXCUSE.search(comment) and not EXPLAINED.search(comment):
            yield Finding(line, "say which rule is switched off, and why: # noqa: X123 - why")


def unexplained_rules(project: str) -> list[str]:
    """Lines of pyproject.toml that switch a rule off and do not say why."""
    inside = project[project.index("[tool.ruff.lint]") : project.index("[tool.ruff.lint.flake8-annotations]")]
    lines = [line for line in inside.splitlines() if re.search(r'[\[ ]"[A-Z]+\d*"', line)]
    return [line.strip() for line in lines if "#" not in line and "select" not in line]


@cache
def beside() -> list[Module]:
    """Modules that are no part of the package: tests and benchmarks."""
    paths = [path for folder in ("tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def _public(node: ast.Module | ast.ClassDef, around: tuple[str, ...]) -> Iterator[Named]:
    docs = (ast.get_docstring(node) or "", *around)
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child, docs)
        elif isinstance(child, ast.FunctionDef) and (child.name == "__call__" or not child.name.startswith("_")):
            yield Named(child, (ast.get_docstring(child) or "", *docs))


def _mentioned(node: ast.FunctionDef) -> set[str]:
    """The names in a signature's annotations."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotations = [argument.annotation for argument in arguments if argument.annotation] + [node.returns]
    inside = (name for annotation in annotations if annotation for name in ast.walk(annotation))
    return {dotted(name).split(".")[-1] for name in inside if isinstance(name, ast.Name | ast.Attribute)}


def _raised(node: ast.AST) -> str:
    """The error of a ``raise`` statement that makes one."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return dotted(made).split(".")[-1]
    return ""


LAWS: Final = (shapes, refusals, sources, excuses)
