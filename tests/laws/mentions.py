"""The words that tests type: a test's own strings, and those of its helpers in the same file.

A string that is a whole command line stands for itself, so that a list of them mixes nothing.
"""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from tests.laws.source import ROOT

TESTS: Final = ROOT / "tests"
ABROAD: Final = ("laws", "test_suggestions.py")  # they speak of options, or mistype something beside them


def typed(verbs: Collection[str], folder: Path = TESTS) -> list[frozenset[str]]:
    """The words of each test of ``folder``, and of each line in it that begins with one of ``verbs``."""
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        if not set(path.relative_to(folder).parts) & set(ABROAD):
            found += list(_of_file(ast.parse(path.read_text(encoding="utf-8")), verbs))
    return found


def _of_file(tree: ast.Module, verbs: Collection[str]) -> Iterator[frozenset[str]]:
    own: dict[str, tuple[set[str], set[str]]] = {}  # by name: words, and the names it leans on
    for node in tree.body:
        for name in _names(node):
            words, leans = own.setdefault(name, (set(), set()))
            for text in _texts(node):
                line = text.replace("=", " ").split()
                if line[:1] == ["rlbench"]:
                    continue  # what a shell completes or a message says, which nobody has run
                if len(line) > 1 and line[0] in verbs:
                    yield frozenset(line)
                else:
                    words |= set(line)
            leans |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            leans |= {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    for name in own:
        if name.startswith("test_"):
            yield frozenset(word for reached in _reached(name, own) for word in own[reached][0])


def _names(node: ast.stmt) -> list[str]:
    """What a statement at the top of a file defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


def _texts(node: ast.stmt) -> Iterator[str]:
    """Its strings, but for what it says of itself."""
    said = {id(part.value) for part in ast.walk(node) if isinstance(part, ast.Expr)}
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in said:
            yield part.value


def _reached(name: str, own: dict[str, tuple[set[str], set[str]]]) -> set[str]:
    found, left = set[str](), [name]
    while left:
        here = left.pop()
        if here not in found:
            found.add(here)
            left += [there for there in own[here][1] if there in own]
    return found
