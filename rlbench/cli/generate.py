"""``rlbench data generate``: own data sets, from recipes with names or from policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from rlbench.cli import completion
from rlbench.cli.options import ENV_TIMEOUT, Checkpoint, EnvTimeout, Import, Json, Quiet, argument, option, run_folder
from rlbench.config.names import parse_count
from rlbench.errors import DoesNotFit, UnknownRun, UsageError, suggest, suggest_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlbench.datasets.policies import Policy
    from rlbench.datasets.recipes import Recipe, RecordingRecipe

COPIES: Final = 4.3  # of the data in memory, at most, while they are made; measured


def generate(
    task: Annotated[
        str, argument("TASK|NAME", "A task id, or the name of a recipe, such as rlb-hopper-medium.", completion.played)
    ],
    *,
    policy: Annotated[
        list[str] | None,
        option(
            "--policy RUN|FILE",
            "Policy that plays: a finished run as eval names it, a .safetensors file or a .zip of Stable-Baselines3; "
            "may be repeated.",
            completion.policies,
        ),
    ] = None,
    steps: Annotated[
        int | None, option("--steps N|1e5|1M", "Agent steps in all; default: the recipe's own.", parser=parse_count)
    ] = None,
    name: Annotated[str | None, option("--name rlb-NAME", "Name of the data set; default: the recipe's own.")] = None,
    mixture: Annotated[
        str | None, option("--mixture 0.7,0.3", "The share of each --policy in the steps; default: equal shares.")
    ] = None,
    noise: Annotated[
        float, option("--noise STD", "Standard deviation of normal noise added to actions in [-1, 1].")
    ] = 0.0,
    epsilon: Annotated[
        float | None,
        option(
            "--epsilon P",
            "Record games of a Q-learning run, with this share of random actions, from 0 to 1; default: no games.",
        ),
    ] = None,
    deterministic: Annotated[
        bool, option("--deterministic", "Take preferred actions instead of sampled ones.")
    ] = False,
    checkpoint: Annotated[
        Checkpoint, option("--checkpoint", "Which policy of a run plays: the best evaluated, or the last.")
    ] = "best",
    seed: Annotated[int, option("--seed N", "The seed of environments and samples.")] = 0,
    num_envs: Annotated[int, option("--num-envs N", "The number of environments.", least=1, most=1_000)] = 10,
    package: Import = None,
    force: Annotated[bool, option("--force", "Make it again in place of one of that name.")] = False,
    env_timeout: EnvTimeout = ENV_TIMEOUT,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Make a data set of your own, from a recipe or policies.

    A TASK needs --policy, --steps and --name, a recipe none. It lies in RLBENCH_DATASETS or ~/.rlbench/datasets.
    """
    from rlbench.cli import recordings
    from rlbench.datasets import catalogue
    from rlbench.datasets.d4rl import write_hdf5
    from rlbench.datasets.policies import read_policy_file
    from rlbench.datasets.recipes import POLICIES, PREFIX, load_recipe
    from rlbench.generate import DatasetGenerator

    if epsilon is not None:
        if mixture or noise or deterministic or not (policy and len(policy) == 1 and steps and name):
            raise UsageError(f"{task}: --epsilon goes with one --policy RUN, --steps and --name, and no other noise")
        games, run = _games(task, policy[0], checkpoint, name, steps, epsilon, seed, num_envs, package)
        recordings.record_games(games, run, checkpoint, env_timeout=env_timeout, force=force, quiet=quiet, json=json)
        return
    if package is not None:
        raise UsageError(f"--import {package}: goes with --epsilon; leave it out")
    if task.startswith(PREFIX):
        others = (policy, steps, name, mixture, noise, deterministic, seed, checkpoint != "best", num_envs != 10)
        if any(others):
            raise UsageError(f"{task}: is a recipe, which says all of this itself; leave the other options out")
        recipe = load_recipe(task)
        policies = [read_policy_file(POLICIES / f"{part.policy}.safetensors") for part in recipe.parts]
    elif policy and steps and name:
        policies = [_load_policy(text, task, checkpoint) for text in policy]
        recipe = _recipe(task, policies, mixture, name, steps, seed, num_envs, noise, sampled=not deterministic)
    else:
        raise UsageError(f"{task}: --policy, --steps and --name are needed; or name a recipe, as rlb-hopper-medium")
    path = catalogue.folder("own") / f"{recipe.name}.hdf5"
    recordings.refuse_other_kind(path)
    if not force and recordings.is_done(path, recipe, json=json):
        return
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already; make it again with --force, or choose another --name")
    _check_room(path.parent, recipe, policies)
    recording = DatasetGenerator(recipe, policies)
    recordings.print_progress(recording, recipe, env_timeout, quiet=quiet)
    recordings.refuse_other_kind(path)  # of another process, meanwhile
    file = write_hdf5(path, recording.result(), recording.provenance(), replace=force)
    recordings.answer_dataset(file, recipe.steps, recording.provenance(), json=json)


