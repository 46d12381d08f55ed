"""Options: the parsing of seeds and steps, and those that no other test types, each through the command line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.cli import sweep
from rlbench.cli.app import main
from rlbench.cli.options import parse_seeds, seeds_text
from rlbench.cli.sweep import SweepOptions
from rlbench.config.names import parse_count
from rlbench.datasets import minari
from rlbench.errors import UsageError
from tests.commands import json_of, stderr_of
from tests.conftest import Capture, Patch, RecordSeeds


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        *(("0", (0,)), ("0-9", tuple(range(10))), ("0,3,7", (0, 3, 7)), ("0-2,7", (0, 1, 2, 7))),
        *(("7,0-2", (7, 0, 1, 2)), ("5-5", (5,)), (" 1 , 2 ", (1, 2)), ("4294967295", (2**32 - 1,))),
    ],
)
def test_seeds_are_read_in_the_order_they_are_written(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "is not a seed") for text in ("", ",", "0,", "-1", "1.5", "1e3", "0-", "0..3", "0-2-4", "x", "٣")),
        ("9-0", "runs backwards; write 0-9"),
        ("1,1", "named twice"),
        ("0-3,2", "named twice"),
        ("4294967296", "too large"),
        ("0-4294967295", "more than 10000 seeds"),
    ],
)
def test_invalid_seeds_are_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_seeds(text)
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"--seeds {text!r}: ")
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20, unique=True))
def test_any_list_of_distinct_seeds_is_parsed(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)
    assert parse_seeds(seeds_text(sorted(seeds))) == tuple(sorted(seeds))


@pytest.mark.parametrize(("seeds", "text"), [((0,), "0"), ((0, 1), "0-1"), ((0, 1, 2, 7, 9, 10), "0-2,7,9-10")])
def test_seeds_are_written_as_ranges(seeds: tuple[int, ...], text: str) -> None:
    assert seeds_text(seeds) == text


@given(st.text(max_size=8))
def test_any_text_is_parsed_or_refused_in_one_line(text: str) -> None:
    try:
        assert parse_seeds(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is right


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("1", 1), ("100000", 100_000), ("100_000", 100_000), ("100,000", 100_000), ("1e5", 100_000)),
        *(("2.5e3", 2_500), ("100k", 100_000), ("1.5k", 1_500), ("1M", 1_000_000), ("0.3M", 300_000)),
    ],
)
def test_counts_are_parsed(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    [
        *("", "0", "-5", "1.5", "1m", "k", "nan", "inf", "1e99", "1kM", "0x10", "many"),
        *("1,5M", "0,5M", "2,5e3", "1,5", "12,34,567", "1,500k", "1000,000", "100.000", "+100.000", "1.500.000"),
    ],
)
def test_invalid_counts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no whole number of steps; write it as"):
        parse_count(text)


@pytest.fixture
def elsewhere(record_seeds: RecordSeeds) -> None:
    """Runs of two algorithms, in a folder that is not the usual one."""
    for algo in ("dqn", "c51"):
        record_seeds(*[[-0.6, 0.875]] * 2, suite="toy", task="Catch", algo=algo)
    Path("results").rename("mine")


@pytest.mark.usefixtures("elsewhere")
def test_plot_uses_the_given_folder_and_algorithms() -> None:
    for name, words in {"both": [], "one": ["--algo", "dq*"], "none": ["--results", "nowhere"]}.items():
        line = ["plot", "toy", "--task", "Catch", "--output", f"{name}.svg", "--results", "mine", *words]
        assert main(line) == (2 if name == "none" else 0)
    both, one = (Path(f"{name}.svg").read_text(encoding="utf-8") for name in ("both", "one"))
    assert "c51" in both and "dqn" in both
    assert "c51" not in one and "dqn" in one


@pytest.mark.usefixtures("elsewhere")
def test_report_uses_the_given_folder() -> None:
    assert main(["report", "toy", "--output", "full.html", "--results", "mine"]) == 0
    Path("results").mkdir()
    assert main(["report", "toy", "--output", "empty.html"]) == 0
    full, empty = (Path(f"{name}.html").read_text(encoding="utf-8") for name in ("full", "empty"))
    assert "0.88" in full and "0.88" not in empty


def test_minaris_server_is_contacted_only_with_remote(monkeypatch: Patch) -> None:
    monkeypatch.setattr(minari, "remote_names", lambda: ["mujoco/hopper/strange-v0"])
    for words, there in (((), False), (("--remote",), True)):
        names = {row["name"]: row["kind"] for row in json_of(["data", "list", "--json", *words])["datasets"]}
        assert names.get("mujoco/hopper/strange-v0") == ("minari" if there else None)


def test_settings_of_the_process_reach_the_run_from_options_and_environment(monkeypatch: Patch) -> None:
    settings = []

    def take(_specs: object, options: SweepOptions) -> tuple[list[object], None]:
        runtime = options.runtime
        settings.append((runtime.env_timeout, runtime.update_engine, runtime.eval_workers))
        return [], None

    monkeypatch.setattr(sweep, "sweep", take)
    line = ["run", "toy", "dqn", "--task", "Catch"]
    assert main(line) == 0
    assert main([*line, "--env-timeout", "2.5", "--update-engine", "cuda-graph", "--eval-workers", "2"]) == 0
    monkeypatch.setenv("RLBENCH_ENV_TIMEOUT", "1e400")  # without end
    monkeypatch.setenv("RLBENCH_UPDATE_ENGINE", "eager")
    monkeypatch.setenv("RLBENCH_EVAL_WORKERS", "0")
    assert main(line) == 0
    assert settings == [(600.0, "auto", None), (2.5, "cuda-graph", 2), (float("inf"), "eager", 0)]
    assert "0.1" in stderr_of([*line, "--env-timeout", "0"])
    assert "cuda-graph" in stderr_of([*line, "--update-engine", "quick"])


def test_doctor_checks_the_disk_of_the_given_folder(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for words in (["--results", "mine"], ["--results", "mine/not/yet"]):
        main(["doctor", "toy", "--json", *words])
        rows = {row["what"]: row["detail"] for row in json.loads(capsys.readouterr().out)["findings"]}
        assert f"at {tmp_path / 'mine'}" in rows["disk"]
