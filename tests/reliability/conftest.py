"""Smoke runs without a data set record few steps: what they learn from is not the point."""

from collections.abc import Iterator

import pytest

from rlbench.assembly import offline


@pytest.fixture(autouse=True)
def few_random_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch.setattr(offline, "SMOKE", 200)