def _check_room(folder: Path, recipe: Recipe, policies: Sequence[Policy]) -> None:
    """Refuse a folder that cannot be written, and transitions beyond the free memory or disk space."""
    from rlbench.cli.preflight import check_disk_space, check_writable
    from rlbench.config.footprint import size_text
    from rlbench.records.machine import available_memory

    check_writable(folder)
    numbers = max(2 * policy.obs_size + policy.metadata.action_dim + 1 for policy in policies)
    bytes_needed = recipe.steps * (4 * numbers + 2)  # at most: it is compressed
    if (need := round(COPIES * bytes_needed)) > (free := available_memory()):
        shortage = f"{size_text(need)} of memory are needed, {size_text(free)} are free"
        raise DoesNotFit(f"{recipe.name}: {shortage}; lower --steps, or use a larger machine")
    check_disk_space(folder, bytes_needed, recipe.name, "free some, or name another disk in RLBENCH_DATASETS")


def _games(
    task: str,
    policy: str,
    checkpoint: Checkpoint,
    name: str,
    steps: int,
    epsilon: float,
    seed: int,
    num_envs: int,
    package: str | None,
) -> tuple[RecordingRecipe, Path]:
    """Recipe of the recorded games of a finished run, and its folder."""
    from rlbench.assembly.restore import fingerprint
    from rlbench.datasets.recipes import RecordingRecipe, user_recipe
    from rlbench.generate import stored_run
    from rlbench.suites.plugins import import_for_run

    run = Path(policy)
    try:
        run = run if run.is_dir() else run_folder(policy, None)
    except UnknownRun:
        remedy = "--epsilon wants a finished Q-learning run"
        raise UsageError(f"--policy {policy}: no such run{suggest_path(run)}; {remedy}") from None
    spec, state = stored_run(run, checkpoint)
    import_for_run(package, spec.task)
    player, sha256 = f"{spec.name} {spec.id} seed={spec.seed} {checkpoint}", fingerprint(state)
    with user_recipe(name):
        games = RecordingRecipe(
            name=name, task=task, policy=player, sha256=sha256, steps=steps, epsilon=epsilon, seed=seed, lanes=num_envs
        )
    return games, run


def _recipe(
    task: str,
    policies: list[Policy],
    mixture: str | None,
    name: str,
    steps: int,
    seed: int,
    num_envs: int,
    noise: float,
    *,
    sampled: bool,
) -> Recipe:
    """Recipe of transitions of several policies, each with its share of the steps."""
    from rlbench.datasets.recipes import Recipe, RecipePart, user_recipe

    try:
        shares = [1 / len(policies)] * len(policies)
        if mixture is not None:
            shares = [float(share) for share in mixture.split(",")]
    except ValueError:
        raise UsageError(f"--mixture {mixture}: not numbers; write shares as 0.7,0.3") from None
    if len(shares) != len(policies):
        counts = f"{len(shares)} shares for {len(policies)} policies"
        raise UsageError(f"--mixture {mixture}: {counts}; give one for each --policy")
    with user_recipe(name):
        parts = tuple(
            RecipePart(policy=p.metadata.name, sha256=p.sha256, share=share, sampled=sampled, noise=noise)
            for p, share in zip(policies, shares, strict=True)
        )
        return Recipe(name=name, task=task, parts=parts, steps=steps, seed=seed, lanes=num_envs)


def _load_policy(text: str, task: str, checkpoint: Checkpoint) -> Policy:
    """Load a policy: a file, a zip, a run's, or one packaged with rlbench."""
    from rlbench.datasets.policies import parse_policy, read_policy_file
    from rlbench.datasets.recipes import POLICIES
    from rlbench.datasets.sb3_import import convert_sb3

    path, packaged = Path(text), POLICIES / f"{text}.safetensors"
    if packaged.is_file():
        return read_policy_file(packaged)
    if not path.exists():
        try:
            path = run_folder(text, None)
        except UnknownRun:
            near = suggest_path(path) or suggest(text, sorted(file.stem for file in POLICIES.glob("*.safetensors")))
            raise UsageError(f"--policy {text}: no such file, run or packaged policy{near}") from None
    if path.is_dir():
        from rlbench.generate import stored_policy

        return stored_policy(path, checkpoint)
    return parse_policy(convert_sb3(path, task=task), str(path)) if path.suffix == ".zip" else read_policy_file(path)
