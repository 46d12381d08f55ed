"""The table of errors in docs/reliability.md: every error with its code and remedy, and no other."""

import re
from collections.abc import Iterator

import pytest

from rlbench import errors
from rlbench.errors import Interrupted, RlbenchError
from tests.laws.source import ROOT

ROW = re.compile(r"^\| `(\w+)` \| ([\d, ]+) \| (.+) \| (.+) \|$", re.MULTILINE)


def family(kind: type[RlbenchError]) -> Iterator[type[RlbenchError]]:
    """A class and all below it that the house defines."""
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from family(below)


def code(kind: type[RlbenchError]) -> str:
    if kind is Interrupted:
        return ", ".join(str(Interrupted("", signal=number).exit_code) for number in (1, 2, 15))
    return str(kind.exit_code)


def documented() -> dict[str, tuple[str, str, str]]:
    """Rows of the page's table by class."""
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    return {name: (number, when, remedy) for name, number, when, remedy in ROW.findall(text)}


def test_the_table_in_readme_is_the_tree_of_classes() -> None:
    assert {name: row[0] for name, row in documented().items()} == {k.__name__: code(k) for k in family(RlbenchError)}


def test_the_tree_at_the_top_of_the_module_is_the_tree_of_classes() -> None:
    codes = dict(re.findall(r"(\w+) +(\d+(?:/\d+)*)   ", errors.__doc__ or ""))
    assert codes == {kind.__name__: code(kind).replace(", ", "/") for kind in family(RlbenchError)}


@pytest.mark.parametrize("kind", list(family(RlbenchError)), ids=lambda kind: kind.__name__)
def test_every_error_documents_its_cause_and_remedy(kind: type[RlbenchError]) -> None:
    _, when, remedy = documented()[kind.__name__]
    assert len(when) > 10 and len(remedy) > 10
    assert (kind.__doc__ or "").strip()
