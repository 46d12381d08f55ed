"""The machine's memory under a control group, and the vector instructions of its processor."""

from types import SimpleNamespace

import pytest

from rlbench.records import machine
from rlbench.run import ROUNDING


@pytest.mark.parametrize(
    ("limit", "usage", "files", "expected"),
    [
        (None, None, 0, 64),  # nobody limits anything
        (16, 15, 0, 1),
        (16, 15, 10, 11),  # most of what is used are files that may go
        (16, 15, 20, 16),  # never more than the limit
        (100, 10, 0, 64),  # nor than the machine has
        (16, 20, 0, 0),
    ],
)
def test_page_cache_counts_as_free_memory(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, usage: int | None, files: int, expected: int
) -> None:
    monkeypatch.setattr(machine.psutil, "virtual_memory", lambda: SimpleNamespace(available=64))
    monkeypatch.setattr(machine, "_cgroup", {"memory.max": limit, "memory.current": usage}.get)
    monkeypatch.setattr(machine, "_reclaimable_bytes", lambda: files)
    assert machine.available_memory() == expected


def test_vector_instructions_are_those_of_the_kernels_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpuinfo, expected in {"flags\t: fpu fma avx2 sse\n": "avx2 fma", "Features : fp sve\n": "sve", "": ""}.items():
        monkeypatch.setattr(machine, "_kernel_text", {"/proc/cpuinfo": cpuinfo}.get)
        assert machine.vector_instructions() == expected
    assert {"cpu", "vector_instructions"} <= {*ROUNDING} & {*machine.environment()}
