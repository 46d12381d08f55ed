"""``rlbench data``: the data sets that offline learners learn from."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from rlbench.cli import completion
from rlbench.cli.generate import generate
from rlbench.cli.help_texts import Verb, command_group, examples
from rlbench.cli.options import Json, argument, option
from rlbench.cli.output import one_line, print_note, print_result, print_text, terminal_width
from rlbench.config.names import number_text
from rlbench.errors import RefusedFile, RlbenchError, UsageError, suggest, suggest_path
from rlbench.report.columns import aligned

if TYPE_CHECKING:
    from rlbench.datasets.catalogue import D4RLDataset, Location
    from rlbench.datasets.episodes import Dataset
    from rlbench.datasets.summary import HistogramBin, Summary

WIDTH = 40  # of the longest bar
EVERY = 0.1  # share of a download between two progress messages

data = command_group("data", "List, inspect, make and fetch data sets to learn from.")
data.command("generate", epilog=examples("data generate"), cls=Verb)(generate)


@data.command("list", epilog=examples("data list"), cls=Verb)
def list_datasets(
    *,
    everything: Annotated[bool, option("--all", "List D4RL's deprecated sets too.")] = False,
    remote: Annotated[bool, option("--remote", "List the sets of Minari's server too; this asks the network.")] = False,
    json: Json = False,
) -> None:
    """List data sets, and where each lies on this machine.

    A data set that is not here yet has a dash; `download` fetches D4RL's and Minari's, `generate` makes those named
    rlb-.
    """
    from rlbench.datasets import catalogue, recipes

    local, d4rl = {place.name: place for place in catalogue.list_local()}, catalogue.d4rl()
    current = (entry.name for entry in d4rl.values() if everything or not entry.note.startswith("deprecated"))
    names = dict.fromkeys([*local, *recipes.RECIPES, *current])
    if remote:
        from rlbench.datasets.minari import remote_names

        names |= dict.fromkeys(remote_names())
    rows = [(name, local.get(name), d4rl.get(name)) for name in names]
    width = terminal_width()
    texts = [(one_line(name), one_line(str(place.path)) if place else "-") for name, place, _ in rows]
    text = "\n".join(map("\t".join, texts) if width is None else aligned(texts, width))
    print_result({"datasets": [_entry(*row) for row in rows]}, text, json=json)


@data.command("show", epilog=examples("data show"), cls=Verb)
def show_dataset(
    name: Annotated[str, argument("NAME|PATH", "A data set; see: rlbench data list", completion.datasets)],
    *,
    json: Json = False,
) -> None:
    """Show what a data set holds: episodes, returns, coverage.

    The whole file is read and its SHA-256 compared with the one recorded on first use.
    """
    from dataclasses import asdict

    from rlbench.cli import recordings
    from rlbench.datasets import catalogue, checksums
    from rlbench.datasets.loader import data_file, dataset_metadata, has_next_observations
    from rlbench.datasets.summary import summary

    dataset_name, path = catalogue.resolve(name)
    if catalogue.is_recording(path):
        recordings.describe(path, json=json)
        return
    seal = checksums.verify(data_file(path))  # before HDF5 opens it: damage could end the process
    facts = summary(_read(path, dataset_name), next_observations=has_next_observations(path))
    metadata = dataset_metadata(path)
    score = catalogue.normalize(facts.returns.mean, dataset_name)
    document = {
        "schema_version": 2,
        "name": dataset_name,
        "path": str(path),
        "bytes": seal.size,
        "sha256": seal.sha256,
        "normalized": score,
        **asdict(facts),
        "metadata": metadata,
    }
    head = {"name": dataset_name or "-", "path": str(path), "sha256": seal.sha256, "bytes": f"{seal.size:,}"}
    lines, extra = recordings.described({**head, **_facts(facts, score)}, metadata)
    lines += ["", "metadata", *extra] if extra else []
    print_result(document, "\n".join([*lines, "", "returns", *_bars(facts.histogram)]), json=json)


@data.command("verify", epilog=examples("data verify"), cls=Verb)
def verify_dataset(
    names: Annotated[
        list[str] | None,
        argument("[NAME|PATH]...", "The data sets; default: all on this machine.", completion.datasets),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Check that data sets are still what they were.

    Each is read whole, and its SHA-256 compared with the one recorded on first use; a fault makes the exit code 2.
    """
    from rlbench.datasets import catalogue, checksums, recording_reader
    from rlbench.datasets.loader import data_file
    from rlbench.records.machine import available_memory

    rows: list[tuple[str, str, str | None]] = []
    places = [] if names else catalogue.list_local()  # a file of such a name in the current folder is another
    for name, place in [*((name, None) for name in names or ()), *((place.name, place) for place in places)]:
        try:
            dataset_name, path = catalogue.resolve(name) if place is None else (name, place.path)
            seal = checksums.verify(data_file(path))
            if catalogue.is_recording(path):
                recording_reader.verify_recording(path, max_bytes=available_memory())
            else:
                _read(path, dataset_name)
            rows.append((name, seal.sha256, None))
        except RlbenchError as error:
            rows.append((name, "-", str(error)))
        except OSError as error:
            rows.append((name, "-", f"{error.filename}: {error.strerror}; check its permissions"))
    if rows or json:
        datasets = [{"name": name, "sha256": None if fault else digest, "fault": fault} for name, digest, fault in rows]
        text = "\n".join(f"{one_line(name)}\t{one_line(fault or f'ok {digest}')}" for name, digest, fault in rows)
        print_result({"datasets": datasets}, text, json=json)
    else:
        print_note("no data set on this machine")
    bad = [name for name, _, fault in rows if fault]
    if bad:
        raise RefusedFile(f"{len(bad)} of {len(rows)} data sets did not pass: {', '.join(bad)}; see above")


