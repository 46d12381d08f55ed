"""The output of ``show --documented``."""

import json
from pathlib import Path

import pytest

from rlbench.report.provenance import cells_of, provenance_document, provenance_text
from rlbench.report.verdict import MIN_SEEDS, MIN_SEEDS_RULE
from tests.commands import json_of, stdout_of


def test_the_whole_provenance_of_a_cell_is_printed() -> None:
    text = provenance_text(cells_of("mujoco", "ddpg", "Ant-v3"))
    for words in (
        "990.4 ± 4.3",
        "max-of-mean: max average return within 1M steps",
        "seeds      10",
        "Ant-v3",
        "10 episodes, of the deterministic policy, raw returns\n",
        "\n               examples/mujoco/mujoco_ddpg.py@e605bdea\n",
        "examples/mujoco/README.md@f2402056b03a",
        "learning made it worse\n             examples/mujoco/benchmark/Ant-v3/result.json@63f0e9a0fb5b\n",
        "random policy -59.3",
        "margin     104.97",
        "Spinning Up (PyTorch)",
    ):
        assert words in text, words
    assert text.count("  primary") == 1


def test_several_data_sets_of_a_task_are_several_cells() -> None:
    assert [cell.key.dataset for cell in cells_of("offline", "cql", "BreakoutNoFrameskip-v4")] == [
        "qrdqn-1M",
        "qrdqn-100k",
        "qrdqn-10k",
    ]


def test_every_documented_number_of_a_cell_is_in_the_json() -> None:
    content = provenance_document(cells_of("offline", "iql", "halfcheetah-medium-v2"))
    (cell,) = json.loads(json.dumps(content))["cells"]
    assert cell["primary"]["system"] == "CORL"
    assert len(cell["others"]) == 9
    assert all(other["source"] and other["protocol_source"] for other in cell["others"])
    (entry,) = json.loads(json.dumps(provenance_document(cells_of("mujoco", "ddpg", "Humanoid-v4"))))["cells"]
    assert entry["note_sources"] == ["examples/mujoco/benchmark/Humanoid-v3/result.json@63f0e9a0fb5b"]


def test_show_documented_prints_the_provenance() -> None:
    assert "score      20\n" in stdout_of(["show", "--documented", "atari", "dqn", "PongNoFrameskip-v4"])
    document = json_of(["show", "--documented", "goals", "ddpg+her", "FetchReach-v3", "--json"])
    assert document["cells"][0]["primary"]["n"] == 16


@pytest.mark.parametrize(
    ("names", "lines"),
    [
        (
            ("atari", "dqn", "PongNoFrameskip-v4"),
            [
                "  margin     4.07 from the reference score, of a single run, is neither BELOW nor ABOVE",
                "  resolution 1: seeds are taken to lie apart by as much at least",
                "  threshold  20, where both sides stop: the verdict is about reaching it, and how soon",
                "  seeds      fewer than three seeds are INCONCLUSIVE",
            ],
        ),
        (
            ("mujoco", "ppo", "Swimmer-v4"),
            [
                "  margin     99.1 reaches the random policy, so nothing is called reproduced",
                "  seeds      fewer than three seeds are INCONCLUSIVE",
            ],
        ),
        (("goals", "ddpg", "FetchReach-v3"), []),  # not compared: nothing is used
    ],
)
def test_provenance_prints_exactly_the_numbers_of_the_verdict(names: tuple[str, str, str], lines: list[str]) -> None:
    prefixes = ("  margin", "  resolution", "  threshold", "  seeds")
    cells = cells_of(*names)
    assert [line for line in provenance_text(cells).splitlines() if line.startswith(prefixes)] == lines
    assert [cell["margin"] is None for cell in json.loads(json.dumps(provenance_document(cells)))["cells"]] == [
        not lines
    ]


def test_rule_of_the_fewest_seeds_has_the_same_words_everywhere() -> None:
    root = Path(__file__).parents[2]
    assert MIN_SEEDS == 3
    for place in ("README.md", "results/tables/README.md"):
        assert MIN_SEEDS_RULE in " ".join((root / place).read_text(encoding="utf-8").split()), place
