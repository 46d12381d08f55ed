"""The laws, applied to the package as it stands."""

import ast
import statistics
from collections.abc import Callable

import pytest

from tests.laws import bans, budgets, layers, vocabulary, words, writes
from tests.laws.source import ROOT, Law, Module, tree
from tests.reliability.points import POINTS

LAWS: tuple[Law, ...] = (*layers.LAWS, *budgets.LAWS, *bans.LAWS, *writes.LAWS, *words.LAWS, *vocabulary.LAWS)


@pytest.mark.parametrize("law", LAWS)
def test_the_package_keeps_the_law(law: Law) -> None:
    findings = [f"{module.path}:{line}: {message}" for module in tree() for line, message in law(module)]
    assert not findings, "\n".join([(law.__doc__ or "").split("\n")[0], *findings])


def test_the_package_imports_every_core_dependency() -> None:
    idle = layers.unused(layers.core(), tree())
    assert not idle, f"{', '.join(idle)}: no module imports it; move it to an extra in pyproject.toml, or remove it"


def test_no_modules_import_each_other() -> None:
    assert layers.circles(tree()) == [], "move the common parts, such as constants of options, into a third module"


def test_the_median_module_is_short() -> None:
    lengths = [len(module.text.splitlines()) for module in tree() if module.tree.body]
    assert statistics.median(lengths) <= budgets.MEDIAN


@pytest.mark.parametrize(
    ("count", "most", "target", "step"), budgets.RATCHETS, ids=lambda value: getattr(value, "__name__", "")
)
def test_counts_of_the_package_only_decrease(
    count: Callable[[list[Module]], int], most: int, target: int, step: int
) -> None:
    now, name = count(tree()), (count.__doc__ or "").partition("\n")[0]
    assert now <= most, f"{name} {now:,}; {most:,} is the maximum, {target:,} the target: remove as much as you add"
    assert most - now < 2 * step, f"{name} {now:,}: lower the maximum in tests/laws/budgets.py from {most:,}"


def test_scripts_are_short_strict_and_have_a_description() -> None:
    scripts = (
        path for path in sorted((ROOT / "scripts").rglob("*")) if path.is_file() and path.suffix not in {".yaml", ".py"}
    )
    for path in [*scripts, ROOT / ".ci" / "run"]:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= budgets.LONG_SCRIPTS.get(path.name, budgets.SCRIPT), path
        assert lines[0] == "#!/usr/bin/env bash" and lines[1].startswith("# "), path
        assert "set -euo pipefail" in lines, path
        assert path.stat().st_mode & 0o111, f"{path} cannot be executed"


def test_every_fault_point_and_exception_is_used() -> None:
    names = set()
    for module in tree():
        for _, call in module.calls:
            if module.full(call.func) in {"rlbench.faults.point", "rlbench.faults.cut"}:
                names.add(ast.literal_eval(call.args[0]))
    assert names == set(POINTS)
    modules = {module.path: module for module in tree()}
    for path, function in writes.EXEMPT:
        assert any(name == function for name, _ in modules[path].calls), f"{path}: {function} is gone"


def test_every_permitted_device_synchronization_is_used() -> None:
    modules = {module.path: module for module in tree()}
    for path, function in bans.MAY_WAIT:
        waits = {inside for inside, call in modules[path].calls if call.func.__dict__.get("attr") in bans.WAITS}
        assert function in waits, f"{path}: {function} no longer waits; take it out of MAY_WAIT"


def test_every_noqa_and_disabled_rule_has_a_reason() -> None:
    findings = [f"{m.path}:{line}" for m in words.tests_and_benchmarks() for line, _ in words.suppressions(m)]
    assert not findings, "\n".join([(words.suppressions.__doc__ or ""), *findings])
    assert words.unexplained_rules((ROOT / "pyproject.toml").read_text(encoding="utf-8")) == []


def test_documents_use_the_words_of_the_field() -> None:
    assert list(vocabulary.house_words_of_documents()) == []


@pytest.mark.parametrize("law", vocabulary.LAWS)
def test_tests_and_benchmarks_use_the_words_of_the_field(law: Law) -> None:
    modules = [module for module in words.tests_and_benchmarks() if module.path not in vocabulary.LISTS]
    findings = [f"{module.path}:{line}: {message}" for module in modules for line, message in law(module)]
    assert not findings, "\n".join(findings)
