"""Estimates of memory."""

import pytest

from rlbench import suites
from rlbench.config.footprint import Footprint, eval_worker_count, footprint, size_text
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Spec


def atari(*settings: str) -> Spec:
    return apply_settings(suites.spec("atari", "dqn", "PongNoFrameskip-v4"), [parse(text) for text in settings])


def test_a_slot_of_the_replay_is_a_frame_and_nineteen_bytes() -> None:
    assert footprint(atari()).replay == 100_000 * (84 * 84 + 8 + 4 + 3 + 4)


@pytest.mark.parametrize(("capacity", "most"), [(100_000, 0.8e9), (1_000_000, 7.5e9)])
def test_the_promised_sizes_of_the_replay_are_kept(capacity: int, most: float) -> None:
    assert footprint(atari(f"algo.replay.capacity={capacity}")).replay <= most


def test_networks_are_parameters_in_five_copies_and_the_batches_on_their_way() -> None:
    size = footprint(apply_settings(suites.spec("toy", "dqn", "Catch"), [parse("algo.batch=10")])).networks
    parameters = (50 * 64 + 64) + (64 * 64 + 64) + (64 * 18 + 18)
    assert size == 4 * (5 * parameters + 3 * 10 * (50 + 64 + 64 + 18))


def test_the_nature_network_is_counted_layer_by_layer() -> None:
    size = footprint(atari("algo.batch=1")).networks
    convolutions = (8 * 8 * 4 * 32 + 32) + (4 * 4 * 32 * 64 + 64) + (3 * 3 * 64 * 64 + 64)
    dense = (3136 * 512 + 512) + (512 * 18 + 18)
    rows = 4 * 84 * 84 + 32 * 20 * 20 + 64 * 9 * 9 + 64 * 7 * 7 + 512 + 18
    assert size == 4 * (5 * (convolutions + dense) + 3 * rows)


@pytest.mark.parametrize("algorithm", ["dqn", "sac", "ppo", "reinforce"])
def test_a_torso_without_layers_is_counted(algorithm: str) -> None:
    assert (
        footprint(apply_settings(suites.spec("toy", algorithm, "Catch"), [parse("algo.torso.widths=[]")])).networks > 0
    )


def test_every_field_that_takes_memory_moves_the_total() -> None:
    usual = footprint(atari()).total
    for setting in (
        "algo.replay.capacity=200000",
        "algo.batch=640",
        "task.envs=50",
        "algo.hidden=1024",
        "task.size=100",
    ):
        assert footprint(atari(setting)).total > usual, setting


def test_the_candidates_of_an_acting_bcq_are_counted() -> None:
    """20,000 candidates in each of ten envs, at a layer of 512 and its ReLU; measured: 829 MB."""
    bcq = suites.spec("offline", "bcq", "halfcheetah-medium-v2")
    few, many = (parse(f"algo.method.eval_action_samples={count}") for count in (100, 20_000))
    assert footprint(apply_settings(bcq, [few])).networks == footprint(bcq).networks
    assert 800e6 < footprint(apply_settings(bcq, [many])).networks < 850e6


def test_the_line_names_the_total_and_its_parts() -> None:
    estimate = Footprint(replay=707_500_000, networks=72_000_000, emulators=0, base=600_000_000)
    assert estimate.line() == "memory ≈ 1.38 GB (replay 0.71 GB, networks 72.0 MB, libraries 0.60 GB)"


@pytest.mark.parametrize(("count", "text"), [(0, "0.0 MB"), (99_999_999, "100.0 MB"), (100_000_000, "0.10 GB")])
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert size_text(count) == text


TD3BC = suites.spec("offline", "td3bc", "halfcheetah-medium-v2")


def with_settings(*texts: str) -> Spec:
    return apply_settings(TD3BC, [parse(text) for text in texts])


@pytest.mark.parametrize(
    ("spec", "requested", "cores", "threads", "workers"),
    [
        (TD3BC, None, 1, 1, 0),
        (TD3BC, None, 2, 1, 1),
        (TD3BC, None, 2, 2, 0),  # both cores learn
        (TD3BC, None, 4, 2, 2),
        (TD3BC, None, 16, 1, 8),  # a run on a GPU
        (TD3BC, 3, 1, 1, 3),  # requested
        (TD3BC, 0, 16, 1, 0),
        (with_settings("budget.steps=10_000"), None, 16, 1, 3),  # as many evaluations, the untrained policy's included
        (with_settings("protocol.stop=90"), 3, 16, 1, 0),  # it may end at any evaluation
        (TD3BC.model_copy(update={"smoke": True}), None, 16, 1, 0),  # seconds, as long as it takes to start one
        (TD3BC.model_copy(update={"smoke": True}), 1, 16, 1, 1),
        (suites.spec("mujoco", "sac", "HalfCheetah-v4"), 3, 16, 1, 0),  # evaluates in its own process
    ],
)
def test_number_of_eval_workers_of_a_run(
    spec: Spec, requested: int | None, cores: int, threads: int, workers: int
) -> None:
    assert eval_worker_count(spec, requested=requested, cores=cores, threads=threads, gpu=False) == workers


@pytest.mark.parametrize("requested", [None, 0, 1])
def test_a_policy_acts_on_the_host_whatever_the_cores_of_a_run_on_a_gpu(requested: int | None) -> None:
    """Else its rounding and random numbers would depend on idle cores, which stand in no record."""
    for spec in (TD3BC, TD3BC.model_copy(update={"smoke": True})):
        assert eval_worker_count(spec, requested=requested, cores=1, threads=1, gpu=True) == 1
    online = suites.spec("mujoco", "sac", "HalfCheetah-v4")
    for spec in (with_settings("protocol.stop=90"), online):  # always in the process of the training
        assert eval_worker_count(spec, requested=requested, cores=9, threads=1, gpu=True) == 0
