"""A Python module under test: its path, text, syntax tree, imports and names.

A law is a function from a ``Module`` to findings, so one law checks both the package and examples of violations.
"""

import ast
import builtins
import io
import tokenize
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]

Runs: TypeAlias = Literal["at import", "in a body", "never"]  # never: under TYPE_CHECKING


class Finding(NamedTuple):
    """A line that breaks a law, and the remedy."""

    line: int
    message: str


class Import(NamedTuple):
    """One imported name: ``from rlbench.ops import value`` has the target ``rlbench.ops.return_distributions``."""

    target: str
    line: int
    runs: Runs
    name: str  # in the importing module
    by_call: bool = False  # import_module("…"), which may fail if the package is optional


class Module:
    """One file below ``rlbench/``."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.tree = ast.parse(text, path)

    @property
    def unit(self) -> str:
        """Its package or top-level module: ``ops`` of ``rlbench/ops/return_distributions.py``."""
        return self.path.split("/")[1].removesuffix(".py")

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, also in functions; relative ones keep their dots."""
        return list(_imports(self.tree, "at import"))

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Every comment with its line."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]

    @cached_property
    def full_names(self) -> dict[str, str]:
        """The full name of every imported name."""
        return {item.name: item.target for item in self.imports}

    @cached_property
    def mentions(self) -> list[tuple[int, str]]:
        """Line and full name of every imported or built-in object: ``np.random.rand`` is ``numpy.random.rand``."""
        mentions = [(item.line, item.target) for item in self.imports]
        for node, parent in _with_parents(self.tree):
            if isinstance(node, ast.Name | ast.Attribute) and not isinstance(parent, ast.Attribute):
                root, *rest = dotted(node).split(".")
                if root in self.full_names:
                    mentions.append((node.lineno, self.full(node)))
                elif not rest and hasattr(builtins, root):
                    mentions.append((node.lineno, root))
        return mentions

    def full(self, node: ast.expr) -> str:
        """The full name of an expression such as ``np.random.rand``, with aliases resolved."""
        root, *rest = dotted(node).split(".")
        return ".".join([self.full_names.get(root, root), *rest])

    @cached_property
    def calls(self) -> list[tuple[str, ast.Call]]:
        """Every call with the qualified name of the function that contains it."""
        return list(_calls(self.tree, ""))

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


Law: TypeAlias = Callable[[Module], Iterator[Finding]]


@cache
def tree() -> list[Module]:
    """Every module of the package."""
    paths = sorted((ROOT / "rlbench").rglob("*.py"))
    return [Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def dotted(node: ast.expr) -> str:
    """The text of a dotted expression, ``a.b.c``; a part that is no plain name is ``?``."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{dotted(value)}.{name}"
        case _:
            return "?"


def _imports(node: ast.AST, runs: Runs) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inner: Runs = runs
        match child:
            case ast.Import():
                yield from _plain(child, runs)
            case ast.ImportFrom(module=module, names=names, level=level):
                origin = "." * level + (module or "")
                yield from (Import(f"{origin}.{a.name}", child.lineno, runs, a.asname or a.name) for a in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(target))]):
                if dotted(function).split(".")[-1] in {"import_module", "__import__"}:
                    yield Import(target, child.lineno, runs, target, by_call=True)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                inner = "in a body" if runs == "at import" else runs
            case ast.If(test=test) if dotted(test).split(".")[-1] == "TYPE_CHECKING":
                inner = "never"
        yield from _imports(child, inner)


def _plain(node: ast.Import, runs: Runs) -> Iterator[Import]:
    """``import a.b`` binds ``a`` and imports ``a.b``; ``import a.b as c`` binds ``a.b`` to ``c``."""
    for alias in node.names:
        yield Import(alias.name, node.lineno, runs, alias.asname or alias.name)
        if "." in alias.name and not alias.asname:
            root = alias.name.split(".")[0]
            yield Import(root, node.lineno, runs, root)


def _with_parents(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        yield child, node
        yield from _with_parents(child)


def _calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        name = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else ""
        yield from _calls(child, ".".join(filter(None, (function, name))))
