"""Every law on examples of violations: it reports the line that ends with ``# !``, and no other."""

import pytest

from tests.laws import bans, budgets, layers, vocabulary, words, writes
from tests.laws.source import Law, Module
from tests.laws.test_laws import LAWS

LONG_FUNCTION = "def f() -> None:  # !\n" + "    g()\n" * budgets.FUNCTION
LONG_MODULE = "x = 1\n" * budgets.MODULE + "x = 2  # !\n"
LONG_LEARNER = "x = 1\n" * budgets.LEARNER + "x = 2  # !\n"
LONG_COMMAND = "def f(\n" + "    a: int,\n" * 30 + ") -> None:\n" + "    g()\n" * budgets.FUNCTION

VIOLATIONS: list[tuple[Law, str, str]] = [
    (layers.units_have_layers, "agents/dqn.py", "x = 1  # !"),
    (layers.units_have_layers, "callbacks.py", "x = 1  # !"),
    (layers.downwards, "ops/return_distributions.py", "from rlbench.nets import q_heads  # !"),
    (layers.downwards, "ops/return_distributions.py", "def f() -> None:\n    import rlbench.run  # !"),
    (
        layers.downwards,
        "ops/return_distributions.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import rlbench.assembly  # !",
    ),
    (
        layers.downwards,
        "ops/return_distributions.py",
        "from importlib import import_module\nimport_module('rlbench.cli.app')  # !",
    ),
    (layers.downwards, "ops/return_distributions.py", "from .types import Role  # !"),
    (layers.downwards, "ops/return_distributions.py", "from rlbench import agents  # !"),
    (layers.downwards, "nets/q_heads.py", "from rlbench.buffers.ring import Ring  # !"),
    (layers.downwards, "buffers/ring.py", "from rlbench.envs.base import VectorEnv  # !"),
    (layers.downwards, "envs/toy.py", "import rlbench.nets.torsos as t  # !"),
    (layers.downwards, "algorithms/sac.py", "from rlbench.buffers.ring import Ring  # !"),
    (layers.downwards, "algorithms/sac.py", "from rlbench.envs.base import VectorEnv  # !"),
    (layers.downwards, "algorithms/sac.py", "from rlbench.collectors import sync  # !"),
    (layers.downwards, "collectors/sync.py", "from rlbench.algorithms.base import Learner  # !"),
    (layers.downwards, "errors.py", "from rlbench.config.run import Spec  # !"),
    (layers.downwards, "records/store.py", "from rlbench import suites  # !"),
    (layers.downwards, "checkpoint.py", "from rlbench.assembly import build  # !"),
    (layers.training_sees_protocols, "training/online.py", "from rlbench.algorithms.dqn import QLearner  # !"),
    (layers.training_sees_protocols, "training/online.py", "from rlbench.buffers import ring  # !"),
    (
        layers.families_in_assembly,
        "suites/toy.py",
        "from rlbench.config import online\nif isinstance(x, int | online.Soft):  # !\n    pass",
    ),
    (
        layers.families_in_assembly,
        "report/cells.py",
        "from rlbench.config.offline import TD3BC\nmatch x:\n    case TD3BC():  # !\n        pass",
    ),
    (layers.families_in_assembly, "suites/offline.py", "if spec.algo.method.kind == 'td3bc':  # !\n    pass"),
    (layers.light_imports, "datasets/torchfile.py", "import torch  # !"),
    (layers.light_imports, "datasets/sb3_import.py", "def f() -> None:\n    import torch  # !"),
    (layers.light_imports, "config/run.py", "import torch  # !"),
    (layers.light_imports, "config/run.py", "import numpy as np  # !"),
    (layers.light_imports, "suites/atari.py", "import ale_py  # !"),
    (layers.light_imports, "records/store.py", "def f() -> None:\n    import torch.nn  # !"),
    (layers.light_imports, "report/run_index.py", "from rlbench.ops.return_distributions import Expected  # !"),
    (layers.light_imports, "report/plots.py", "def f() -> None:\n    from rlbench.run import run  # !"),
    (layers.light_imports, "cli/run.py", "from rlbench.run import run  # !"),
    (layers.light_imports, "cli/doctor.py", "class C:\n    import gymnasium  # !"),
    (layers.empty_packages, "ops/__init__.py", '"""Pure functions."""  # !'),
    (layers.empty_packages, "__init__.py", 'import rlbench.run  # !\n__version__ = "1"'),
    (layers.declared, "nets/q_heads.py", "import scipy, einops  # !"),
    (layers.declared, "envs/envpool.py", "import envpool  # !"),
    (layers.declared, "ops/return_distributions.py", "from hypothesis import given  # !"),
    (budgets.short_modules, "ops/return_distributions.py", LONG_MODULE),
    (budgets.short_modules, "algorithms/sac.py", LONG_LEARNER),
    (budgets.short_functions, "ops/return_distributions.py", LONG_FUNCTION),
    (budgets.short_functions, "ops/losses.py", "class C:\n    async " + LONG_FUNCTION.replace("\n", "\n    ")),
    (budgets.short_functions, "cli/run.py", LONG_COMMAND + "    g()\n"),
    (budgets.descriptive_names, "ops/utils.py", "x = 1  # !"),
    (budgets.descriptive_names, "ops/helpers/value.py", "x = 1  # !"),
    (budgets.descriptive_names, "envs/toy.py", "class BaseEnv: ...  # !"),
    (budgets.descriptive_names, "envs/toy.py", "class ReplayManager: ...  # !"),
    (budgets.descriptive_names, "ops/return_distributions.py", "def f(loss_fn: int) -> None: ...  # !"),
    (budgets.descriptive_names, "ops/return_distributions.py", "def loss_fn() -> None: ...  # !"),
    (writes.writes_have_fault_points, "records/store.py", "def f(path):\n    path.unlink()  # !"),
    (writes.writes_have_fault_points, "records/store.py", "def f(path):\n    path.replace(path)  # !"),
    (writes.writes_have_fault_points, "records/store.py", "def f(p):\n    with p.open('ab'), p.open('wb'): ...  # !"),
    (
        writes.writes_have_fault_points,
        "checkpoint.py",
        "from rlbench.faults import point\nimport os\ndef f():\n    point('x')\ndef g():\n    os.rename('a', 'b')  # !",
    ),
    (bans.banned_names, "buffers/ring.py", "import numpy as np\nx = np.random.rand(3)  # !"),
    (bans.banned_names, "buffers/ring.py", "from numpy import random as r  # !\nx = r.normal()  # !"),
    (bans.banned_names, "buffers/ring.py", "from numpy.random import seed  # !\nseed(0)  # !"),
    (bans.banned_names, "report/estimate.py", "import random  # !"),
    (bans.banned_names, "report/estimate.py", "from random import choice  # !"),
    (bans.banned_names, "algorithms/sac.py", "import torch\ntorch.manual_seed(0)  # !"),
    (bans.banned_names, "algorithms/sac.py", "import torch as t\nt.cuda.manual_seed_all(0)  # !"),
    (bans.banned_names, "checkpoint.py", "import torch\nx = torch.load('f')  # !"),
    (bans.banned_names, "checkpoint.py", "import torch\ntorch.save({}, 'f')  # !"),
    (bans.banned_names, "records/store.py", "import pickle  # !"),
    (bans.banned_names, "records/store.py", "from pickle import loads  # !"),
    (bans.banned_names, "checkpoint.py", "from torch import jit\nx = jit.load('f')  # !"),
    (bans.banned_names, "checkpoint.py", "import dill  # !\nx = dill.loads(b'')  # !"),
    (bans.banned_names, "checkpoint.py", "import joblib  # !"),
    (bans.banned_names, "records/store.py", "import marshal  # !"),
    (bans.banned_names, "records/store.py", "import shelve  # !"),
    (bans.banned_names, "datasets/sb3_import.py", "import shutil\nshutil.unpack_archive('f')  # !"),
    (bans.banned_names, "datasets/sb3_import.py", "import runpy  # !"),
    (bans.banned_names, "records/machine.py", "import os\nos.system('ls')  # !"),
    (bans.banned_names, "records/machine.py", "from os import popen  # !"),
    (bans.banned_names, "config/overrides.py", "x = eval('1')  # !"),
    (bans.banned_names, "config/overrides.py", "def f() -> None:\n    exec('1')  # !"),
    (bans.banned_names, "config/overrides.py", "import yaml  # !\nx = yaml.load('1')  # !"),
    (bans.banned_names, "run.py", "print('epoch')  # !"),
    (bans.banned_names, "run.py", "import logging  # !"),
    (bans.banned_names, "run.py", "import sys\nsys.stderr.write('epoch')  # !"),
    (bans.banned_names, "training/clock.py", "import time\nnow = time.time()  # !"),
    (bans.banned_names, "training/clock.py", "from time import time  # !"),
    (bans.banned_names, "training/clock.py", "from datetime import datetime\nnow = datetime.now()  # !"),
    (bans.banned_names, "envs/ale.py", "import warnings\nwarnings.filterwarnings('ignore')  # !"),
    (bans.banned_names, "ops/types.py", "from typing import Any  # !"),
    (bans.banned_names, "config/tasks.py", "import typing as t\nx: t.Any = 1  # !"),
    (bans.own_generators, "buffers/samplers.py", "import torch\nx = torch.rand(3)  # !"),
    (bans.own_generators, "algorithms/ppo.py", "from torch import randperm\nx = randperm(3)  # !"),
    (bans.own_generators, "envs/toy.py", "import numpy as np\nx = np.random.default_rng()  # !"),
    (bans.no_waiting, "algorithms/sac.py", "def f(loss):\n    return loss.item()  # !"),
    (bans.no_waiting, "nets/q_heads.py", "def f(x):\n    return x.mean().cpu()  # !"),
    (bans.no_waiting, "training/updates.py", "class MeanMetrics:\n    def add(self):\n        self.sums.tolist()  # !"),
    (bans.no_device_moves, "nets/q_heads.py", "class C:\n    def f(self, device):\n        self.device = device  # !"),
    (bans.no_device_moves, "buffers/ring.py", "def f(x, device):\n    return x.to(device)  # !"),
    (bans.no_device_moves, "ops/losses.py", "def f(x, y):\n    return x.to(dtype=y.dtype, device=y.device)  # !"),
    (bans.no_device_moves, "algorithms/sac.py", "def f(x):\n    return x.cuda()  # !"),
    (bans.roles_not_modes, "algorithms/sac.py", "def f(net):\n    net.eval()  # !"),
    (bans.roles_not_modes, "collectors/evaluate.py", "def f(net):\n    net.train(False)  # !"),
    (bans.safe_reading, "datasets/torchfile.py", "import torch\nx = torch.load('f')  # !"),
    (bans.safe_reading, "datasets/torchfile.py", "import torch\nx = torch.load('f', weights_only=False)  # !"),
    (bans.banned_names, "datasets/sb3_import.py", "import torch\nx = torch.load('f', weights_only=True)  # !"),
    (bans.safe_reading, "buffers/dataset.py", "def f(np):\n    np.load('x', allow_pickle=True)  # !"),
    (bans.safe_reading, "checkpoint.py", "def f(load):\n    load('x', weights_only=False)  # !"),
    (bans.safe_reading, "records/machine.py", "import subprocess\nsubprocess.run('ls', shell=True)  # !"),
    (bans.safe_import_path, "sweep/local.py", "import sys\nx = [sys.executable, '-m', 'rlbench']  # !"),
    (
        bans.safe_import_path,
        "evaluation/pool.py",
        "x = ('-c', 'pass')  # !\ny = ('-P', '-m', 'rlbench')\nz = ['git', '-c', 'a=b']",
    ),
    (bans.safe_import_path, "datasets/shard_conversion.py", "import multiprocessing as m\nm.get_context('spawn')  # !"),
    (bans.safe_reading, "datasets/sb3_import.py", "def f(file):\n    file.extractall('x')  # !"),
    (bans.no_pass_through, "assembly/assemble.py", "def f(**options):\n    return g(1, **options)  # !"),
    (bans.no_type_ignore, "ops/return_distributions.py", "x = 1  # type: ignore[misc]  # !"),
    (words.shapes, "ops/losses.py", 'def f(x: Tensor) -> float:  # !\n    """The largest."""'),
    (words.shapes, "buffers/ring.py", 'class C:\n    def f(self) -> NDArray[np.int64]:  # !\n        """All."""'),
    (words.shapes, "nets/q_heads.py", "class C:\n    def __call__(self, x: torch.Tensor) -> None: ...  # !"),
    (words.documented_errors, "records/store.py", 'def f() -> None:  # !\n    """It."""\n    raise RefusedFile("x")'),
    (
        words.documented_errors,
        "config/run.py",
        'class C:\n    def f(self) -> None:  # !\n        """It."""\n        raise ValueError',
    ),
    (
        words.sources,
        "algorithms/sac.py",
        'class C:\n    """S."""\n    def critic_loss(self) -> None:  # !\n        """It."""',
    ),
    (words.sources, "ops/losses.py", "def loss() -> None: ...  # !"),
    (vocabulary.house_words, "ops/losses.py", 'def f(lanes):\n    """Judge it."""  # !\n    ring.lane = 1  # !'),
    (vocabulary.house_words, "buffers/ring.py", "x = 1  # the slope  # !\ny = 'it has told us'  # !\nLANES = 2  # !"),
    (vocabulary.house_words, "ops/losses.py", "def f(your_goal: int) -> None: ...  # !"),
    (
        vocabulary.noun_names,
        "ops/losses.py",
        "def f(known):  # !\n    for made in x:  # !\n        self._kept = 1  # !",
    ),
    (vocabulary.noun_names, "ops/losses.py", "match x:\n    case [1, *found]:  # !\n        y = (drawn := 1)  # !"),
    (vocabulary.docstring_openings, "buffers/ring.py", '"""What it does."""  # !\nX = 1\n"""Whether it does."""  # !'),
    (
        vocabulary.docstring_openings,
        "sweep/ray.py",
        'class C:\n    """How."""  # !\n    def f() -> None:\n        """Where."""  # !',
    ),
    (words.suppressions, "ops/losses.py", "import x  # noqa: F401 # !"),
    (words.suppressions, "ops/losses.py", "import x  # noqa - it is used # !"),
    (words.suppressions, "envs/toy.py", "import x  # type: ignore[import-untyped] # !"),
]