@data.command("download", epilog=examples("data download"), cls=Verb)
def download(
    name: Annotated[str, argument("NAME", "One of D4RL's or Minari's; see: rlbench data list", completion.downloads)],
) -> None:
    """Download a data set of D4RL's or Minari's.

    What was interrupted goes on where it stopped; what has arrived is checked before it counts.
    """
    from rlbench.datasets import catalogue
    from rlbench.datasets.dataset_fetch import download_dataset

    next_report = 0.0
    for progress in download_dataset(name):
        share = progress.done / (progress.total or 1e9)  # of unknown length: a message every 100 MB
        if share >= next_report:
            size = f"{progress.done / 1e6:.0f} MB"
            if progress.total is not None:
                size = f"{share:.0%} of {progress.total / 1e6:.1f} MB"
            print_note(f"{name}: {size}")
            next_report = share + EVERY
    print_text(str(catalogue.find(name)))


@data.command("subset", epilog=examples("data subset"), cls=Verb)
def subset(
    source: Annotated[str, argument("NAME|PATH", "Recorded games, finished or broken off.", completion.datasets)],
    *,
    steps: Annotated[str, option("--steps N", "Number of transitions, as 100000 or 1e5.")],
    name: Annotated[str, option("--name rlb-NAME", "Name of the new data set.")],
    force: Annotated[bool, option("--force", "Make it again in place of one of that name.")] = False,
) -> None:
    """Make a data set of the first transitions of another.

    Only recorded games (made with --epsilon, or imported) can be cut.
    """
    from rlbench.cli.recordings import write_subset

    write_subset(source, steps, name, force=force)


