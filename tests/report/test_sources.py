"""Claims about others' code: each names the file and commit that shows it, and says what stands there."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from rlbench.errors import RlbenchError
from rlbench.report import reference_table
from rlbench.report.reference_scores import CellKey, documented, notes, sourced_notes
from rlbench.report.reference_table import SOURCE, lines, parsed, protocol_of, sourced
from rlbench.suites import spec

FILES = ("notes.csv", "protocols.csv")
PAGE = Path(__file__).parents[2] / "results" / "tables" / "README.md"
QLEARNING = ("dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow")
GAMES = ("Pong", "Breakout", "Enduro", "Qbert", "MsPacman", "Seaquest", "SpaceInvaders")


def atari(algorithm: str, game: str) -> CellKey:
    return CellKey("atari", algorithm, f"{game}NoFrameskip-v4", "")


@pytest.mark.parametrize("name", FILES)
def test_every_claim_names_a_file_and_its_commit(name: str) -> None:
    with (reference_table.DATA / name).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) >= 15
    for row in rows:
        assert row["source"], row
        assert all(SOURCE.fullmatch(source) for source in row["source"].split()), row
    assert list(sourced(name)) == rows


@pytest.mark.parametrize(
    "source", ["", "README.md", "README.md@newest", "a b@0123456", "a.py@v0.4.9", "elsewhere:a.py@0123456"]
)
def test_a_claim_without_a_file_and_commit_is_an_error(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_table, "DATA", tmp_path)
    (tmp_path / "claims.csv").write_text(f"note,source\nfirst,a/b.py@0123456\nsecond,{source}\n", encoding="utf-8")
    with pytest.raises(RlbenchError, match=r"claims\.csv: row 3 names no file and commit"):
        sourced("claims.csv")


def test_a_claim_may_name_several_files_of_several_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_table, "DATA", tmp_path)
    several = "a/b.py@0123456 openai/gym:gym/envs/__init__.py@38a1f630dc98 rlbench:rlbench/suites/toy.py@450cc0e6930a"
    (tmp_path / "several.csv").write_text(f"note,source\nfirst,{several}\n", encoding="utf-8")
    assert sourced("several.csv") == ({"note": "first", "source": several},)


def test_every_row_of_documented_beside_here_names_its_source() -> None:
    tables = [
        part.splitlines()[2:]
        for part in PAGE.read_text(encoding="utf-8").split("\n\n")
        if part.startswith("| what | documented | here |")
    ]
    assert len(tables) == PAGE.read_text(encoding="utf-8").count("| documented | here |") == 4
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for table in tables for row in table]
    assert len(rows) >= 35
    for row in rows:
        assert len(row) == 4, row
        assert all(SOURCE.fullmatch(source) for source in re.split("` `", row[3].strip("`"))), row


@pytest.mark.parametrize(
    ("key", "words", "source"),
    [
        (atari("rainbow", "Qbert"), "s_{t+1}", "tianshou/policy/modelfree/c51.py@291be08d"),
        (atari("ppo", "Pong"), "256, 256 and 488", "tianshou/data/batch.py@662af528"),
        (CellKey("mujoco", "redq", "Ant-v4", ""), "bounded mean", "examples/mujoco/mujoco_redq_hl.py@f2402056b03a"),
        (
            CellKey("mujoco", "trpo", "Hopper-v4", ""),
            "kept the failed step",
            "tianshou/policy/modelfree/trpo.py@5057b5c8",
        ),
        (
            CellKey("offline", "crr", "PongNoFrameskip-v4", "qrdqn-1M"),
            "learns from the actor's loss",
            "tianshou/policy/imitation/discrete_crr.py@3592f454",
        ),
        (CellKey("goals", "ddpg", "FetchReach-v4", ""), "as a termination", "tianshou/env/gym_wrappers.py@d42a5fb3"),
    ],
)
def test_a_note_says_what_its_source_has(key: CellKey, words: str, source: str) -> None:
    (note,) = (note for note in sourced_notes(key) if words in note.text)
    assert source in note.source.split()


@pytest.mark.parametrize("algorithm", [*QLEARNING, "ppo", "sac"])
@pytest.mark.parametrize("game", GAMES)
def test_the_documented_limit_of_a_game_and_the_sixteen_environments_stand_beside_the_numbers(
    algorithm: str, game: str
) -> None:
    """gym/envs/__init__.py of 0.17.3 ends a game after 100,000 times 4 frames, in Space Invaders times 3."""
    key = atari(algorithm, game)
    ours = spec("atari", algorithm, key.task).task
    (primary,) = (cell.primary for cell in documented("atari") if cell.key == key)
    protocol = protocol_of(key, primary)
    limit, former = "of games of up to 400,000 frames (Space Invaders 300,000)", "in 16 environments, from whole lives"
    assert (limit in protocol.text) == (algorithm in QLEARNING)
    assert ("openai/gym:gym/envs/__init__.py@38a1f630dc98" in protocol.source.split()) == (algorithm in QLEARNING)
    assert (former in protocol.text) == (algorithm in {"dqn", "c51", "qrdqn"})
    assert (ours.envs, ours.max_frames) == (10, 108_000)  # the page's column ``here``
    page = PAGE.read_text(encoding="utf-8")
    assert "| 400,000 frames, of Space Invaders 300,000 | 108,000 frames;" in page
    assert "| 16 environments; once one of them ends a life," in page


def test_what_the_documented_code_did_not_do_is_said_of_no_cell() -> None:
    """Actions were mapped two weeks after DDPG, TD3 and SAC were run; plain CRR has no term of CQL's."""
    for suite in ("atari", "mujoco", "offline", "goals", "toy"):
        for cell in documented(suite):
            assert not [note for note in notes(cell.key) if "unmapped" in note or "adds CQL's term" in note], cell.key
    page = PAGE.read_text(encoding="utf-8")
    online = page[: page.index("\nOffline (documented: ")]
    assert "may lie beyond the bounds" in page and "may lie beyond the bounds" not in online  # TD3+BC's alone
    for words in ("as the policy said when it acted", "cut at ±10 |", "acting with noisy networks"):
        assert words not in page, words