ALLOWED = [
    ("ops/losses.py", "import torch\nfrom rlbench.ops.types import Role\nfrom rlbench.seeds import Seeds\n"),
    ("ops/return_distributions.py", "import math\nrandom = math.pi\nx = random.real\n"),
    ("seeds.py", "import numpy as np\ndef f(s):\n    import torch\n    return np.random.Generator(np.random.PCG64(s))"),
    ("seeds.py", "def f(torch, device, number):\n    return torch.Generator(device).manual_seed(number)"),
    ("nets/q_heads.py", "import torch\ndef f(x):\n    return torch.rand(3, dtype=x.dtype).to(x.dtype)"),
    ("buffers/samplers.py", "import torch\ndef f(g):\n    return torch.rand(3, generator=g)"),
    ("envs/toy.py", "import numpy as np\nfrom typing import Any\ndef f(n: Any):\n    return np.random.default_rng(n)"),
    ("envs/envpool.py", "from importlib import import_module as f\nx = f('envpool')  # type: ignore[misc] - untyped"),
    ("training/updates.py", "class MeanMetrics:\n    def take(self):\n        return self.sums.tolist()"),
    ("collectors/sync.py", "def f(x, device):\n    return x.to(device), x.cpu().numpy()"),
    ("training/clock.py", "from time import monotonic\nfrom rlbench.algorithms.base import Learner\nnow = monotonic()"),
    ("assembly/assemble.py", "import torch\nfrom rlbench.training.online import OnlineTrainer\ntorch.manual_seed(0)"),
    ("records/machine.py", "def f(**more: object) -> dict[str, object]:\n    return {'a': 1, **more}"),
    ("report/tables.py", "import sys\nfrom rlbench import __version__, suites\nprint('', file=sys.stdout)"),
    ("cli/run.py", "import typer\ndef f() -> None:\n    from rlbench.run import run\n    run()"),
    ("cli/run.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rlbench.run import Trainer\n"),
    ("cli/run.py", LONG_COMMAND),
    ("checkpoint.py", "from rlbench import faults\ndef f(path):\n    path.unlink()\n    faults.point('x')"),
    ("records/files.py", "def f(path):\n    return path.open('r'), path.name.replace('a', 'b')"),
    ("cli/run.py", "def f(path):\n    path.unlink()"),
    ("__main__.py", "from rlbench.cli.app import main\nmain()"),
    ("ops/__init__.py", ""),
    ("__init__.py", '"""The version."""\n__version__ = "1"'),
    ("buffers/hindsight.py", "def f(goal: int) -> None:\n    columns['told'] = head.lanes\n    ended = broken = goal"),
    ("ops/losses.py", 'def loss(x: Tensor) -> Tensor:\n    """Of ``[B]``, ``[]`` (1910.01708, eq. 3)."""'),
    ("ops/losses.py", "def _of(x: Tensor) -> Tensor:\n    raise ValueError"),
    ("ops/losses.py", 'def f():\n    """It.\n\n    Raises:\n        ValueError: no.\n    """\n    raise ValueError'),
    ("algorithms/sac.py", 'class C:\n    """arxiv.org/abs/1812.05905"""\n    def actor_loss(self):\n        """It."""'),
    ("datasets/rl_unplugged.py", "import json  # noqa: F401 - it is used by its name"),
    ("errors.py", "class Diverged(Exception): ...\ntry:\n    x = 1\nexcept Exception:\n    raise Diverged from None"),
]


