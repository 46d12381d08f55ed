"""Suites and environments of other packages: docs/extending.md's wheel, a broken one, a missing one, and ``gym:``."""

import json
import os
import re
import signal
import subprocess
import sys
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv

from rlbench import checkpoint, suites
from rlbench.assembly import assemble
from rlbench.assembly.environments import describe, record_video
from rlbench.cli import doctor
from rlbench.cli.app import TERMINATING
from rlbench.cli.resolve import resolve
from rlbench.config.footprint import footprint
from rlbench.config.run import Runtime, Spec
from rlbench.config.tasks import GymnasiumTask
from rlbench.envs.base import Box, Discrete, Snapshot, Step, VectorEnv
from rlbench.envs.external import external_vector
from rlbench.envs.gymnasium import ClassicVector, GymnasiumVector
from rlbench.errors import BrokenEnvironment, UsageError
from rlbench.report import reference_files, run_index
from rlbench.suites import plugins
from tests.commands import run_command, run_process, stderr_of, stdout_of
from tests.conftest import RecordRun
from tests.laws.source import ROOT
from tests.reliability.run_one import carry, ending

RECIPE = (ROOT / "docs/extending.md").read_text(encoding="utf-8").split("## How to provide a suite")[1]
FILES = dict(re.findall(r"New file `([\w/.]+)`:\n\n```\w+\n(.*?)^```$", RECIPE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^\$ (rlbench .+)$", RECIPE, re.MULTILINE)
QUICK = ("--smoke", "--quiet", "--device", "cpu")

REGISTERING = """
import gymnasium
import numpy as np

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Dict(
        place=gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float64), door=gymnasium.spaces.Discrete(3)
    )
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._shown(), {}

    def step(self, action):
        return self._shown(), float(action[0]), False, False, {}

    def _shown(self):
        return {"place": self.np_random.uniform(-1, 1, 2), "door": int(self.np_random.integers(3))}

gymnasium.register("Doors-v7", entry_point=Env, max_episode_steps=20)
"""

CACHES = (plugins.plugins, plugins._load_plugin, reference_files._installed, run_index.documented_spec)


def forget() -> None:
    """Clear what is known of installed distributions."""
    for cache in CACHES:
        cache.cache_clear()


def install(site: Path, name: str, code: str, points: str = "", version: str = "1.0") -> None:
    """Lay out an installed distribution with one module."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}.py,,\n{name}-{version}.dist-info/METADATA,,\n")
    (info / "entry_points.txt").write_text(points)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of docs/extending.md and install it into a folder, offline."""
    source = tmp_path_factory.mktemp("source")
    for path, text in FILES.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(source / "dist")]
    subprocess.run(build, cwd=source / "corridor", check=True, capture_output=True)
    (built,) = (source / "dist").iterdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target"]
    subprocess.run([*pip, str(source / "site"), str(built)], check=True, capture_output=True)
    return source / "site"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose distributions are installed for the time of a test; the current folder is another."""
    modules, registered = set(sys.modules), set(gymnasium.registry)
    (tmp_path / "site").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.chdir(tmp_path / "work")
    forget()
    yield tmp_path / "site"
    forget()
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for name in set(gymnasium.registry) - registered:
        del gymnasium.registry[name]


@pytest.fixture
def corridor(site: Path, wheel: Path) -> Path:
    """Install the wheel."""
    for path in wheel.iterdir():
        (site / path.name).symlink_to(path)
    return site


def test_plugin_recipe_is_complete_in_under_eighty_lines() -> None:
    assert sum(bool(line.strip()) for text in FILES.values() for line in text.splitlines()) < 80
    assert [words.split()[:3] for words in COMMANDS] == [
        ["rlbench", "run", "corridor"],
        ["rlbench", "table", "corridor"],
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("corridor")
def test_a_plug_in_is_listed_shown_run_and_tabled_like_any_other_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stdout_of(["list", "suites"]).split() == [*suites.SUITES, "corridor"]
    assert stdout_of(["list", "algos", "--suite", "corridor"]).split() == ["dqn", "ppo"]
    text = stdout_of(["show", "corridor", "dqn", "Corridor"])
    assert "task.package = corridor_suite" in text and "task.version = 1.0" in text
    steps = ("--steps", "1200", "--quiet", "--device", "cpu")
    code, out, error = run_command([*COMMANDS[0].split()[1:4], "--seeds", "0-1", *steps])
    assert (code, error) == (0, "") and out.count("corridor/dqn/Corridor seed") == 2
    (cell,) = json.loads(stdout_of(["table", "corridor", "--json"]))["cells"]
    assert (cell["task"], cell["documented"]["score"], cell["verdict"]) == ("Corridor", 0.2, "PARTIAL")
    assert cell["measured"]["origin"] == "own" and cell["measured"]["env_id"] == "gymnasium/Corridor"
    assert "Corridor, https://example.org/corridor@1.0" in stdout_of(["table", "corridor", "--format", "md"])
    folder = min(path.parent for path in Path.cwd().rglob("seed=0/spec.json"))
    newer = {"corridor": plugins.plugins()["corridor"]._replace(package=plugins.Package("corridor_suite", "2.0"))}
    monkeypatch.setattr(plugins, "plugins", lambda: newer)
    generate = ["data", "generate", "Corridor", "--epsilon", "0.3", "--steps", "200", "--name", "rlb-x", "--policy"]
    for verb in (["verify", "--replay"], ["eval"], generate):
        assert "(corridor_suite: 1.0 recorded, 2.0 here); install" in stderr_of([*verb, str(folder)])


@pytest.mark.slow
@pytest.mark.usefixtures("corridor")
def test_a_run_of_a_plug_in_resumes_to_the_bit(tmp_path: Path) -> None:
    sets = ("budget.steps=400", "budget.epoch=130", "budget.segment=170", "algo.learning_starts=80", "algo.batch=8")
    sets = (*sets, "protocol.episodes=2", "protocol.envs=2", "algo.replay.capacity=400")
    spec = resolve("corridor", "dqn", "Corridor", sets=sets).spec
    carry(spec, tmp_path / "whole")
    carry(spec, tmp_path / "stopped", stop_at=250, crash=False)
    carry(spec, tmp_path / "stopped")
    ends = [ending(next(tmp_path.glob(f"{name}/corridor/dqn/Corridor/*/seed=0"))) for name in ("whole", "stopped")]
    assert ends[0] == ends[1]


def test_the_identity_of_a_run_holds_the_package_and_its_version(site: Path) -> None:
    install(site, "doorways", REGISTERING)
    packages = [None, plugins.import_package("doorways"), plugins.Package("doorways", "1.1")]
    assert "task.version = 1.0" in stdout_of(["show", "mujoco", "sac", "gym:Doors-v7", "--import", "doorways"])
    ids = {suites.spec("mujoco", "sac", "gym:Doors-v7", package=package).id for package in packages}
    assert len(ids) == 3
    assert packages[1] == plugins.Package("doorways", "1.0")


@pytest.mark.parametrize("setting", ["task.size=1001", "task.stack=101"])
def test_frames_of_an_installed_environment_have_bounds(setting: str) -> None:
    with pytest.raises(UsageError, match="less than or equal to 1"):
        resolve("atari", "dqn", "gym:CartPole-v1", sets=(setting,))


def test_an_algorithm_without_settings_for_an_installed_environment_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gym:CartPole-v1: toy/ppo\+icm has no settings for it"):
        suites.spec("toy", "ppo+icm", "gym:CartPole-v1")


def test_a_package_is_imported_for_an_installed_environment_alone(site: Path, record_run: RecordRun) -> None:
    install(site, "doorways", "")
    refusal = "--import doorways: is for a task gym:ID, CartPole-v1 is none; leave it out"
    for verb in (["run", "toy", "dqn", "--task"], ["show", "toy", "dqn"]):
        assert refusal in stderr_of([*verb, "CartPole-v1", "--import", "doorways"])
    folder = record_run([1.0], suite="toy", task="CartPole-v1")
    for verb in (["verify", "--replay"], ["eval"]):
        assert refusal in stderr_of([*verb, str(folder), "--import", "doorways"])
    plugins.import_for_run("gymnasium", suites.spec("toy", "dqn", "gym:CartPole-v1").task)  # as ``run`` takes it
    assert "--import: belongs to --replay; give both" in stderr_of(["verify", str(folder), "--import", "doorways"])


@pytest.mark.slow
def test_an_installed_environment_runs_with_the_settings_of_the_named_suite_and_no_reference(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "doorways", REGISTERING.replace("super()", "print('reset'); super()") + "print('hello')")
    words = ["run", "mujoco", "sac", "--task", "gym:Doors-v7"]
    code, _, error = run_command([*words, *QUICK])
    assert code == 2 and "--import" in error and len(error.splitlines()) == 1
    code, out, error = run_command([*words, "--import", "doorways", *QUICK, "--set", "algo.widths=8,8"])
    assert code == 0 and out.startswith("mujoco/sac/gym:Doors-v7 seed 0: done")
    assert "reset\n" in error and "reset" not in out and "hello" not in out
    (folder,) = (path.parent for path in Path("results").rglob("spec.json"))
    assert "equal" in stdout_of(["verify", "--replay", str(folder), "--epochs", "0", "--import", "doorways"])
    for verb in (["verify", "--replay"], ["eval"]):
        for package in ([], ["--import", "gymnasium"]):
            advice = "was of the package doorways; name it with --import doorways"
            assert advice in stderr_of([*verb, str(folder), *package])
    monkeypatch.setattr(plugins, "_version", lambda _: "1.1")
    for verb in (["verify", "--replay"], ["eval"]):
        other_version = stderr_of([*verb, str(folder), "--import", "doorways"])
        assert "its environment is not here (doorways: 1.0 recorded, 1.1 here); install" in other_version

    (spec,) = (json.loads(path.read_text())["spec"] for path in Path("results").rglob("spec.json"))
    assert (spec["task"]["package"], spec["task"]["version"]) == ("doorways", "1.0")
    assert spec["algo"]["actor_lr"] == suites.spec("mujoco", "sac", "HalfCheetah-v4").algo.actor_lr
    hopper = suites.spec("mujoco", "sac", "gym:Hopper-v4")
    assert run_index.row_of("mujoco", hopper.task.id, "") != run_index.row_of("mujoco", "Hopper-v4", "")
    assert run_index.row_of("mujoco", "gym:Hopper-v5", "") == ("gym:Hopper-v5", "")


@pytest.mark.usefixtures("corridor")
def test_a_plan_of_a_plug_in_has_cells_with_and_without_a_reference() -> None:
    rows = json.loads(stdout_of(["plan", "corridor", "--seeds", "0-2", "--json"]))["include"]
    assert [(row["algorithm"], row["task"], row["steps"], row["runnable"]) for row in rows] == [
        ("dqn", "Corridor", 30_000, True),
        ("ppo", "Corridor", 30_000, True),
    ]
    assert stdout_of(["plan", "corridor", "ppo", "--lines"]) == "corridor ppo Corridor 0,1,2,3,4,5,6,7,8,9\n"
    assert "2 cells, 20 runs" in stdout_of(["plan", "corridor"])


PRINTING = """
print("imported")
from rlbench.suites import toy
from rlbench.suites.toy import ALGORITHMS, DOCUMENTED, TASKS
def spec(*names):
    print("plug-in")
    return toy.spec(*names)
def sources(*names):
    print("plug-in")
    return {}
"""


@pytest.mark.parametrize("words", ["show loud dqn Catch --json", "plan loud dqn --json", "table loud --json"])
def test_what_a_package_prints_goes_to_stderr(words: str, site: Path) -> None:
    install(site, "loud", PRINTING, "[rlbench.suites]\nloud = loud\n")
    code, out, error = run_command(words.split())
    assert code == 0 and json.loads(out) and "imported\n" in error
    assert ("plug-in\n" in error) == (words.split(maxsplit=1)[0] != "table")


BROKEN = {
    "raises": ("raise RuntimeError('no\\x1b[31m luck')", "cannot be imported"),
    "exits": ("raise SystemExit", "cannot be imported"),
    "raises no Exception": ("raise BaseException('as pytest.skip does')", "cannot be imported"),
    "is no suite": ("ALGORITHMS = {}", "has no valid TASKS"),
    "lists tasks": ("ALGORITHMS = {}; TASKS = DOCUMENTED = ['T']; spec = print", "has no valid TASKS"),
    "documents another task": (
        "ALGORITHMS = []; TASKS = {}; DOCUMENTED = ['T']; spec = print",
        "has no valid DOCUMENTED",
    ),
    "documents an alias": (
        "ALGORITHMS = {}; TASKS = {'T': 'U', 'U': 'U'}; DOCUMENTED = ['T']; spec = print",
        "no valid DOCUMENTED",
    ),
    "lists algorithms once": (
        "ALGORITHMS = (n for n in 'a'); TASKS = {}; DOCUMENTED = []; spec = print",
        "no valid ALG",
    ),
    "fails in pydantic": ("import rlbench.config.run as run\nrun.Spec()", "cannot be imported (ValidationError"),
    "has no pairs": ("ALGORITHMS = TASKS = DOCUMENTED = {}; spec = print; IMPOSSIBLE = 'dqn'", "no valid IMPOSSIBLE"),
    "makes nothing": ("ALGORITHMS = TASKS = DOCUMENTED = {}; spec = print; make_env = 0", "has no valid make_env"),
    "runs an unknown task": ("ALGORITHMS = {}; TASKS = {'T': 'U'}; DOCUMENTED = (); spec = print", "no valid TASKS"),
    "has bytes": ("ALGORITHMS = {}; TASKS = {b'T': b'T'}; DOCUMENTED = []; spec = print", "has no valid TASKS"),
    "is missing a module": ("import nowhere_to_be_found", "cannot be imported"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_is_one_warning(name: str, site: Path) -> None:
    code, text = BROKEN[name]
    install(site, "sorry", code, "[rlbench.suites]\nsorry = sorry\n")
    exit_code, out, error = run_command(["list", "suites"])
    assert (exit_code, out.split()) == (0, list(suites.SUITES))
    assert len(error.splitlines()) == 1 and "suite sorry of sorry 1.0" in error and text in error
    assert "\x1b" not in error
    exit_code, out, error = run_command(["list", "tasks", "--suite", "toy"])
    assert (exit_code, error) == (0, "") and "Catch" in out
    exit_code, _, error = run_command(["run", "sorry", "dqn"])
    assert exit_code == 2 and len(error.splitlines()) == 1 and "sorry 1.0" in error
    assert run_command(["show", "toy", "dqn", "Catch"])[0] == 0
    assert "sorry" not in run_command(["table", "toy"])[2]
    finding = doctor._memory("sorry")
    assert (finding.state, text in finding.detail) == ("missing", True)


def test_the_memory_of_a_plug_in_without_references_is_that_of_its_tasks(site: Path) -> None:
    install(
        site,
        "loud",
        f"{PRINTING}ALGORITHMS, TASKS, DOCUMENTED = ['dqn'], {{'Catch': 'Catch'}}, ()\n",
        "[rlbench.suites]\nloud = loud\n",
    )
    assert doctor._memory("loud").what == "memory"


@pytest.fixture
def _signals() -> Iterator[None]:
    """Restores the handlers of a process: a command that was stopped ignores further signals until its end."""
    handlers = {number: signal.getsignal(number) for number in TERMINATING}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_signal_that_breaks_the_import_of_a_plug_in_ends_the_command(site: Path) -> None:
    code = "try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt as e:\n    raise ImportError from e"
    install(site, "sorry", code, "[rlbench.suites]\nsorry = sorry\n")  # as a module of pybind11 does
    assert run_command(["list", "suites"])[0] == 130


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("None", "its spec fails"),
        ("(_ for _ in ()).throw(SystemExit)", "SystemExit"),
        ("(_ for _ in ()).throw(BaseException('as asyncio.CancelledError'))", "BaseException"),
        ("toy.spec('dqn', 'Catch', 0).model_copy(update={'budget': 3})", "budget"),
    ],
)
def test_settings_that_a_plug_in_gets_wrong_are_named_in_one_line(spec: str, text: str, site: Path) -> None:
    head = "from rlbench.suites import toy\nALGORITHMS = {'dqn': 0}\nTASKS = {'T': 'T'}\nDOCUMENTED = ('T',)\n"
    install(
        site, "sorry", f"{head}def spec(algorithm, task, seed):\n    return {spec}", "[rlbench.suites]\nsorry=sorry"
    )
    exit_code, _, error = run_command(["run", "sorry", "dqn"])
    assert exit_code == 2 and len(error.splitlines()) == 1 and "sorry/dqn of sorry" in error and text in error


def test_a_suite_without_a_documented_task_wants_the_name_of_one(site: Path) -> None:
    code = "from rlbench.suites.toy import ALGORITHMS, TASKS, spec\nDOCUMENTED = ()\n"
    install(site, "bare", code, "[rlbench.suites]\nbare = bare\n")
    assert "bare has no documented task; name one with --task: " in stderr_of("run bare dqn --dry-run")


@pytest.mark.slow
def test_records_of_a_missing_plug_in_are_shown(corridor: Path, tmp_path: Path) -> None:
    sets = ("budget.steps=200", "budget.epoch=200", "algo.learning_starts=80", "protocol.episodes=2", "protocol.envs=2")
    carry(resolve("corridor", "dqn", "Corridor", sets=sets).spec, tmp_path / "work/results")
    for path in corridor.iterdir():
        path.unlink()
    forget()
    Path("results/README.md").write_text("no folder of a suite")
    Path("results/tables").mkdir()
    code, out, error = run_command(["table", "corridor", "--format", "md"])
    assert code == 0, error
    assert "| dqn | Corridor |" in out and "no installed package brings it" in out
    assert len(error.splitlines()) == 1 and "corridor" in error
    for words in (
        ["table", "all"],
        ["status"],
        ["list", "runs"],
        ["verify", "results"],
        ["report", "--output", "r.html"],
    ):
        assert run_command(words)[0] == 0, words


def test_only_installed_packages_are_imported(site: Path) -> None:
    Path("planted.py").write_text("raise AssertionError('imported from the current folder')")
    (site / "lying_around.py").write_text("raise AssertionError('belongs to no distribution')")
    install(site, "raising", "raise RuntimeError('no luck')")
    for name, text in {
        "planted": "no installed package",
        "lying_around": "no installed package",
        "os": "no installed package",
        "nothing": "no installed package",
        "a b": "no name of a package",
        "../planted": "no name of a package",
        "raising": "RuntimeError: no luck",
    }.items():
        with pytest.raises(UsageError, match=text):
            plugins.import_package(name)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("entry_points.txt", b"\xff\xfe[rl"),
        ("entry_points.txt", b"[rlbench.suites\ndamaged == "),
        ("entry_points.txt", b"[rlbench.suites]\ndamaged = damaged:x y z"),
        ("METADATA", b"\xff\xfe\0"),
        ("METADATA", b"Name: damaged\n"),
        *(
            ("direct_url.json", text)
            for text in (b"{bad", b"[]", b'{"url": 5}', b'{"url": "http://[x"}', b"\xff", b"\0")
        ),
        ("RECORD", b"\xff\xfe"),
    ],
)
def test_damaged_metadata_of_another_package_harm_no_command(file: str, content: bytes, site: Path) -> None:
    """As a killed ``pip install`` leaves them."""
    install(site, "damaged", "", "[rlbench.suites]\ndamaged = damaged\n")
    install(site, "whole", "")
    (site / "damaged-1.0.dist-info" / file).write_bytes(content)
    (site / "nobodys.py").touch()
    assert ("damaged" in plugins.plugins()) == (file in {"direct_url.json", "RECORD"})
    assert plugins.import_package("whole") == plugins.Package("whole", "1.0")
    with pytest.raises(UsageError, match="no installed package brings it"):
        plugins.import_package("nobodys")


def test_damaged_metadata_end_no_command_while_a_library_is_imported(site: Path) -> None:
    """Pydantic and torch read the entry points of all packages, for plug-ins of their own."""
    install(site, "damaged", "")
    (site / "damaged-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[rl")
    program = "from rlbench.cli.app import main; import torch; main(['list', 'suites'])"
    done = run_process([sys.executable, "-P", "-c", program], PYTHONPATH=f"{site}:{ROOT}")
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_prints_one_row_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_findings", lambda *_: [doctor.Finding("ok", "suite", "x\nmissing  torch: none")])
    assert len(stdout_of("doctor").splitlines()) == 1


@pytest.mark.slow
def test_a_module_of_the_current_folder_never_stands_in_for_a_plug_in(wheel: Path, tmp_path: Path) -> None:
    planted = "import os\nopen(os.environ['CANARY'], 'w').close()\n"
    for name in ("corridor_suite.py", "evil.py"):
        (tmp_path / name).write_text(planted)
    (tmp_path / "evil-1.0.dist-info").mkdir()
    (tmp_path / "evil-1.0.dist-info/METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (tmp_path / "evil-1.0.dist-info/entry_points.txt").write_text("[rlbench.suites]\nevil = evil\n")
    code = "import sys; sys.path.insert(0, ''); from rlbench.cli.app import main; sys.exit(main())"
    environ = {**os.environ, "PYTHONPATH": f"{wheel}:{ROOT}", "CANARY": str(tmp_path / "canary")}
    command = [sys.executable, "-P", "-c", code, "list", "tasks"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "corridor\tCorridor" in done.stdout and "evil" not in done.stdout + done.stderr
    assert not (tmp_path / "canary").exists()


def test_an_id_with_a_module_is_refused_since_gymnasium_would_import_it() -> None:
    with pytest.raises(ValueError, match="has no colon"):
        GymnasiumTask(id="gym:antigravity:Env-v0")


class Pictured(gymnasium.Env[np.ndarray, int]):
    """Frames of one gray level a step, and rewards beyond one."""

    observation_space = gymnasium.spaces.Box(0, 255, (96, 120, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        self.level = 10
        return np.full((96, 120, 3), self.level, np.uint8), {}

    def step(self, action):
        self.level += 20
        info = {"score": 100.0, "over": False}  # of no meaning in Gymnasium
        return np.full((96, 120, 3), self.level, np.uint8), -7.0, self.level > 60, False, info


def test_frames_become_gray_and_small_and_rewards_are_clipped_in_training_alone() -> None:
    task = GymnasiumTask(id="Pictured", size=84, stack=4, clip=True)

    def steps(*, training: bool) -> list[Step]:
        envs = external_vector(task, seeds=(0, 1), training=training, make=lambda *_: Pictured())
        first = envs.reset()
        assert first.shape == (2, 84, 84) and first.dtype == np.uint8 and (first == 10).all()
        answers = []
        for _ in range(3):
            envs.send(np.zeros(2, np.int64))
            answers.append(envs.recv())
        return answers

    training_steps, evaluated = steps(training=True), steps(training=False)
    assert [int(step.obs[0, 0, 0]) for step in training_steps] == [30, 50, 70]
    assert [step.reward[0] for step in training_steps] == [-1.0] * 3 and [step.reward[0] for step in evaluated] == [
        -7.0
    ] * 3
    assert [step.score[1] for step in training_steps] == [-7.0] * 3 and training_steps[-1].game_over.all()


@pytest.mark.usefixtures("site")
def test_clipped_rewards_of_vectors_are_refused_since_none_are_clipped() -> None:
    words = ["run", "toy", "dqn", "--task", "gym:CartPole-v1", *QUICK]
    assert "task.clip: gym:CartPole-v1 shows vectors" in stderr_of([*words, "--set", "task.clip=true"])
    task = suites.spec("toy", "dqn", "gym:CartPole-v1").task.model_copy(update={"clip": True})
    older = suites.spec("toy", "dqn", "gym:CartPole-v1").model_copy(update={"task": task})  # of earlier code
    assert isinstance(older.task, GymnasiumTask) and older.task.clip
    assert external_vector(older.task, seeds=(0,), training=False, make=None).info.obs_shape == (4,)
    assemble.build(older, Runtime(device="cpu"), describe(older)).close()  # as `verify --replay` does


def test_observations_that_do_not_suit_the_settings_are_refused_with_advice() -> None:
    with pytest.raises(UsageError, match="suite atari"):
        external_vector(GymnasiumTask(id="P"), seeds=(0,), training=True, make=lambda *_: Pictured())
    with pytest.raises(UsageError, match="mujoco or toy"):
        external_vector(GymnasiumTask(id="gym:CartPole-v1", size=84), seeds=(0,), training=True, make=None)
    with pytest.raises(BrokenEnvironment, match="returns int, no env"):
        external_vector(GymnasiumTask(id="P", package="p"), seeds=(0,), training=True, make=lambda *_: 3)
    task = GymnasiumTask(id="P", package="p", version="1")
    with pytest.raises(BrokenEnvironment, match="P of p 1: ZeroDivisionError"):
        external_vector(task, seeds=(0,), training=True, make=lambda *_: 1 // 0)


def test_a_plugins_task_of_the_name_of_a_toy_is_not_taken_for_it() -> None:
    spec = suites.spec("toy", "ppo", "Catch")
    bytes_of_catch, algo = footprint(spec).replay, spec.algo.model_dump() | {"normalize_obs": True}
    task = GymnasiumTask(id="Catch", suite="p", package="p", envs=spec.task.envs)
    spec = Spec.model_validate(spec.model_dump() | {"task": task.model_dump(), "algo": algo})
    assert footprint(spec).replay > bytes_of_catch  # vectors of floats
    with pytest.raises(UsageError, match="Catch renders no frames"):
        record_video(spec, mock.Mock(seeds=(0,)))


def test_an_environments_own_info_is_neither_its_score_nor_its_end() -> None:
    class Flat(Pictured):
        observation_space = gymnasium.spaces.Box(0, 255, (2,), np.float32)

        def step(self, action):
            return np.zeros(2, np.float32), *super().step(action)[1:]

        def reset(self, *, seed=None, options=None):
            super().reset()
            return np.zeros(2, np.float32), {}

    envs = plugin_vector(lambda *_: Flat())
    envs.reset()
    for over in (False, False, True):
        envs.send(np.zeros(1, np.int64))
        step = envs.recv()
        assert (step.score[0], step.game_over[0]) == (-7.0, over)


def plugin_vector(make: Callable[..., object]) -> VectorEnv:
    task = GymnasiumTask(id="P", package="p", version="1")
    return external_vector(task, seeds=(3,), training=True, make=make)


def test_plugin_can_provide_a_vector_environment_with_snapshots() -> None:
    envs, other = (plugin_vector(lambda _, seeds: ClassicVector(task="CartPole-v1", seeds=seeds)) for _ in range(2))
    assert isinstance(envs, Snapshot) and isinstance(other, Snapshot)
    envs.reset()
    other.load_state_dict(envs.state_dict())
    for vector in (envs, other):
        vector.send(np.ones(1, np.int64))
    assert (envs.recv().obs == other.recv().obs).all()


def raising(base: type, method: str, error: BaseException) -> type:
    """A class of environments of which one method or property raises."""
    raises = mock.Mock(side_effect=error)
    return type("Raising", (base,), {method: raises if callable(getattr(base, method)) else property(raises)})


@pytest.mark.parametrize("error", [SystemExit(0), ValueError("wrong"), CancelledError()])
@pytest.mark.parametrize(
    ("base", "method"),
    [(ClassicVector, name) for name in ("reset", "send", "recv", "state_dict", "close")]
    + [(CartPoleEnv, name) for name in ("reset", "step", "np_random", "close")],
)
def test_an_error_of_an_environment_is_its_own_wherever_it_is_raised(
    base: type, method: str, error: BaseException
) -> None:
    kind = raising(base, method, error)
    ends = nullcontext() if method == "close" else pytest.raises(BrokenEnvironment, match=f"P.*{type(error).__name__}")
    with ends:
        envs = plugin_vector(
            lambda _, seeds: kind(task="CartPole-v1", seeds=seeds) if base is ClassicVector else kind()
        )
        envs.reset()
        envs.send(np.zeros(1, np.int64))
        envs.recv()
        if isinstance(envs, Snapshot):
            envs.state_dict()
        if isinstance(envs, GymnasiumVector):
            envs.episodes_state()
        envs.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("obs", np.zeros((1, 4))),
        ("obs", np.zeros((2, 4), np.float32)),
        ("reward", np.zeros(3, np.float32)),
        ("reward", np.zeros(1, np.complex64)),
        ("terminated", np.array(["False"])),
        ("truncated", np.array([np.nan])),
        ("env_id", np.array([-1])),
        ("reward", [0.0]),
        ("terminated", np.array([True])),
    ],
)
def test_a_wrong_answer_of_a_plugins_vector_is_named(column: str, value: np.ndarray) -> None:
    class Wrong(ClassicVector):
        def recv(self) -> Step:
            return super().recv()._replace(**{"truncated": np.array([True]), column: value})

    envs = plugin_vector(lambda _, seeds: Wrong(task="CartPole-v1", seeds=seeds))
    envs.reset()
    for _ in range(2):  # at the second step too
        envs.send(np.zeros(1, np.int64))
        with pytest.raises(
            BrokenEnvironment, match=f"P: step \\d: .*Error: ({column} of shape|{column} is of|env_id is not)"
        ):
            envs.recv()


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, "TypeError: snapshot is of type NoneType, promised"),
        (3, "TypeError: snapshot is of type int, promised a dict"),
        ({"a": {}}, r"TypeError: snapshot\['a'\] is of type dict, promised .* filled dict"),
        ({"a": torch.eye(2).to_sparse()}, r"TypeError: snapshot\['a'\] is of type Tensor, promised a real dense"),
        ({"a": "\udce9"}, r"TypeError: snapshot\['a'\] is of type str"),
        ({"\udce9": 2}, "TypeError: snapshot has key"),
        ({"a": {"b": np.zeros(2)}}, r"TypeError: snapshot\['a'\]\['b'\] is of type ndarray"),
        ({"a": float("nan")}, r"TypeError: snapshot\['a'\] is nan"),
        ({1: 2}, "TypeError: snapshot has key 1"),
        ({"a/b": 2}, "TypeError: snapshot has key 'a/b'"),
    ],
)
def test_a_snapshot_that_no_checkpoint_holds_is_named(state: object, text: str) -> None:
    kind = type("Wrong", (ClassicVector,), {"state_dict": lambda _: state})
    envs = plugin_vector(lambda _, seeds: kind(task="CartPole-v1", seeds=seeds))
    assert isinstance(envs, Snapshot)
    with pytest.raises(BrokenEnvironment, match=text):
        envs.state_dict()


def test_tensors_of_a_snapshot_that_share_memory_are_saved(tmp_path: Path) -> None:
    place = torch.arange(3.0)
    kind = type("Shared", (ClassicVector,), {"state_dict": lambda _: {"place": place, "rest": place[1:], "steps": 4}})
    envs = plugin_vector(lambda _, seeds: kind(task="CartPole-v1", seeds=seeds))
    assert isinstance(envs, Snapshot)
    checkpoint.save(tmp_path / "c", envs.state_dict())
    loaded = checkpoint.load(tmp_path / "c")
    assert {name: torch.as_tensor(value).tolist() for name, value in loaded.items()} == {
        "place": [0, 1, 2], "rest": [1, 2], "steps": 4
    }  # fmt: skip


def test_too_few_envs_and_first_observations_are_named() -> None:
    with pytest.raises(BrokenEnvironment, match="P of p 1: ValueError: its info has 2 envs for 1 seeds"):
        plugin_vector(lambda *_: ClassicVector(task="CartPole-v1", seeds=(3, 4)))
    info = ClassicVector(task="CartPole-v1", seeds=(3,)).info._replace(actions=Discrete(0))
    with pytest.raises(BrokenEnvironment, match="P of p 1: ValueError: its info has 0 actions"):
        plugin_vector(lambda *_: mock.Mock(spec=VectorEnv, info=info))
    for wrong, reason in (
        ({"obs_dtype": np.dtype(np.float64)}, "its info has observations of float64, promised uint8, float32 or int64"),
        ({"actions": Box(np.zeros((2, 3)), np.ones((2, 3)))}, r"its info has actions of the shape \[2, 3\], promised"),
    ):
        vector = mock.Mock(spec=VectorEnv, info=info._replace(**{"actions": Discrete(2), **wrong}))
        with pytest.raises(BrokenEnvironment, match=f"P of p 1: ValueError: {reason}"):
            plugin_vector(mock.Mock(return_value=vector))
    kind = type("Wrong", (ClassicVector,), {"reset": lambda _: np.zeros((0, 4), np.float32)})
    envs = plugin_vector(lambda _, seeds: kind(task="CartPole-v1", seeds=seeds))
    with pytest.raises(BrokenEnvironment, match="P: 0 first observations, promised 1"):
        envs.reset()


ROAMING = """
import os, signal
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

def roam(place):
    if place == PLACE:
        os.chdir("/")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

class Roaming(CartPoleEnv):
    steps = 0
    def __init__(self):
        super().__init__()
        roam("constructor")
    def reset(self, **options):
        roam("reset")
        return super().reset(**options)
    def step(self, action):
        Roaming.steps += 1
        if Roaming.steps == 100:
            os.kill(os.getpid(), signal.SIGTERM)
        roam("step")
        return super().step(action)

roam("import")
gymnasium.register("Roaming-v0", Roaming, max_episode_steps=50)
"""


@pytest.mark.parametrize("place", ["import", "constructor", "reset", "step"])
def test_an_environment_that_changes_folder_and_signal_handlers_moves_no_record(
    place: str, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "roaming", ROAMING.replace("PLACE", repr(place)))
    monkeypatch.chdir(tmp_path)
    words = ["run", "toy", "dqn", "--task", "gym:Roaming-v0", "--import", "roaming", *QUICK, "--results", "results"]
    one_env = ("task.envs=1", "protocol.envs=1", "protocol.episodes=1")
    stderr_of([*words, *(word for setting in one_env for word in ("--set", setting))], 143)
    assert Path.cwd() == tmp_path
    (folder,) = (path.parent for path in (tmp_path / "results").rglob("spec.json"))
    assert (folder / "checkpoint" / "resume").exists()


@pytest.mark.parametrize("space", ["action_space", "observation_space"])
def test_an_error_of_a_space_is_the_environments(space: str) -> None:
    kind = type("Raising", (Pictured,), {space: property(mock.Mock(side_effect=SystemExit(0)))})
    with pytest.raises(BrokenEnvironment, match="P of p 1: SystemExit"):
        external_vector(
            GymnasiumTask(id="P", package="p", version="1", size=84), seeds=(3,), training=True, make=lambda *_: kind()
        )
