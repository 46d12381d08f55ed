"""Shell completion through the protocol of each shell, and through bash itself."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlbench import suites
from rlbench.cli.app import main
from tests.commands import run_process
from tests.conftest import Capture, Patch, RecordRun
from tests.laws.layers import HEAVY
from tests.laws.source import ROOT

Offered = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def data_sets_beside_the_results(tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH"):
        monkeypatch.setenv(name, str(tmp_path / "results"))


@pytest.fixture
def offered(monkeypatch: Patch, capsys: Capture) -> Offered:
    """The offers to bash after these words and a Tab."""

    def ask(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("_RLBENCH_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit) as end:
            main([])
        output = capsys.readouterr()
        assert (end.value.code, output.err) == (0, "")
        return output.out.split()

    return ask


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("rlbench t", ["table"]),
        ("rlbench data s", ["show", "subset"]),
        ("rlbench run --env-t", ["--env-timeout"]),
        ("rlbench run ", suites.names()),
        ("rlbench table ", [*suites.names(), "all"]),
        ("rlbench run mujoco t", ["td3", "trpo"]),
        ("rlbench run mujoco --task H", ["HalfCheetah-v4", "Hopper-v4", "Humanoid-v4"]),
        ("rlbench run atari dqn --seeds 0-2 --task Po", ["PongNoFrameskip-v4", "PooyanNoFrameskip-v4"]),
        ("rlbench show toy ppo Ca", ["Catch", "CartPole-v1"]),
        ("rlbench table atari --algo c", ["c51"]),
        ("rlbench plan toy ra", ["rainbow"]),
        ("rlbench list tasks --suite g", ["goals"]),
        ("rlbench list a", ["algos"]),
        ("rlbench compare red", ["redq"]),
        ("rlbench baseline s", ["save", "show"]),
        ("rlbench report to", ["toy"]),
        ("rlbench doctor at", ["atari"]),
        ("rlbench plot atari --kind i", ["interval", "improvement"]),
        ("rlbench table toy --format m", ["md"]),
        ("rlbench run toy dqn --executor r", ["ray"]),
        ("rlbench run toy dqn --jobs a", ["auto"]),
        ("rlbench run toy dqn --device cu", ["cuda"]),
        ("rlbench data generate rlb-hop", ["rlb-hopper-expert", "rlb-hopper-medium", "rlb-hopper-medium-expert"]),
        ("rlbench data generate Pong", ["PongNoFrameskip-v4"]),
        ("rlbench data generate X --policy walker2d-openai_imitation-trpo_iter1", 1),
        ("rlbench data generate X --checkpoint b", ["best"]),
        ("rlbench data download hopper-medium-r", 3),
        ("rlbench data show rlb-walker2d-e", ["rlb-walker2d-expert"]),
        ("rlbench run offline cql --dataset halfcheetah-ran", 3),
        ("rlbench run atari dqn --set protocol.epi", 2),
        ("rlbench show toy dqn Catch --set algo.lr=", 1),
        ("rlbench nonsense ", 14),
        ("rlbench run nonsense dqn --set algo", 0),
        ("rlbench table toy --output ", 0),
    ],
)
def test_completion_offers_matching_names(line: str, some: list[str] | int, offered: Offered) -> None:
    offers = offered(line)
    if isinstance(some, int):
        assert len(offers) >= some and all(name.startswith(line.rpartition(" ")[2]) for name in offers)
        assert some or not offers
    else:
        assert sorted(offers) == sorted(some)


def test_completion_offers_fields_and_a_single_match_with_its_value(offered: Offered) -> None:
    fields = offered("rlbench run toy dqn --task Catch --set ")
    assert {"algo.lr=", "algo.replay.capacity=", "task.envs="} <= set(fields)
    assert not {"seed=", "task.id=", "suite="} & set(fields)
    assert offered("rlbench run atari dqn --task Pong* --set algo.lr") == ["algo.lr=", "algo.lr=0.0001"]
    assert offered("rlbench run mujoco ppo --set algo.method.cl") != offered(
        "rlbench run mujoco sac --set algo.method.cl"
    )


def test_completion_of_compare_offers_folders_and_algorithms(offered: Offered) -> None:
    Path("slower").mkdir()
    assert offered("rlbench compare dqn sl") == ["slower"]


def test_completion_offers_run_folders(offered: Offered, record_run: RecordRun) -> None:
    folder = record_run([1.0], seed=3)
    assert offered("rlbench verify ") == [str(folder.relative_to(Path.cwd()) if folder.is_absolute() else folder)]
    assert offered("rlbench data generate X --policy results/") == offered("rlbench verify ")
    assert offered("rlbench eval ") == offered("rlbench verify ")
    (folder / "spec.json").write_text("{", encoding="utf-8")  # a damaged one is no reason to say something
    assert offered("rlbench verify r")


SLOW_TO_START = {"numpy", "scipy", "pandas", "matplotlib", "h5py"}

WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from rlbench.cli.app import main
sys.exit(main({arguments!r}))
"""
"""The command line in a Python without some packages: a name bound to None in sys.modules cannot be imported."""