@data.command("import", epilog=examples("data import"), cls=Verb)
def import_data(
    paths: Annotated[
        list[Path],
        argument(
            "PATH | rlu FILE… | dqn-replay FOLDER",
            "A file of D4RL's or a folder of Minari's; after the word rlu shards of RL Unplugged, after dqn-replay a "
            "folder of Dopamine's logs.",
        ),
    ],
    *,
    name: Annotated[str | None, option("--name NAME", "Name of the data set; default: as its file.")] = None,
    task: Annotated[str | None, option("--task ID", "Task of shards; default: none.")] = None,
    workers: Annotated[
        int | None,
        option(
            "--workers N",
            "Processes that read shards, a gigabyte each; default: as many as cores and memory allow.",
            least=1,
        ),
    ] = None,
) -> None:
    """Bring in a data set from a file.

    It is checked and copied to where it is found by its name. Shards of RL Unplugged and DQN-replay logs become
    recorded games; the same line goes on where it was broken off.
    """
    from rlbench.cli.recordings import IMPORTS, convert
    from rlbench.datasets.catalogue import folder, is_recording
    from rlbench.datasets.dataset_fetch import import_dataset
    from rlbench.records.machine import available_memory

    path, *more = paths
    if str(path) in IMPORTS and (more or not path.exists()):
        convert(str(path), more, name, task, workers)
    elif more:
        kind = suggest(str(path), IMPORTS)
        raise UsageError(f"{path}: one file or folder is imported at a time, or several behind rlu{kind}")
    elif not path.exists():
        raise UsageError(f"{path}: no such file{suggest_path(path)}; check the path")
    elif path.suffix == ".zip":
        ways = (f"rlbench {verb} --policy {quote(str(path))}" for verb in ("data generate …", "eval SUITE TASK"))
        raise UsageError(f"{path}: is a policy, no data set; type: {' or '.join(ways)}")
    elif task is not None or workers is not None:
        raise UsageError(f"{path}: is no shard; leave --task and --workers out")
    elif is_recording(path):
        raise UsageError(f"{path}: holds recorded games already; copy it into {folder('own')}")
    else:
        print_text(str(import_dataset(path, name or _name_of(path), max_bytes=available_memory()).path))


def _read(path: Path, name: str | None) -> Dataset:
    """Read a whole data set; refuse one that does not fit into memory."""
    from rlbench.datasets.loader import load_dataset
    from rlbench.records.machine import available_memory

    return load_dataset(path, name, max_bytes=available_memory())


def _name_of(path: Path) -> str:
    from rlbench.datasets import catalogue, minari
    from rlbench.datasets.recipes import OWN_NAME

    if path.is_dir():
        name = minari.minari_metadata(path).name
    else:
        name = next((entry.name for entry in catalogue.d4rl().values() if entry.file == path.name), None)
        if name is None and OWN_NAME.fullmatch(path.stem):
            name = path.stem
    if name is None:
        raise UsageError(f"{path}: its name says nothing; give it one: --name rlb-…")
    return name


def _entry(name: str, place: Location | None, entry: D4RLDataset | None) -> dict[str, object]:
    kind = place.kind if place else "d4rl" if entry else "own" if name.startswith("rlb-") else "minari"
    return {
        "name": name,
        "kind": kind,
        "path": str(place.path) if place else None,
        "url": entry.url if entry else None,
        "env_id": entry.env_id if entry else None,
        "reference": None if entry is None else {"random": entry.low, "expert": entry.high},
        "note": entry.note if entry and entry.note else None,
    }


def _facts(facts: Summary, score: float | None) -> dict[str, str]:
    from rlbench.cli.recordings import spread

    next_obs = "stored" if facts.next_observations else "not stored"
    return {
        "shapes": f"observations of {facts.features}, actions of {facts.actions} numbers; next observations {next_obs}",
        "steps": f"{facts.steps:,}",
        "episodes": f"{facts.episodes:,}",
        "ends": f"{facts.terminated:,} terminated, {facts.truncated:,} truncated, {facts.unfinished:,} not marked",
        "return": spread(facts.returns),
        **({} if score is None else {"normalized": f"{number_text(score, '.1f')} (mean; 0 random, 100 expert)"}),
        "length": spread(facts.lengths),
        "actions": f"{facts.action_cover:.0%} of their range seen, {facts.outside:.1%} of the numbers beyond ±1",
    }


def _bars(histogram: tuple[HistogramBin, ...]) -> list[str]:
    most = max(bar.count for bar in histogram)
    ends = [(number_text(bar.low, ".1f"), number_text(bar.high, ".1f")) for bar in histogram]
    return [
        f"{low:>10} {high:>10} {bar.count:>7,} {'#' * -(-WIDTH * bar.count // most)}".rstrip()
        for (low, high), bar in zip(ends, histogram, strict=True)
    ]
