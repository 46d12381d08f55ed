"""The code path of CONTRIBUTING.md: its nine files are short, and a step of DQN matches its table."""

import ast
import re

import pytest
import torch

from benchmarks.rigs import online
from rlbench import suites
from rlbench.algorithms.dqn import QLearner
from rlbench.assembly.environments import describe
from rlbench.buffers.ring import RingBuffer
from rlbench.collectors.sync import Collector
from rlbench.config.online import QLearningConfig
from rlbench.config.overrides import apply_settings, parse
from rlbench.config.run import Runtime
from rlbench.nets.q_heads import DQNHead
from rlbench.ops.return_distributions import ExpectedReturn
from tests.laws import budgets
from tests.laws.source import ROOT, tree

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| \d \| `(.+?)` \| (.+?) \| (.+ \| .+) \|$", TEXT, re.MULTILINE)
MODULES = {module.path: module for module in tree()}


def code_lines(path: str, name: str) -> int:
    """Lines of a class, without blank lines and docstrings."""
    module = MODULES[path]
    (node,) = (node for node in module.tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    count = sum(bool(line.strip()) for line in module.text.splitlines()[node.lineno - 1 : node.end_lineno])
    for inner in ast.walk(node):
        if isinstance(inner, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(inner):
            count -= (inner.body[0].end_lineno or 0) - inner.body[0].lineno + 1
    return count


def test_reading_path_has_nine_short_files() -> None:
    assert tuple(path for path, _, _ in ROWS) == budgets.PATH
    assert len(budgets.PATH) == 9
    assert sum(len(MODULES[path].text.splitlines()) for path in budgets.PATH) < budgets.READING


MAP = TEXT.partition("## A map\n")[2].partition("\n## ")[0]
PLACES = sorted(set(re.findall(r"`(rlbench/\w[\w/]*\.py)(?::([\w.]+))?`", MAP)))


def definition(path: str, name: str) -> ast.ClassDef | ast.FunctionDef:
    """The statement that defines ``Class``, ``function`` or ``Class.method``; fails without one."""
    node: ast.Module | ast.ClassDef | ast.FunctionDef = MODULES[path].tree
    for part in name.split("."):
        (node,) = (n for n in node.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == part)
    assert not isinstance(node, ast.Module)
    return node


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_every_name_on_the_map_exists(path: str, name: str) -> None:
    assert path in MODULES
    if name:
        definition(path, name)


def test_the_map_counts_the_lines_of_an_algorithm() -> None:
    rows = re.findall(r"^\| (.+?) \| (`rlbench/.+`) \| (\d+) \|$", MAP, re.MULTILINE)
    assert len(rows) >= 20
    for algorithm, places, lines in rows:
        count = 0
        for path, name in re.findall(r"`(.+?\.py)(?::([\w.]+))?`", places):
            node = definition(path, name) if name else None
            count += (node.end_lineno or 0) - node.lineno + 1 if node else len(MODULES[path].text.splitlines())
        assert int(lines) == pytest.approx(count, rel=0.2, abs=5), algorithm


@pytest.mark.parametrize(("path", "names"), [row[:2] for row in ROWS])
def test_every_function_of_the_table_is_in_its_file(path: str, names: str) -> None:
    defined = {
        f"{outer.name}.{inner.name}"
        for outer in MODULES[path].tree.body
        if isinstance(outer, ast.ClassDef)
        for inner in outer.body
        if isinstance(inner, ast.FunctionDef)
    }
    functions = re.findall(r"`(.+?)`", names)
    assert functions and set(functions) <= defined


def test_c51_adds_few_lines_to_dqn() -> None:
    counts = [code_lines(path, name) for path, name in budgets.C51]
    assert "{} lines of its return distribution, {} of its head and {} of its settings".format(*counts) in TEXT
    assert sum(counts) <= budgets.DIFFERENCE


@pytest.mark.slow
def test_a_step_of_dqn_has_the_shapes_of_the_table() -> None:
    spec = apply_settings(suites.spec("atari", "dqn", "BreakoutNoFrameskip-v4"), [parse("algo.replay.capacity=1000")])
    trainer = online(spec, Runtime(device="cpu", threads=1), describe(spec))
    collector, ring, learner = trainer.collector, trainer.buffer, trainer.learner
    assert isinstance(collector, Collector) and isinstance(ring, RingBuffer) and isinstance(learner, QLearner)
    collector.open(0)
    steps = [collector.step() for _ in range(12)]
    collector.close()
    batch = ring.sample(32)
    head, algo = learner.online.head, spec.algo
    assert isinstance(head, DQNHead) and isinstance(algo, QLearningConfig)
    with torch.no_grad():
        features = learner.online.torso(batch.obs)
        streams = head.streams(features, "learn")
        value = head(features, "learn")
        goal = learner.bootstrap_value(batch.next_obs).backup(batch.reward, batch.discount)
        assert isinstance(value, ExpectedReturn) and isinstance(goal, ExpectedReturn)
        error = value.at(batch.action).loss(goal)
    tensors_of = {
        2: (collector.obs, ring.obs[0], ring.reward[0]),
        3: (batch.obs, batch.next_obs, batch.weight),
        6: (batch.obs, features),
        7: (features, streams),
        8: (value.q,),
        9: (batch.reward, error),
    }
    assert steps[-1] == 10 and algo.updates_per_step == 0.1
    for number, tensors in tensors_of.items():
        for tensor in tensors:
            shape = [*map(str, tensor.shape)]
            if number in {7, 8} and len(shape) > 1 and shape[1] == "4":  # Breakout's actions
                shape[1] = "A"
            assert f"[{', '.join(shape)}]" in ROWS[number - 1][2], (number, shape)
