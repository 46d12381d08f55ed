"""Fault points at every write to disk, so that tests can end the process there."""

import ast
from collections.abc import Iterator
from typing import Final

from tests.laws.source import Finding, Module

WRITERS: Final = {"disk", "records", "checkpoint", "datasets"}
METHODS: Final = {"rename", "unlink", "rmdir", "mkdir", "write_text", "write_bytes", "touch"}
FUNCTIONS: Final = {
    *("shutil.copyfile", "shutil.copytree", "shutil.move", "shutil.rmtree", "safetensors.torch.save_file"),
    *("os.replace", "os.rename", "os.unlink", "os.remove"),
}
EXEMPT: Final = {
    ("rlbench/datasets/d4rl.py", "_serialize"): "a file in memory",
    ("rlbench/datasets/download.py", "_attempt"): "it removes a part of another file, and starts again in any case",
}


def writes_have_fault_points(module: Module) -> Iterator[Finding]:
    """A function that changes the disk calls ``rlbench.faults.point``."""
    if module.unit not in WRITERS:
        return
    functions = {name for name, call in module.calls if module.full(call.func) == "rlbench.faults.point"}
    functions |= {name.rpartition(".")[0] for name in functions}
    for name, call in module.calls:
        if _changes(module, call) and name not in functions and (module.path, name) not in EXEMPT:
            yield Finding(call.lineno, f"{name or 'the module'} changes the disk: call faults.point(…) in it")


def _changes(module: Module, call: ast.Call) -> bool:
    if module.full(call.func) in FUNCTIONS:
        return True
    mode = next(
        (a.value for a in call.args if isinstance(a, ast.Constant) and a.value in {"w", "a", "wb", "r+b"}), None
    )
    if module.full(call.func) == "h5py.File":
        return mode is not None
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "replace":  # of a path; that of a text takes two
        return len(call.args) == 1 and not call.keywords
    return call.func.attr in METHODS or (call.func.attr == "open" and mode is not None)


LAWS: Final = (writes_have_fault_points,)
