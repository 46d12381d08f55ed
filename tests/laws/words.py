"""Shapes, errors and sources in docstrings, and a reason for every disabled rule.

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

UNITS_OF_ARRAYS: Final = {
    "ops", "nets", "buffers", "algorithms", "collectors", "accel", "envs", "training", "evaluation", "assembly",
    "datasets",
}  # fmt: skip
ARRAYS: Final = {"Tensor", "NDArray", "Frames", "Row", "ReturnDistribution"}  # types whose shape no type checker knows
SHAPE: Final = re.compile(r"``[^`]*\[[^\]`]*\][^`]*``")

ERRORS: Final = {name for scope in (errors, builtins) for name, of in vars(scope).items() if isinstance(of, type)}
SILENT: Final = {"NotImplementedError", "KeyboardInterrupt", "SystemExit"}  # no caller handles them

LOSSES: Final = {"algorithms", "ops"}
SOURCE: Final = re.compile(r"https?://|\b\d{4}\.\d{5}\b|\b(eq\.|algorithm) \d|\b[A-Z][a-z]+ (19|20)\d\d\b")

SUPPRESSION: Final = re.compile(r"#\s*(noqa|type:\s*ignore)\b")
WITH_REASON: Final = re.compile(r"#\s*(noqa: [A-Z]+\d+(, [A-Z]+\d+)*|type:\s*ignore\[[a-z, -]+\])\s+(#|-) \w")


class PublicFunction(NamedTuple):
    """A public function and the docstrings of its scopes, innermost first."""

    node: ast.FunctionDef
    docs: tuple[str, ...]


def shapes(module: Module) -> Iterator[Finding]:
    """The docstring of a public function of arrays has their shapes."""
    if module.unit in UNITS_OF_ARRAYS:
        for node, docs in _public(module.tree, ()):
            if _annotation_names(node) & ARRAYS and not SHAPE.search(docs[0]):
                yield Finding(node.lineno, f"{node.name}: write the shapes of its arrays, as ``[B, A]``")


def documented_errors(module: Module) -> Iterator[Finding]:
    """The docstring of a public function names the errors that it raises."""
    if module.unit in {"cli", "__main__"}:  # its errors are messages to the user
        return
    for node, docs in _public(module.tree, ()):
        for error in map(_error_of, ast.walk(node)):
            if error in ERRORS - SILENT and not re.search(rf"\b{error}\b", docs[0]):
                yield Finding(node.lineno, f"{node.name} raises {error}: write its condition under Raises")
                break


def sources(module: Module) -> Iterator[Finding]:
    """The docstring of a loss, of its class or of its module cites the paper."""
    if module.unit in LOSSES:
        for node, docs in _public(module.tree, ()):
            if re.search(r"(^|_)loss$", node.name) and not any(SOURCE.search(doc) for doc in docs):
                yield Finding(node.lineno, f"{node.name}: cite the paper and the equation")


def suppressions(module: Module) -> Iterator[Finding]:
    """A comment that disables a rule names the rule and the reason: ``noqa: X123 - why``."""
    for line, comment in module.comments:
        if SUPPRESSION.search(comment) and not WITH_REASON.search(comment):
            yield Finding(line, "name the rule and the reason: # noqa: X123 - why")


def unexplained_rules(project: str) -> list[str]:
    """Lines of pyproject.toml that disable a rule without a reason."""
    inside = project[project.index("[tool.ruff.lint]") : project.index("[tool.ruff.lint.flake8-annotations]")]
    lines = [line for line in inside.splitlines() if re.search(r'[\[ ]"[A-Z]+\d*"', line)]
    return [line.strip() for line in lines if "#" not in line and "select" not in line]


@cache
def tests_and_benchmarks() -> list[Module]:
    """Modules of tests and benchmarks."""
    paths = [path for folder in ("tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def _public(node: ast.Module | ast.ClassDef, outer: tuple[str, ...]) -> Iterator[PublicFunction]:
    docs = (ast.get_docstring(node) or "", *outer)
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public(child, docs)
        elif isinstance(child, ast.FunctionDef) and (child.name == "__call__" or not child.name.startswith("_")):
            yield PublicFunction(child, (ast.get_docstring(child) or "", *docs))


def _annotation_names(node: ast.FunctionDef) -> set[str]:
    """The names in a signature's annotations."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    annotations = [argument.annotation for argument in arguments if argument.annotation] + [node.returns]
    inside = (name for annotation in annotations if annotation for name in ast.walk(annotation))
    return {dotted(name).split(".")[-1] for name in inside if isinstance(name, ast.Name | ast.Attribute)}


def _error_of(node: ast.AST) -> str:
    """The name of the error of a ``raise`` statement; empty for another node."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return dotted(error).split(".")[-1]
    return ""


LAWS: Final = (shapes, documented_errors, sources, suppressions)
