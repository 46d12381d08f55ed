"""The command line's help: every command has examples, and the commands in help and README are valid."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import typer

from rlbench import suites
from rlbench.cli.app import app
from rlbench.cli.help_texts import EXAMPLES, examples
from rlbench.cli.resolve import settings_from_environment
from rlbench.datasets import catalogue, recipes
from rlbench.errors import RlbenchError
from tests.laws.option_tests import command_words
from tests.laws.source import ROOT

PERFORMED: Final = ROOT / "docs/extending.md"  # tests/test_guide.py runs its commands
PAGES: Final = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {PERFORMED})]
README: Final = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
LINES: Final = [(verb, shlex.split(line.replace("\\\n", " "))) for verb, pairs in EXAMPLES.items() for _, line in pairs]
COMMAND: Final = re.compile(r"^(?:\$ )?(?:scripts/|\.venv/bin/)?rlbench (.+)$", re.MULTILINE)
NARROW: Final = 80
ANY: Final = re.compile(r"RUN|FILE|NAME|HEAD|DIR|…|\$|<")  # a placeholder


def commands() -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """Every verb with its command."""
    for name, command in getattr(typer.main.get_command(app), "commands", {}).items():
        for inner, subcommand in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", subcommand
        yield name, command


def help_page(command: typer.core.TyperCommand, verb: str) -> str:
    """Its help page, in a terminal of 80 columns."""
    context = command.make_context(f"rlbench {verb}", ["--help"], resilient_parsing=True, max_content_width=NARROW)
    return command.get_help(context)


VERBS: Final = dict(commands())
FIRST: Final = {verb.split()[0] for verb in VERBS}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_two_to_four_unwrapped_examples(verb: str) -> None:
    lines = [line for _, line in EXAMPLES[verb]]
    assert 2 <= len(lines) <= 4
    assert sum(line.startswith(f"rlbench {verb}") for line in lines) >= (1 if verb == "data" else 2)
    page = help_page(VERBS[verb], verb)
    for _, line in EXAMPLES[verb]:
        assert f"    {line.split(chr(10))[0]}" in page.split("\n"), line
    assert max(map(len, page.split("\n"))) <= NARROW
    assert VERBS[verb].epilog == examples(verb)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verbs_summary_fits_the_list(verb: str) -> None:
    words = (VERBS[verb].help or "").split("\n\n")[0]
    assert re.fullmatch(r"[A-Z][^.]+\.", words.replace("\n", " ")), words
    assert "..." not in VERBS[verb].get_short_help_str(NARROW - 2 - 6 - len("baseline"))


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_has_a_sentence_and_a_default(verb: str) -> None:
    for option in VERBS[verb].params:
        text = str(getattr(option, "help", "") or "")
        if getattr(option, "hidden", False):
            continue
        assert len(text.split()) > 2 and re.search(r"(\.|rlbench [a-z ]+)$", text), (option.name, text)
        has_default = option.required or getattr(option, "is_flag", False) or option.default is not None
        assert has_default or re.search(r"default: |be repeated\.|Default: ", text), (option.name, text)


def test_examples_are_of_verbs_that_exist() -> None:
    assert set(EXAMPLES) == {"", *VERBS}


def parsed(words: list[str]) -> dict[str, object]:
    """The values of a command's parameters; raises the error that a user would see."""
    command, *rest = words
    verb = f"{command} {rest.pop(0)}" if hasattr(VERBS[command], "commands") else command
    with VERBS[verb].make_context(verb, rest) as context:
        return dict(context.params)


def _listed(value: object) -> list[str]:
    """A list of the values of an option that may be absent or repeated."""
    return (
        [value] if isinstance(value, str) else [str(part) for part in value] if isinstance(value, list | tuple) else []
    )


def unknown(values: dict[str, object]) -> Iterator[str]:
    """Names of an example that rlbench does not know."""
    suite, algo, task = (values.get(name) for name in ("suite", "algo", "task"))
    of_suite, of_algo, globs = _listed(suite), _listed(algo), _listed(task)
    selection = suites.names() if of_suite in (["all"], []) else of_suite
    yield from (name for name in selection if name not in suites.names())
    algorithms = {name for s in selection if s in suites.names() for name in suites.algorithms(s)}
    yield from (name for name in of_algo if name not in algorithms and "*" not in name)
    for glob in globs:
        if not any(_matches(name, glob) for name in selection if name in suites.names()):
            yield glob


