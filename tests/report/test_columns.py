"""Folding of columns: no lost letters, no excess width, and the fewest lines."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from rlbench.report.columns import aligned, fitted, sentences

WORDS = st.lists(st.text("ab/", min_size=1, max_size=6), max_size=4).map(" ".join)
ROWS = st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4)


def test_rows_that_fit_are_one_line_and_a_pipe_has_no_width_limit() -> None:
    rows = [("a", "bb", "c"), ("dddd", "e", "")]
    assert aligned(rows) == aligned(rows, 11) == ["a     bb  c", "dddd  e"]
    assert aligned([]) == aligned([], 5) == []


def test_names_fold_behind_slashes_and_sentences_between_words() -> None:
    rows = [("mujoco/ppo/Hopper-v4", "the budget is spent"), ("toy/dqn/Catch", "done")]
    assert aligned(rows, 32) == [
        "mujoco/ppo/Hopper-v4  the budget",
        "                      is spent",
        "toy/dqn/Catch         done",
    ]
    assert aligned(rows, 25)[:2] == ["mujoco/ppo/    the budget", "Hopper-v4      is spent"]
    assert sentences(["  one two three"], 9) == ["  one two", "    three"]
    assert sentences(["one two", "three"]) == ["one two", "three"]
    assert sentences(["/a/path/that-is-long x"], 8) == ["/a/path/that-is-long", "  x"]


@given(ROWS, st.integers(1, 30))
def test_folding_keeps_all_letters_and_the_width(rows: list[tuple[str, ...]], width: int) -> None:
    marks = "cdef"[: len(rows)]  # a letter of each row, so that none moves into another
    rows = [(mark, *row) for mark, row in zip(marks, rows, strict=True)]
    lines = aligned(rows, width)
    starts = [place for place, line in enumerate(lines) if line[:1] in set(marks)]
    assert [lines[place][0] for place in starts] == list(marks)
    for row, start, end in zip(rows, starts, [*starts[1:], len(lines)], strict=True):
        assert sorted("".join(lines[start:end]).replace(" ", "")) == sorted("".join(row).replace(" ", ""))
    pieces = [max((len(w) for row in rows for w in row[i].replace("/", "/ ").split()), default=0) for i in range(4)]
    assert max(map(len, lines)) <= max(width, sum(pieces) + 6)


@given(st.lists(st.tuples(st.text("a ", max_size=5), st.text("a ", max_size=5)), min_size=1, max_size=3))
def test_chosen_column_widths_give_the_fewest_lines(rows: list[tuple[str, ...]]) -> None:
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    least = [max([1, *(len(w) for t in texts for w in t.split())]) for texts in columns]
    width = sum(least) + 2 + 1

    def cost(widths: tuple[int, ...]) -> int:
        return sum(len(aligned([(t,)], w)) for texts, w in zip(columns, widths, strict=True) for t in texts)

    chosen_widths = fitted(columns, least, width)
    every = product(*(range(low, 7) for low in least))
    assert sum(chosen_widths) + 2 <= width and all(w >= low for w, low in zip(chosen_widths, least, strict=True))
    assert cost(tuple(chosen_widths)) == min(cost(widths) for widths in every if sum(widths) + 2 <= width)
