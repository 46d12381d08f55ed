"""The words of command lines in tests: the strings of a test, and of the functions that it calls in the same file.

Functions of ``tests/commands.py`` count as if they were in it.

A string that is a whole command line is a set of words of its own, so a list of command lines mixes none.
"""

import ast
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.laws.source import ROOT

TESTS: Final = ROOT / "tests"
EXEMPT: Final = ("laws", "test_suggestions.py")  # they describe options, or mistype them


def command_words(verbs: Collection[str], folder: Path = TESTS) -> list[frozenset[str]]:
    """The words of each test of ``folder``, and of each line in it that begins with one of ``verbs``."""
    words, shared = [], ast.parse((TESTS / "commands.py").read_text(encoding="utf-8")).body
    for path in sorted(folder.rglob("test_*.py")):
        if not set(path.relative_to(folder).parts) & set(EXEMPT):
            words += list(_of_file([*shared, *ast.parse(path.read_text(encoding="utf-8")).body], verbs))
    return words


def _of_file(definitions: Sequence[ast.stmt], verbs: Collection[str]) -> Iterator[frozenset[str]]:
    own: dict[str, tuple[set[str], set[str]]] = {}  # by definition: its words, and the names that it uses
    for node in definitions:
        for name in _names(node):
            words, names = own.setdefault(name, (set(), set()))
            for text in _texts(node):
                line = text.replace("=", " ").split()
                if line[:1] == ["rlbench"]:
                    continue  # of a completion or a message; no test runs it
                if len(line) > 1 and line[0] in verbs:
                    yield frozenset(line)
                else:
                    words |= set(line)
            names |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            names |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    for name in own:
        if name.startswith("test_"):
            yield frozenset(word for definition in _with_dependencies(name, own) for word in own[definition][0])


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _texts(node: ast.stmt) -> Iterator[str]:
    """Its strings, without docstrings."""
    docstrings = {id(part.value) for part in ast.walk(node) if isinstance(part, ast.Expr)}
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in docstrings:
            yield part.value


def _with_dependencies(name: str, own: dict[str, tuple[set[str], set[str]]]) -> set[str]:
    definitions, queue = set[str](), [name]
    while queue:
        definition = queue.pop()
        if definition not in definitions:
            definitions.add(definition)
            queue += [dependency for dependency in own[definition][1] if dependency in own]
    return definitions
