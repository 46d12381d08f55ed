"""Records that tests begin, read, or change under a right checksum."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from rlbench.config.run import Runtime, Spec
from rlbench.records import files
from rlbench.records.store import Store, read_record
from rlbench.records.types import Outcome

Change: TypeAlias = Callable[[dict[str, object]], object]


def locked(spec: Spec, results: Path, environment: Mapping[str, object] | None = None, *, force: bool = False) -> Store:
    """The store of a run that no other process holds."""
    store = Store.lock(spec, results, environment or {}, force=force)
    assert store is not None
    try:
        store.start_over()
    except BaseException:
        store.release()
        raise
    return store


def with_policy(spec: Spec, results: Path) -> Path:
    """The folder of a run that keeps its best policy, a network as it was drawn."""
    from rlbench import checkpoint  # noqa: PLC0415 - brings torch
    from rlbench.assembly.assemble import build  # noqa: PLC0415 - as above
    from rlbench.assembly.environments import describe  # noqa: PLC0415 - as above
    from rlbench.ops.state_dict import module_state  # noqa: PLC0415 - as above

    learner = build(spec, Runtime(device="cpu", threads=1), describe(spec)).learner
    store = locked(spec, results)
    checkpoint.save(store.folder / "checkpoint" / "best", {"policy": module_state(learner.policy_net()), "epoch": 0})
    store.release()
    return store.folder


def outcome_of(folder: Path) -> Outcome:
    """The outcome of a run that has ended."""
    outcome = read_record(folder).outcome
    assert outcome is not None, folder
    return outcome


def reseal(path: Path, change: Change, line: int | None = None) -> None:
    """Change a line of a sealed file, or every line; the outcome names no attempt any more."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for place in range(len(lines)) if line is None else [line]:
        content = files.unseal(lines[place], str(path))
        change(content)
        lines[place] = files.seal(content)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    outcome = path.with_name("outcome.json")
    if path.name in {"spec.json", "epochs.jsonl"} and outcome.is_file():
        reseal(outcome, lambda content: content.update(environments_sha256=None, epochs_sha256=None))