@pytest.mark.parametrize(
    ("key", "system", "words", "source"),
    [
        (atari("dqn", "Pong"), "Tianshou", "ε 0.005", "examples/atari/atari_dqn.py@5b49192a"),
        (atari("rainbow", "Pong"), "Tianshou", "ε 0.005", "examples/atari/atari_rainbow.py@291be08d"),
        (atari("sac", "Pong"), "Tianshou", "of the most probable action", "tianshou/policy/modelfree/sac.py@9ce0a554"),
        (atari("ppo", "Pong"), "Tianshou", "of the policy that samples", "tianshou/policy/modelfree/pg.py@662af528"),
        (
            CellKey("mujoco", "a2c", "Ant-v4", ""),
            "Tianshou",
            "10 episodes, of the policy that samples",
            "examples/mujoco/mujoco_a2c.py@1730a900",
        ),
        (
            CellKey("mujoco", "redq", "Ant-v4", ""),
            "Tianshou v2.0",
            "10 episodes, of the policy that samples",
            "tianshou/highlevel/params/algorithm_params.py@f2402056b03a",
        ),
        (
            CellKey("mujoco", "td3", "Ant-v4", ""),
            "Tianshou v2.0",
            "10 episodes, of the deterministic policy",
            "examples/mujoco/mujoco_td3_hl.py@f2402056b03a",
        ),
    ],
)
def test_a_protocol_is_that_of_its_algorithm(key: CellKey, system: str, words: str, source: str) -> None:
    numbers = [parsed(line) for line in lines(key.suite)[key] if line["system"] == system]
    assert numbers
    for number in numbers:
        protocol = protocol_of(key, number)
        assert words in protocol.text
        assert source in protocol.source.split()
        assert ("ε" in protocol.text) == (key.algorithm in QLEARNING)


def test_an_old_evaluation_of_a_hundred_episodes_is_not_called_one_of_ten() -> None:
    key = CellKey("mujoco", "sac", "Ant-v4", "")
    old = [parsed(line) for line in lines("mujoco")[key] if line["source"].endswith("README.md@cd481423")]
    assert [protocol_of(key, number).text.split(",")[0] for number in old] == ["an evaluation is 100 episodes"]


def test_every_number_of_the_shown_suites_has_a_protocol() -> None:
    for suite in ("atari", "mujoco", "offline", "goals"):
        for key, rows in lines(suite).items():
            assert all(protocol_of(key, parsed(row)).source for row in rows), key
