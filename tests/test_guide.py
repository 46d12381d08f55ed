"""docs/extending.md, performed: every recipe in a copy of the package, block by block.

A fenced block belongs to the file that was named last before it: ``New file `…```, ``At the end of `…``` or
``In `…```. A diff replaces the one place that reads like its old lines; a console block is run, and what is shown of
its output looked for.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
RECIPES = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:] if part.startswith("How to add")}
BLOCK = re.compile(
    r"^```(\w+)\n(.*?)^```$|(New\s+file|At\s+the\s+end\s+of|In)\s+`([\w/.]+)`:", re.MULTILINE | re.DOTALL
)
PROGRAMS = {
    "scripts/rlbench": [sys.executable, "-m", "rlbench"],
    "scripts/test": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
}


class Block(NamedTuple):
    """One fenced block, and where it belongs."""

    language: str
    text: str
    how: str
    path: str


def blocks(recipe: str) -> Iterator[Block]:
    how = path = ""
    for language, text, name_text, file in BLOCK.findall(recipe):
        if file:
            how, path = " ".join(name_text.split()), file
        else:
            yield Block(language, text, how, path)


def sides(diff: str) -> tuple[str, str]:
    """The lines that a diff expects, and those that replace them."""
    lines = diff.splitlines()
    old, new = ([line[1:] for line in lines if line[:1] != other] for other in ("+", "-"))
    return "\n".join(old), "\n".join(new)


def edited(block: Block, before: str | None) -> str:
    """The file after the block."""
    if block.how == "New file":
        assert before is None, f"{block.path} is there already"
        return block.text
    assert before is not None, f"{block.path} is not there"
    if block.how == "At the end of":
        return before + ("\n\n" if block.language == "python" else "") + block.text
    old, new = sides(block.text)
    assert before.count(old) == 1, f"{block.path}: {before.count(old)} places read\n{old}"
    return before.replace(old, new)


def run(command: str, output_lines: list[str], copy: Path) -> None:
    """A command of the recipe in the copy; each line that is shown is met in order, with anything for ``…``."""
    program, *words = shlex.split(command)
    environ = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "300"}
    done = subprocess.run(
        [*PROGRAMS[program], *words], cwd=copy, env=environ, capture_output=True, text=True, check=False, timeout=170
    )
    output = done.stdout + done.stderr
    is_refusal = any(line.startswith("rlbench: ") for line in output_lines)
    assert (done.returncode != 0) == is_refusal, f"{command}\n{output}"
    spaced = " ".join(output.split())
    for line in output_lines:
        pieces = (re.escape(" ".join(piece.split())) for piece in line.split("…"))
        match = re.search(".*?".join(pieces), spaced)
        assert match, f"{command}\n{line}\n{output}"
        spaced = spaced[match.end() :]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    for part in text.split("$ ")[1:]:
        command, *output_lines = part.splitlines()
        yield command, output_lines


@pytest.fixture(name="copy")
def copy_fixture(tmp_path: Path) -> Path:
    for name in ("rlbench", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", RECIPES)
def test_recipe_of_the_guide_works(title: str, copy: Path) -> None:
    done = 0
    for block in blocks(RECIPES[title]):
        if block.language == "console":
            for command, output_lines in commands(block.text):
                run(command, output_lines, copy)
                done += 1
        else:
            file = copy / block.path
            file.write_text(edited(block, file.read_text(encoding="utf-8") if file.exists() else None), "utf-8")
    assert done >= 2


def test_there_are_four_recipes() -> None:
    assert list(RECIPES) == [
        "How to add an algorithm",
        "How to add an algorithm with its own losses (offline)",
        "How to add a task",
        "How to add a reference score",
    ]


def test_an_algorithm_with_its_own_losses_touches_four_files_besides_its_test() -> None:
    recipe = RECIPES["How to add an algorithm with its own losses (offline)"]
    files = {block.path for block in blocks(recipe) if block.path}
    assert sorted(files - {"tests/algorithms/test_edac.py"}) == [
        "rlbench/algorithms/edac.py",
        "rlbench/assembly/continuous.py",
        "rlbench/config/offline.py",
        "rlbench/suites/offline.py",
    ]


def test_an_algorithm_takes_as_many_lines_and_files_as_the_recipe_says_and_fewer_than_sixty() -> None:
    recipe = RECIPES["How to add an algorithm"]
    line_count, files = 0, []
    for block in blocks(recipe):
        if block.language == "console":
            continue
        lines = block.text.splitlines()
        new_lines = [line[1:] for line in lines if line[:1] == "+"] if block.language == "diff" else lines
        line_count += sum(bool(line.strip()) for line in new_lines)
        files.append(block.path)
    assert f"It takes {line_count} lines in seven files" in recipe
    assert line_count < 60
    assert set(files) == set(re.findall(r"^\| .+? \| `(.+?)` \|", recipe, re.MULTILINE))
    assert len(set(files)) == 7


def test_ambiguous_or_missing_edit_position_is_refused() -> None:
    block = Block("diff", " a\n-b\n+c\n", "In", "x.py")
    assert edited(block, "a\nb\n") == "a\nc\n"
    for text in ("a\nc\n", "a\nb\na\nb\n"):
        with pytest.raises(AssertionError, match="places read"):
            edited(block, text)
