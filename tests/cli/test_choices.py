"""Parsing of lists of seeds and of numbers of steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlbench.cli.choices import parse_count, parse_seeds, seeds_text
from rlbench.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        *(("0", (0,)), ("0-9", tuple(range(10))), ("0,3,7", (0, 3, 7)), ("0-2,7", (0, 1, 2, 7))),
        *(("7,0-2", (7, 0, 1, 2)), ("5-5", (5,)), (" 1 , 2 ", (1, 2)), ("4294967295", (2**32 - 1,))),
    ],
)
def test_seeds_are_read_in_the_order_they_are_written(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "is not a seed") for text in ("", ",", "0,", "-1", "1.5", "1e3", "0-", "0..3", "0-2-4", "x", "٣")),
        ("9-0", "runs backwards; write 0-9"),
        ("1,1", "named twice"),
        ("0-3,2", "named twice"),
        ("4294967296", "too large"),
        ("0-4294967295", "more than 10000 seeds"),
    ],
)
def test_invalid_seeds_are_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_seeds(text)
    assert why in str(caught.value)
    assert str(caught.value).startswith(f"--seeds {text!r}: ")
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20, unique=True))
def test_any_list_of_distinct_seeds_is_parsed(seeds: list[int]) -> None:
    assert parse_seeds(",".join(map(str, seeds))) == tuple(seeds)
    assert parse_seeds(seeds_text(sorted(seeds))) == tuple(sorted(seeds))


@pytest.mark.parametrize(("seeds", "text"), [((0,), "0"), ((0, 1), "0-1"), ((0, 1, 2, 7, 9, 10), "0-2,7,9-10")])
def test_seeds_are_written_as_ranges(seeds: tuple[int, ...], text: str) -> None:
    assert seeds_text(seeds) == text


@given(st.text(max_size=8))
def test_any_text_is_parsed_or_refused_in_one_line(text: str) -> None:
    try:
        assert parse_seeds(text)
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is right


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