def _matches(suite: str, glob: str) -> bool:
    if recipes.PREFIX in glob:
        return glob in recipes.RECIPES
    try:
        return bool(suites.matching(suite, (glob,)))
    except RlbenchError:
        return False


def unknown_sets(values: dict[str, object]) -> Iterator[str]:
    """Names of data sets that are neither recipes, nor D4RL's, nor of Minari's form."""
    for name in (str(values.get("name", "")), *_listed(values.get("names"))):
        is_known = name in recipes.RECIPES or name in catalogue.d4rl() or catalogue.MINARI_NAME.fullmatch(name)
        if name not in {"", "None"} and not is_known:
            yield name


@pytest.mark.parametrize(("verb", "line"), [(verb, line) for verb, line in LINES if "--help" not in line])
def test_every_example_is_valid_and_its_names_exist(verb: str, line: list[str]) -> None:
    assert line[0] == "rlbench"
    values = parsed(line[1:])
    assert not list(unknown(values)), line
    if line[1] == "data" and line[2] in {"show", "verify", "download"}:
        assert not list(unknown_sets(values)), line
    if line[1:3] == ["data", "generate"] and "policy" not in values:
        assert values["task"] in recipes.RECIPES


def fenced() -> list[str]:
    """The command lines of the blocks of README and the pages, without their comments."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = (line for block in blocks for line in COMMAND.findall(block.replace("\\\n", " ")))
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("line", fenced())
def test_every_command_line_in_readme_can_be_typed(line: str) -> None:
    words = shlex.split(line, comments=True)
    if not set(words) & {"--help", "--version", "--install-completion", "--show-completion"}:
        values = parsed(words)
        assert not [name for name in unknown(values) if not ANY.search(name)], line


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`(?:scripts/)?rlbench ([a-z][^`]*)`", README))))
def test_every_verb_and_option_that_readme_mentions_exists(line: str) -> None:
    first, *rest = line.replace("|", " ").split()
    verb = f"{first} {rest[0]}" if rest and f"{first} {rest[0]}" in VERBS else first
    options = {name for option in VERBS[verb].params for name in option.opts} | {"--help"}
    assert {word.split("=")[0] for word in rest if word.startswith("--")} <= options


def test_readme_has_command_lines() -> None:
    assert len(fenced()) > 8


def untested_options(tests: list[frozenset[str]]) -> list[str]:
    """Options that no test has in a command line of their verb."""
    missing = []
    for verb, command in VERBS.items():
        lines = [words for words in tests if set(verb.split()) <= words]
        options = (name for option in command.params if not getattr(option, "hidden", False) for name in option.opts)
        missing += [
            f"{verb} {name}" for name in options if name.startswith("--") and not any(name in words for words in lines)
        ]
    return missing


def test_every_option_of_every_verb_is_tested() -> None:
    assert untested_options(command_words(FIRST)) == []


def test_untested_option_is_noticed(tmp_path: Path) -> None:
    lines = (
        'LINE = ["status", "--json", "--suite", "--state"]',
        "def test_it(watched):\n    main(LINE)",
        'def watched():\n    main(["--watch"])\n    main("run toy --results x")',
        'def test_other():\n    "status --results"\n    main("status")',
    )
    (tmp_path / "test_some.py").write_text("\n\n".join(lines), encoding="utf-8")
    assert [name for name in untested_options(command_words(FIRST, tmp_path)) if name.startswith("status")] == [
        "status --results"
    ]


def test_every_option_variable_is_known_to_the_settings_reader() -> None:
    variables = {getattr(option, "envvar", None) for command in VERBS.values() for option in command.params} - {None}
    assert {"RLBENCH_RESULTS", "RLBENCH_EVAL_WORKERS"} <= variables
    for name in sorted(map(str, variables)):
        assert settings_from_environment({name: "1"}) == [], name
