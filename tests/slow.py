"""Parameters of slow tests: `scripts/test` runs some of them, `scripts/test --all` every one."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *quick: int) -> list[Any]:
    """Mark every value as slow but those at the positions ``quick``."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=() if place in quick else (pytest.mark.slow,)) for place, row in enumerate(rows)]
