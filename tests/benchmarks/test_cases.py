"""The workloads of the benchmarks, and their command line."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import CONTESTS, PARTED, PEERS
from benchmarks.cases import ASIDE, UNITS, cases
from benchmarks.children import ROOT
from benchmarks.judging import WAYS
from benchmarks.measure import WORKLOADS
from benchmarks.ours import settings
from rlbench.config.online import QLearning


def test_every_workload_has_a_unit_and_a_measurement():
    assert set(WORKLOADS) == set(UNITS)
    assert {*CONTESTS, *PARTED} <= set(UNITS)


def test_every_script_of_a_peer_exists_and_belongs_to_a_contest():
    assert {name for names in CONTESTS.values() for name in names} == {*PEERS}
    assert all((ROOT / "benchmarks/peers" / script).is_file() for script in PEERS.values())


def test_offline_evaluation_workload_overlaps_and_has_units():
    assert all(case.steps >= 3 for case in cases("offline-evaluation", 1, 10).values())
    for way in WAYS:
        assert {ASIDE[f"{way}, more"], ASIDE[f"{way}, more own CPU"]} == {"%"}
        assert ASIDE[f"{way}, own CPU"] == "CPU s"


@pytest.mark.parametrize("workload", ["value-update", "value-pong"])
def test_value_based_workload_covers_all_q_learning_algorithms(workload):
    found = cases(workload, 1, 1_000)
    assert {case.algorithm for case in found.values()} == {"dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow"}
    for case in found.values():
        algo = settings(case).algo
        assert isinstance(algo, QLearning)
        assert (algo.batch, algo.curiosity) == (case.batch, None)
