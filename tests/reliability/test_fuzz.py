"""Fuzzed arguments, records, baselines and manifests: an answer or one line, never a traceback.

Seals are no signatures, so documents are changed and sealed again. Every body is drawn some dozen times in the suite
and a thousand times by the slow tests; the same examples in every run.
"""

import json
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import save_file

from rlbench import checkpoint, suites
from rlbench.config.canonical import fields
from rlbench.records import store
from rlbench.records.manifest import sha256_of
from rlbench.report import runs
from tests.commands import run_command
from tests.reliability import odd
from tests.reliability.odd import Fuzzed, Tree, changes, damaged, only_refusals, places, sealed, spelled, written
from tests.slow import slow_but

RUN = Path(__file__).parent / "corpus" / "schema-1" / "results" / "toy" / "dqn" / "Catch" / "dff3a282c094" / "seed=0"
BASELINE = Path(__file__).parent / "corpus" / "schema-1" / "baseline.json"
CELLS = (("toy", "dqn", "Catch"), ("mujoco", "ppo", "Hopper-v4"), ("offline", "cql", "hopper-medium-v2"))


@cache
def document(name: str) -> Tree:
    return json.loads((RUN / name).read_text())


@cache
def paths() -> list[str]:
    """Every field of some algorithms, as ``--set`` spells it, and some that are none."""
    all_paths = [path for cell in CELLS for path, _ in fields(suites.spec(*cell))]
    return [*dict.fromkeys(all_paths), "algo", "task", "", ".", "algo.", "algo.lr.x", "algo.torso", "algo.head"]


ODD_VALUES = (odd.DEEP, "1e999", "-inf", "nan", "9" * 5_000, "1_0", "none", "true", "[1,[2]]", "{}", '"', "1" * 400)
VALUE = st.one_of(st.text(max_size=10), odd.NUMBERS.map(str), st.sampled_from(ODD_VALUES))


def overridden(example: object) -> None:
    cell, settings = example
    changes = [spelled(f"{path}={value}").decode("utf-8", "surrogateescape") for path, value in settings]
    run_command(["show", *cell, *(word for change in changes for word in ("--set", change))])


def configured(example: object) -> None:
    cell, text = example
    with written("mine.toml", text) as file:
        run_command(["show", *cell, "--config", str(file)])


@st.composite
def toml(draw: st.DrawFn) -> str:
    """Lines that may be TOML, of which some name fields."""
    value = st.one_of(
        odd.NUMBERS.map(str),
        st.text(max_size=6).map(json.dumps),
        st.sampled_from(["true", "[1, 2]", "2020-01-01", "{a = 1}", odd.DEEP, "0x10", "inf", "-nan", "''"]),
    )
    field = st.tuples(st.sampled_from(paths()), value).map(lambda pair: f"{pair[0]} = {pair[1]}")
    heads = st.sampled_from(["[algo]", "[algo.lr]", "[[task]]", "lr = 1"])
    line = st.one_of(field, field, st.text(max_size=20), heads)
    return "\n".join(draw(st.lists(line, max_size=5)))


OPTIONS = ("--json", "--seeds", "--task", "--steps")
ARGUMENTS = ("toy", "dqn", "Catch", "..", "../..", "/", "*", "0-", "-1", "9" * 12, *OPTIONS)
WORDS = st.one_of(st.text(max_size=8), st.sampled_from(ARGUMENTS))
VERBS = ("run", "show", "table", "list", "status", "check", "baseline", "plan", "compare", "data")


def check_options(example: object) -> None:
    """Nothing is trained: a line that would is a dry run, and no folder of ours is looked at."""
    verb, words = example
    with tempfile.TemporaryDirectory() as place:
        more = {"run": ["--dry-run"], "data": []}.get(verb, [])
        more += [] if verb in {"show", "data", "compare"} else ["--results", place]
        if "--watch" not in words and not (verb == "data" and {"download", "generate"} & set(words)):
            safe = [w for w in words if not w.startswith(("-", "/", ".")) or w in {"--json", "-1"}]
            run_command([verb, *safe, *more])


def check_record(example: object) -> None:
    """A record one of whose files says something else; both readers and the verbs that read."""
    name, text = example
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, *RUN.parts[-5:])
        folder.mkdir(parents=True)
        for part in ("spec.json", "epochs.jsonl", "outcome.json"):
            (folder / part).write_bytes((RUN / part).read_bytes())
        (folder / name).write_bytes(text if isinstance(text, bytes) else spelled(text))
        only_refusals(lambda: store.read_record(folder))
        only_refusals(lambda: runs.read_run(folder))
        for line in ("table toy --json", "status --json", f"check toy --baseline {BASELINE} --other-machine"):
            run_command(f"{line} --results {place}")


