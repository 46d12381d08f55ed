"""The table of promises: eighteen of them, each with tests that exist; README's size and first commands."""

import re

import pytest

from tests.laws.source import ROOT

PAGE = ROOT / "docs/reliability.md"
ROWS = re.findall(r"^\| (R\d+) \| (.+?) \| (`.+`) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_eighteen_promises_in_order() -> None:
    assert [number for number, _, _ in ROWS] == [f"R{i}" for i in range(1, 19)]


@pytest.mark.parametrize(("number", "keepers"), [(number, keepers) for number, _, keepers in ROWS])
def test_every_promise_is_kept_by_a_test_that_exists(number: str, keepers: str) -> None:
    missing = [path for path in re.findall(r"`([^`]+)`", keepers) if not (ROOT / path).is_file()]
    assert not missing, (number, missing)


def test_every_file_of_reliability_tests_is_named() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/reliability").glob("test_*.py")}
    assert files == set(re.findall(r"`(tests/reliability/test_\w+\.py)`", PAGE.read_text(encoding="utf-8")))


def test_readme_is_read_in_two_minutes() -> None:
    """Without its table of results, which grows with the records."""
    head, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- begin: what was reproduced -->")
    assert len((head + rest.partition("<!-- end -->")[2]).encode()) <= 7_545 and rest


def test_every_link_of_readme_and_the_pages_leads_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (page.name, target)


def test_readme_begins_with_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("```\n")[1].splitlines()
    assert first == ["scripts/test", "scripts/rlbench run atari dqn --task PongNoFrameskip-v4"]