LINES = ["", "run ", "run atari dqn --task Po", "run atari dqn --set algo.l", "verify ", "table toy --format "]


@pytest.mark.slow
@pytest.mark.parametrize("line", [*LINES, "data show rlb-"])
def test_completion_needs_nothing_that_takes_long_to_import(line: str) -> None:
    code = WITHOUT.format(missing=sorted(HEAVY | SLOW_TO_START), arguments=[])
    words = ["rlbench", *line.split(" ")]
    environ = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1), "_RLBENCH_COMPLETE": "complete_bash"}
    done = run_process([sys.executable, "-c", code], cwd=ROOT, **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.slow
def test_blocked_imports_are_really_blocked() -> None:
    words = ["run", "toy", "dqn", "--task", "Catch", "--smoke"]
    code = WITHOUT.format(missing=sorted(HEAVY), arguments=words)
    assert run_process([sys.executable, "-c", code]).returncode != 0


@pytest.mark.parametrize(
    ("shell", "environ", "answer"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "rlbench run mujoco td"}, """_arguments '*: :(("td3"))'\n"""),
        ("fish", {"_TYPER_COMPLETE_ARGS": "rlbench run mujoco td", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "td3\n"),
    ],
)
def test_completion_is_equal_in_other_shells(
    shell: str, environ: dict[str, str], answer: str, monkeypatch: Patch, capsys: Capture
) -> None:
    monkeypatch.setenv("_RLBENCH_COMPLETE", f"complete_{shell}")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out == answer


BASH = """
export PATH="$PWD/scripts:$PATH"
eval "$(_RLBENCH_COMPLETE=source_bash rlbench)"
COMP_WORDS=(%s) COMP_CWORD=%d
_rlbench_completion %s
printf '%%s\\n' "${COMPREPLY[@]}"
complete -p rlbench
"""


@pytest.mark.slow
@pytest.mark.parametrize("command_line", ["rlbench", "scripts/rlbench", "./scripts/rlbench"])
def test_bash_completes_the_launcher_of_a_checkout_however_it_is_typed(command_line: str, tmp_path: Path) -> None:
    """A checkout with an environment: bash looks a command up by its last part, and calls what was typed."""
    launcher = checkout(tmp_path)
    python = tmp_path / ".venv" / "bin" / "rlbench"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m rlbench "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    words = ["bash", "--norc", "-c", BASH % (f"{command_line} run mujoco td", 3, command_line)]
    done = run_process(words, PYTHONPATH=str(ROOT))
    assert launcher.exists() and done.stderr == ""
    assert done.stdout.splitlines() == ["td3", "complete -o default -F _rlbench_completion rlbench"]


def test_completion_never_creates_an_environment(tmp_path: Path) -> None:
    environ = {"_RLBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "rlbench", "COMP_CWORD": "1"}
    done = run_process([str(checkout(tmp_path))], **environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def checkout(folder: Path) -> Path:
    """The launcher in a folder where to set up would be noticed."""
    (folder / "scripts").mkdir()
    setup = folder / "scripts" / "setup"
    setup.write_text("#!/bin/sh\necho setting up\n", encoding="utf-8")
    setup.chmod(0o755)
    return Path(shutil.copy(ROOT / "scripts" / "rlbench", folder / "scripts"))