ODD_LINES = ("\n", "{}\n", "[]\n", "null\n", "{", odd.DEEP + "\n", '{"checksum":"' + "0" * 16 + '",')


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A curve some of whose lines are changed and sealed again, swapped or torn."""
    whole = (RUN / "epochs.jsonl").read_text().splitlines(keepends=True)
    curve = list(whole)
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(whole) - 1))
        resealed_line = changes(json.loads(whole[at])).map(lambda c: sealed(c) + "\n")
        text = st.text(max_size=30).map(lambda text: text + "\n")
        curve[at] = draw(st.one_of(resealed_line, st.sampled_from(ODD_LINES), text))
    return "".join(curve)


def baselined(example: bytes | str) -> None:
    with written("baseline.json", example) as file:
        run_command(f"baseline show {file}")
        run_command(f"check toy --baseline {file} --results {RUN.parents[4]} --other-machine")


@cache
def manifest() -> Tree:
    with tempfile.TemporaryDirectory() as place:
        in_memory(Path(place))
        return json.loads(Path(place, "c", "manifest.json").read_text())


def in_memory(place: Path) -> None:
    checkpoint.save(place / "c", {"a": torch.zeros(3), "b": {"c": torch.ones(2, 2), "n": 1, "s": "x"}})


def checkpointed(example: object) -> None:
    with tempfile.TemporaryDirectory() as place:
        in_memory(Path(place))
        Path(place, "c", "manifest.json").write_bytes(spelled(str(example)))
        only_refusals(lambda: checkpoint.load(Path(place, "c")))


def sharded(example: object) -> None:
    """Other tensors than the manifest speaks of, under its checksum."""
    name, shape = example
    with tempfile.TemporaryDirectory() as place:
        in_memory(Path(place))
        (file,) = Path(place, "c").glob("*.safetensors")
        save_file({name: torch.zeros(shape)}, file)
        head = json.loads(Path(place, "c", "manifest.json").read_text())
        head["files"] = {file.name: sha256_of(file)}
        head["split"] = {"a": 5}
        Path(place, "c", "manifest.json").write_text(sealed(head))
        only_refusals(lambda: checkpoint.load(Path(place, "c")))


def resealed(tree: Callable[[], Tree]) -> st.SearchStrategy[str]:
    return st.deferred(lambda: changes(tree()).map(sealed))


CELL = st.sampled_from(CELLS)
SETTING = st.tuples(st.deferred(lambda: st.sampled_from(paths())), VALUE)
NAMES = st.sampled_from(["a@000000", "a", "", "@", "a/b@0", "b/c/d@0"])
FUZZED = {
    "overrides": Fuzzed(st.tuples(CELL, st.lists(SETTING, min_size=1, max_size=3)), overridden),
    "configs": Fuzzed(st.tuples(CELL, st.deferred(toml)), configured),
    "command lines": Fuzzed(
        st.tuples(st.sampled_from(VERBS), st.lists(WORDS, max_size=4)), check_options, few=20, many=1_000
    ),
    **{
        f"{name}s": Fuzzed(
            st.tuples(st.just(f"{name}.json"), resealed(partial(document, f"{name}.json"))), check_record, few=15
        )
        for name in ("spec", "outcome")
    },
    "lines": Fuzzed(st.tuples(st.just("epochs.jsonl"), st.deferred(lines)), check_record, few=15),
    "bytes of a record": Fuzzed(
        st.sampled_from(["spec.json", "outcome.json", "epochs.jsonl"]).flatmap(
            lambda name: st.tuples(st.just(name), damaged((RUN / name).read_bytes()))
        ),
        check_record,
        few=12,
        many=1_000,
    ),
    "baselines": Fuzzed(resealed(lambda: json.loads(BASELINE.read_text())), baselined, few=20, many=1_000),
    "bytes of a baseline": Fuzzed(st.deferred(lambda: damaged(BASELINE.read_bytes())), baselined, few=10, many=500),
    "manifests": Fuzzed(resealed(manifest), checkpointed, few=40),
    "shards": Fuzzed(st.tuples(NAMES, st.lists(st.integers(0, 6), max_size=3)), sharded, few=20, many=300),
}


@pytest.mark.parametrize("count", ["few", pytest.param("many", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", slow_but(FUZZED, 5, 6, 7, 9, 10))
def test_no_traceback_reaches_the_user(kind: str, count: str) -> None:
    FUZZED[kind].check(getattr(FUZZED[kind], count))


def test_json_path_is_resolved_at_any_depth() -> None:
    """The fuzzer itself: what it cannot reach it cannot change."""
    assert list(places({"a": [1, {"b": 2}]})) == [("a",), ("a", 0), ("a", 1), ("a", 1, "b")]
