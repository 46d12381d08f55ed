"""Parsing of numbers of steps."""

from __future__ import annotations

import pytest

from rlbench.cli.choices import parse_count
from rlbench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *(("1", 1), ("100000", 100_000), ("100_000", 100_000), ("100,000", 100_000), ("1e5", 100_000)),
        *(("2.5e3", 2_500), ("100k", 100_000), ("1.5k", 1_500), ("1M", 1_000_000), ("0.3M", 300_000)),
    ],
)
def test_counts_are_parsed(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "1m", "k", "nan", "inf", "1e99", "1kM", "0x10", "many"])
def test_invalid_counts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no whole number of steps; write it as"):
        parse_count(text)
