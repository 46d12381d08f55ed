"""What can be measured, and whether all of it can be asked for."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import CONTESTS, PARTED, SCRIPTS
from benchmarks.cases import ASIDE, UNITS, cases
from benchmarks.children import ROOT
from benchmarks.judging import WAYS
from benchmarks.measure import WORKLOADS
from benchmarks.ours import settings
from rlbench.config.online import QLearning


def test_every_workload_has_a_unit_and_somebody_who_measures_it():
    assert set(WORKLOADS) == set(UNITS)
    assert {*CONTESTS, *PARTED} <= set(UNITS)


def test_every_script_of_a_peer_exists_and_belongs_to_a_contest():
    for (workload, peer), script in SCRIPTS.items():
        assert peer in CONTESTS[workload]
        assert (ROOT / "benchmarks/peers" / script).is_file()


def test_what_is_judged_beside_is_long_enough_to_overlap_and_what_it_says_has_units():
    assert all(case.steps >= 3 for case in cases("offline-evaluation", 1, 10).values())
    for way in WAYS:
        assert {ASIDE[f"{way}, more"], ASIDE[f"{way}, more own CPU"]} == {"%"}
        assert ASIDE[f"{way}, own CPU"] == "CPU s"


@pytest.mark.parametrize("workload", ["value-update", "value-pong"])
def test_the_family_is_what_learns_values_and_all_of_it_has_settings(workload):
    found = cases(workload, 1, 1_000)
    assert {case.algorithm for case in found.values()} == {"dqn", "c51", "qrdqn", "iqn", "fqf", "rainbow"}
    for case in found.values():
        algo = settings(case).algo
        assert isinstance(algo, QLearning)
        assert (algo.batch, algo.curiosity) == (case.batch, None)
