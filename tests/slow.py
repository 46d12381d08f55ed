"""Parameters of slow tests: `scripts/test` runs some of them, `--all` the rest, `scripts/soak` the slowest."""

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(values: Iterable[Any], *quick: int, mark: pytest.MarkDecorator = pytest.mark.slow) -> list[Any]:
    """Mark every value as slow, or with another ``mark``, but those at the positions ``quick``."""
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*row, marks=() if place in quick else (mark,)) for place, row in enumerate(rows)]