def short(value: object) -> str | None:
    """Shorten the text of a long example for the name of its test."""
    return f"{len(value)} characters" if isinstance(value, str) and len(value) > 200 else None


@pytest.mark.parametrize(("law", "path", "text"), VIOLATIONS, ids=short)
def test_a_violation_is_reported_at_its_line(law: Law, path: str, text: str) -> None:
    expected = {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# !")}
    lines = {finding.line for finding in law(Module(f"rlbench/{path}", text))}
    assert lines == expected if expected else lines


@pytest.mark.parametrize(("path", "text"), ALLOWED, ids=short)
def test_allowed_code_is_not_reported(path: str, text: str) -> None:
    module = Module(f"rlbench/{path}", text)
    assert [(law.__name__, finding) for law in LAWS for finding in law(module)] == []


def test_an_import_circle_is_reported_with_all_its_modules() -> None:
    modules = [
        Module("rlbench/cli/a.py", "from rlbench.cli import b"),
        Module("rlbench/cli/b.py", "def f() -> None:\n    from rlbench.cli.c import FORMATS"),
        Module("rlbench/cli/c.py", "import rlbench.cli.a"),
        Module(
            "rlbench/cli/d.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from rlbench.cli.e import E"
        ),
        Module("rlbench/cli/e.py", "from rlbench.cli.d import D"),
    ]
    assert layers.circles(modules) == ["rlbench.cli.a", "rlbench.cli.b", "rlbench.cli.c"]
    assert layers.circles(modules[:2] + modules[3:]) == []


def test_a_dependency_that_no_module_imports_is_reported() -> None:
    modules = [
        Module("rlbench/ops/return_distributions.py", "import torch.nn\ndef f() -> None:\n    from PIL import Image"),
        Module("rlbench/cli/run.py", "from importlib import import_module\nx = import_module('wandb')"),
    ]
    assert layers.unused({"torch", "PIL", "wandb", "scipy", "pandas"}, modules) == ["pandas", "scipy"]


def test_every_law_has_an_example() -> None:
    assert {law for law, _, _ in VIOLATIONS} == set(LAWS)


def test_every_ban_has_an_example() -> None:
    messages = {f.message for _, path, text in VIOLATIONS for f in bans.banned_names(Module(f"rlbench/{path}", text))}
    assert [ban for ban in bans.BANS if not any(ban.instead in message for message in messages)] == []


def test_a_rule_that_the_settings_disable_without_a_reason_is_reported() -> None:
    rules = '[tool.ruff.lint]\nselect = ["ALL"]\nignore = [\n  "D203",  # why\n  "EM",\n]\n"x" = ["D1", "D2"]\n'
    assert words.unexplained_rules(rules + "[tool.ruff.lint.flake8-annotations]") == ['"EM",', '"x" = ["D1", "D2"]']


def test_names_defined_twice_and_chains_of_imports_are_counted() -> None:
    modules = [
        Module("rlbench/report/a.py", "def read() -> None:\n    from rlbench.report.b import write\n"),
        Module("rlbench/report/b.py", "from rlbench.report import c\nfrom rlbench.report.c import X\ndef read(): 0\n"),
        Module("rlbench/report/c.py", "if TYPE_CHECKING:\n    from rlbench.report.a import read\nclass X: ...\n"),
        Module("rlbench/config/x.py", "class X: ...\ndef _own(): ...\n"),
    ]
    assert (budgets.lines(modules), budgets.duplicate_names(modules), budgets.import_depth(modules)) == (10, 1, 3)
