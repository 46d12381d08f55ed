"""Recorded games: the played frames, unclipped rewards and whole games, equal for equal recipes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench import checkpoint, generate, suites
from rlbench.assembly.discrete import q_learning_parts
from rlbench.assembly.environments import describe, environments
from rlbench.assembly.restore import fingerprint, record_games
from rlbench.buffers.ring import ArraySpec, RingBuffer
from rlbench.collectors.evaluate import Evaluation
from rlbench.collectors.explore import Actor, EpsilonGreedy, NoExploration
from rlbench.collectors.recording import ShardRecorder
from rlbench.datasets import recording_reader, recording_writer
from rlbench.datasets.episodes import Dataset
from rlbench.datasets.recipes import RecordingRecipe, user_recipe
from rlbench.datasets.recording_writer import RecordingWriter
from rlbench.datasets.summary import EXPERT, dataset_return
from rlbench.envs.base import VectorEnv
from rlbench.errors import RefusedFile, UsageError
from rlbench.generate import EpisodeRecorder, stored_run
from rlbench.ops.state_dict import module_state
from rlbench.records.types import Outcome
from tests.forging import locked, with_policy
from tests.rings import ring_of

STEPS = 205


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return with_policy(suites.spec("toy", "qrdqn", "Catch"), tmp_path / "results")


def recipe(run: Path, **changes: object) -> RecordingRecipe:
    digest = fingerprint(stored_run(run, "best")[1])
    metadata = {"name": "rlb-x", "task": "Catch", "policy": "p", "sha256": digest, "steps": STEPS, "lanes": 2}
    return RecordingRecipe.model_validate({**metadata, "epsilon": 0.2, **changes})


def games_of(run: Path, folder: Path, num_envs: int) -> Evaluation:
    recorder = ShardRecorder(RecordingWriter(folder), num_envs=num_envs, steps=num_envs)
    return record_games(*stored_run(run, "best"), epsilon=0.0, seed=0, recorder=recorder)


def play(actor: Actor, buffer: RingBuffer, envs: VectorEnv, recorder: ShardRecorder) -> None:
    n = envs.info.num_envs
    list(
        Evaluation(
            actor=actor,
            buffer=buffer,
            explorer=NoExploration(),
            envs=envs,
            seeds=range(n),
            episodes=n,
            recorder=recorder,
        )
    )
    recorder.writer.flush()


def record_play(run: Path, folder: Path, **changes: object) -> tuple[Dataset, dict[str, str | float]]:
    episode_recorder = EpisodeRecorder(recipe(run, **changes), run, "best", folder)
    counts = list(episode_recorder)
    assert counts == sorted(counts) and counts[-1] == episode_recorder.recipe.steps
    metadata = episode_recorder.finish()
    return recording_reader.read_recording(folder), metadata


def test_every_env_records_its_share_of_whole_games(run: Path, tmp_path: Path) -> None:
    rows, metadata = record_play(run, tmp_path / "rlb-x.frames")
    assert (~rows.final).sum() == STEPS
    ends = np.flatnonzero(rows.terminated | rows.truncated)
    np.testing.assert_array_equal(ends + 1, np.flatnonzero(rows.final))
    live = np.cumsum(~rows.final)
    cuts = np.flatnonzero(rows.truncated)
    assert metadata["episodes_cut"] == len(cuts) and all(live[cut] in {103, 205} for cut in cuts)
    totals = np.add.reduceat(rows.reward, [0, *(ends[:-1] + 2)])[~rows.truncated[ends]]
    assert (metadata["episodes"], metadata["return_mean"]) == (len(totals), pytest.approx(totals.mean()))
    assert set(totals) <= {-1.0, 1.0} and metadata["smoke"] == "false"
    assert RecordingRecipe.model_validate_json(str(metadata["recipe"])) == recipe(run)


def test_replayed_actions_give_equal_frames(run: Path, tmp_path: Path) -> None:
    rows, _ = record_play(run, tmp_path / "rlb-x.frames")
    again = games_of(run, tmp_path / "again.frames", 2).envs
    obs_now, at, waiting = (
        again.reset(),
        [0, int(np.flatnonzero(np.cumsum(rows.final == 0) == 103)[0]) + 2],
        [False] * 2,
    )
    for _ in range(100):
        for env_index in range(2):
            if not waiting[env_index]:
                np.testing.assert_array_equal(rows.obs[at[env_index]], obs_now[env_index])
        again.send(np.array([rows.action[place] for place in at]))
        answer = again.recv()
        obs_now = answer.obs
        for env_index in range(2):
            if waiting[env_index]:
                waiting[env_index] = False
                continue
            assert (
                rows.reward[at[env_index]] == answer.score[env_index]
                and rows.terminated[at[env_index]] == answer.terminated[env_index]
            )
            at[env_index] += 1
            if answer.game_over[env_index]:
                np.testing.assert_array_equal(rows.obs[at[env_index]], obs_now[env_index])
                at[env_index] += 1
                waiting[env_index] = True
    again.close()


def test_epsilon_is_the_share_of_random_actions(run: Path, tmp_path: Path) -> None:
    actor = games_of(run, tmp_path / "again.frames", 1).actor
    for epsilon, low, high in ((0.0, 0.0, 0.0), (0.9, 0.45, 0.75), (0.3, 0.1, 0.3)):  # two thirds of ε
        rows, _ = record_play(run, tmp_path / f"{epsilon}.frames", epsilon=epsilon)
        live = ~rows.final
        preferred = actor.act(torch.from_numpy(rows.obs[live][:, None]), "eval").numpy()
        assert low <= (rows.action[live] != preferred).mean() <= high


def test_equal_recipes_give_equal_bytes(run: Path, tmp_path: Path) -> None:
    places = [tmp_path / f"{name}.frames" for name in "abc"]
    for place, seed in zip(places, (0, 0, 1), strict=True):
        record_play(run, place, seed=seed)
    one, same, other = ({path.name: path.read_bytes() for path in place.iterdir()} for place in places)
    assert one == same and one["play.00000.segment"] != other["play.00000.segment"]


class Random:
    """Prefers whatever a generator says."""

    def __init__(self, actions: int) -> None:
        self.pick = EpsilonGreedy(actions=actions, generator=torch.Generator().manual_seed(1), epsilon=1.0)

    def act(self, obs: Tensor, role: str) -> Tensor:
        return self.pick(torch.zeros(len(obs), dtype=torch.int64))


class Nothing:
    """Stacks nothing."""

    def add_observations(self, obs: np.ndarray) -> Tensor:
        return torch.from_numpy(obs)

    def add_transitions(self, *_: object) -> None:
        pass


class Watching(Random):
    """Keeps what it was shown."""

    def __init__(self, actions: int) -> None:
        super().__init__(actions)
        self.observations: list[Tensor] = []

    def act(self, obs: Tensor, role: str) -> Tensor:
        assert role == "eval"  # noise in the network is for learning
        self.observations.append(obs.clone())
        return super().act(obs, role)


def test_frame_stack_contains_no_frame_of_the_previous_game(tmp_path: Path) -> None:
    spec = suites.spec("toy", "dqn", "Catch")
    envs, actor = environments(spec.task, seeds=(1, 2), training=False), Watching(3)
    ring = ring_of(2, 10, stack=3, obs=ArraySpec((10, 5), torch.uint8))
    writer = RecordingWriter(tmp_path / "x.frames")
    play(actor, ring, envs, ShardRecorder(writer, num_envs=2, steps=80))
    rows = recording_reader.read_recording(tmp_path / "x.frames")
    assert rows.terminated.sum() > 4
    frames_by_env = [[obs_now[env_index].numpy().tobytes() for obs_now in actor.observations] for env_index in range(2)]
    began = env_index = 0
    for row, final in enumerate(rows.final):
        if not final:
            stack = rows.obs[[max(row - back, began) for back in (2, 1, 0)]].tobytes()
            while env_index < 2 and stack not in frames_by_env[env_index]:
                env_index += 1
            assert env_index < 2, row
            del frames_by_env[env_index][: frames_by_env[env_index].index(stack) + 1]
        else:
            began = row + 1


def test_lost_lives_end_no_game_and_points_are_not_clipped(tmp_path: Path) -> None:
    spec = suites.spec("atari", "dqn", "MsPacmanNoFrameskip-v4")
    envs = environments(spec.task, seeds=(1,), training=False)
    writer = RecordingWriter(tmp_path / "x.frames", rows=300)
    tracks = ShardRecorder(writer, num_envs=1, steps=700)
    play(Random(9), Nothing(), envs, tracks)
    recording_writer.finish(tmp_path / "x.frames", writer.digests, {})
    rows = recording_reader.read_recording(tmp_path / "x.frames")
    assert rows.obs.shape[1:] == (84, 84) and rows.obs.dtype == np.uint8
    assert rows.reward.max() >= 10 and set(np.unique(rows.reward % 10)) == {0.0}
    assert 1 <= rows.terminated.sum() <= 2  # three lives each: six losses and more
    assert (
        tracks.returns[0] and tracks.returns[0][0] == rows.reward[: int(np.flatnonzero(rows.terminated)[0]) + 1].sum()
    )


def test_recording_policy_acts_as_in_evaluation(tmp_path: Path) -> None:
    spec = suites.spec("atari", "dqn", "MsPacmanNoFrameskip-v4")
    learner = q_learning_parts(spec, spec.algo, describe(spec), torch.device("cpu")).learner
    policy_state = {"policy": module_state(learner.policy_net()), "epoch": 0}
    recorder = ShardRecorder(RecordingWriter(tmp_path / "x.frames"), num_envs=1, steps=1)
    rules = record_games(spec, policy_state, epsilon=0.2, seed=0, recorder=recorder).envs._tracker
    assert spec.task.episodic_life and not rules._episodic_life and not rules._clip


def test_weights_of_another_network_are_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, policy_state = stored_run(run, "best")
    other = {**policy_state, "policy": module_state(torch.nn.Linear(2, 2))}
    recorder = ShardRecorder(RecordingWriter(tmp_path / "x.frames"), num_envs=1, steps=1)
    with pytest.raises(RefusedFile, match="another network"):
        record_games(spec, other, epsilon=0.0, seed=0, recorder=recorder)
    before = record_play(run, tmp_path / "rlb-x.frames")[1]
    monkeypatch.setattr(generate, "stored_run", lambda *_: (spec, other))
    with pytest.raises(RefusedFile, match="another network"):
        list(EpisodeRecorder(recipe(run), run, "best", tmp_path / "rlb-x.frames"))
    monkeypatch.undo()
    monkeypatch.setattr("rlbench.envs.toy.Catch.reset", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(EpisodeRecorder(recipe(run), run, "best", tmp_path / "rlb-x.frames"))
    assert recording_reader.metadata(tmp_path / "rlb-x.frames") == before, "the set there before is not removed"


def test_a_set_has_the_files_of_its_first_steps_and_none_of_the_set_before(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, recording_writer.BYTES):
        monkeypatch.setattr(recording_writer, "BYTES", size)
        rows, _ = record_play(run, tmp_path / "rlb-x.frames")
        assert (~rows.final).sum() == STEPS
        assert (len(list(tmp_path.glob("rlb-x.frames/*.segment"))) > STEPS) == (size == 1)


def test_an_invalid_recipe_is_refused(run: Path) -> None:
    with pytest.raises(UsageError, match=r"call it rlb-pong"), user_recipe("pong"):
        pass
    with pytest.raises(UsageError, match="fewer steps than the 2 environments"), user_recipe("rlb-x"):
        recipe(run, steps=1)
    with pytest.raises(UsageError, match="epsilon"), user_recipe("rlb-x"):
        recipe(run, epsilon=1.5)


def test_metadata_have_the_experts_evaluation(run: Path, tmp_path: Path) -> None:
    assert EXPERT not in record_play(run, tmp_path / "running.frames")[1]  # nobody knows yet
    store = locked(suites.spec("toy", "qrdqn", "Catch"), tmp_path / "results")
    assert store.folder == run
    checkpoint.save(run / "checkpoint" / "last", checkpoint.load(run / "checkpoint" / "best"))
    numbers = {"env_steps": 1, "updates": 1, "epochs": 0, "seconds": 1.0, "best_epoch": 0, "weights": None}
    store.finish(Outcome(status="done", reason="budget", final=-0.5, best=0.75, **numbers))
    store.release()
    for which, due in (("best", 0.75), ("last", -0.5)):
        folder = tmp_path / f"{which}.frames"
        episode_recorder = EpisodeRecorder(recipe(run), run, which, folder)
        list(episode_recorder)
        assert episode_recorder.finish()[EXPERT] == due and dataset_return(folder).expert == due
