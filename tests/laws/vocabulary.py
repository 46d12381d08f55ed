"""The field's words: no house word, no participle as the name of a variable, no question as a docstring.

These laws cover the package, the tests, the benchmarks and the comments of scripts, except the modules of ``LISTS``.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from tests.laws.source import ROOT, Finding, Module

LISTS: Final = {"tests/laws/vocabulary.py", "tests/laws/test_planted.py"}  # they list the words

HOUSE: Final[Mapping[str, str]] = {
    r"numbered actions?": "discrete actions",
    r"slopes?|steep": "gradient",
    r"lanes?": "env",
    r"judg(e|es|ed|ing|ement)": "evaluate, evaluation",
    r"cards?": "GPU",
    r"pictures?": "frame, figure",
    r"film(s|ed|ing)?|tapes?": "record, video, recorder",
    r"worth": "value, return",
    r"strangers?": "other file, other program",
    r"told|said|asked": "metadata, reported, requested",
    r"coins?": "exploration draw, uniform number",
    r"company|seats?": "gone with what they named",
    r"press(ed)? down": "penalize",
}
"""House words as patterns, and the field's words to write instead."""

GOALS: Final = {"accel", "algorithms", "nets", "ops", "training"}  # units where a goal would be a TD target

STORED: Final = {"held", "sampled", "lanes", "deviation", "told", "goals", "goal", "card", "judges"}
"""Names that records, recipes, checkpoints or JSON documents store, as whole identifiers."""

STORED_FIELDS: Final = {"Cell.measured", "Measured.imported", "GpuReport.skipped"}
"""Fields that ``data/measured.json`` and files of ``benchmarks/results`` store."""

_PARTICIPLES: Final = """
added asked borrowed brought called carried changed chosen claimed counted divided drawn fallen filled folded followed
found gathered given going held imitated imported joined judged kept known laid learned left made marked matched meant
measured moved named needed noted packed paid parted picked placed played pooled proposed published ranked reached
recorded refused repeated reported said sampled scaled seeded seen sent settled shaped shown skipped stacked stated
stored stretched taken tested tied told trained tried typed used wanted watched weighted written
"""
PARTICIPLES: Final = frozenset(_PARTICIPLES.split())
"""Participles that replace a noun; adjectives of flags and masks, such as ``ended``, are allowed."""

QUESTION: Final = re.compile(r"(What|Whether|Who|Whose|Where|How)\b")
PATTERN: Final = re.compile(rf"(?<![a-z])({'|'.join(HOUSE)})(?![a-z])", re.IGNORECASE)
GOAL: Final = re.compile(r"(?<![a-z])goals?(?![a-z])", re.IGNORECASE)
DOCUMENTS: Final = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "results/tables/README.md", "docs/*.md")


def house_words(module: Module) -> Iterator[Finding]:
    """Identifiers, docstrings, comments, help and messages use the field's words, not the house's."""
    goals = module.unit in GOALS
    for line, text in _texts(module):
        for word in [*PATTERN.findall(text), *(GOAL.findall(text) if goals else [])]:
            house = word[0] if isinstance(word, tuple) else word
            yield Finding(line, f"{house}: write {field_words(house)}")


def noun_names(module: Module) -> Iterator[Finding]:
    """The name of a variable is a noun, not a participle that replaces it."""
    fields = set(_stored_fields(module))
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                pass
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if name not in STORED and node not in fields and name.strip("_").lower() in PARTICIPLES:
            yield Finding(node.lineno, f"{name}: a participle; write its noun")


def docstring_openings(module: Module) -> Iterator[Finding]:
    """A docstring opens with a verb or with a noun of the field, not with a question word."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))) if QUESTION.match(text):
                yield Finding(node.lineno, f"opens with {text.split()[0]}: begin with a verb or a noun of the field")
            case _:
                pass


def house_words_of_documents() -> Iterator[str]:
    """Every house word in documents, the changelog's unreleased part and comments of scripts, without code."""
    for path in sorted(path for glob in DOCUMENTS for path in ROOT.glob(glob)):
        yield from _in_document(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    for path in [*(ROOT / "scripts").rglob("*"), ROOT / ".ci/run"]:
        if path.is_file():
            lines = path.read_text(encoding="utf-8").splitlines()
            comments = "\n".join("".join(line.partition("#")[1:]) for line in lines)
            yield from _in_document(path.relative_to(ROOT).as_posix(), comments)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    yield from _in_document("CHANGELOG.md", "## ".join(re.split(r"^## ", changelog, flags=re.MULTILINE)[:2]))


def field_words(word: str) -> str:
    """The field's words for a house word."""
    return next((better for house, better in HOUSE.items() if re.fullmatch(house, word.lower())), "target")


def _in_document(name: str, text: str) -> Iterator[str]:
    without_code = re.sub(r"```.*?```|`[^`]*`", lambda code: "\n" * code[0].count("\n"), text, flags=re.DOTALL)
    for number, line in enumerate(without_code.splitlines(), 1):
        for match in PATTERN.finditer(line):
            yield f"{name}:{number}: {match[0]}: write {field_words(match[0])}"


def _texts(module: Module) -> Iterator[tuple[int, str]]:
    """Names in words, docstrings, comments, and strings of more than one word: single words are keys."""
    yield from module.comments
    for node in ast.walk(module.tree):
        match node:
            case ast.Constant(value=str(text)) if " " in text:
                yield node.lineno, re.sub(r"``[^`]*``", "", text)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)):
                yield node.lineno, _words(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, _words(name)
            case _:
                pass


def _stored_fields(module: Module) -> Iterator[ast.expr]:
    for node in ast.walk(module.tree):
        match node:
            case ast.ClassDef(name=owner, body=body):
                fields = (field.target for field in body if isinstance(field, ast.AnnAssign))
                yield from (f for f in fields if isinstance(f, ast.Name) and f"{owner}.{f.id}" in STORED_FIELDS)
            case _:
                pass


def _words(name: str) -> str:
    return "" if name in STORED else re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name)


LAWS: Final = (house_words, noun_names, docstring_openings)
