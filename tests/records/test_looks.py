"""Looks of the sequential design: the levels against scipy's multivariate normal, and the file that counts them."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rlbench.errors import RefusedFile, UsageError
from rlbench.records import files
from rlbench.records import looks as looks_module
from rlbench.records.locks import FolderLock
from rlbench.records.looks import (
    DESIGN,
    DESIGNS,
    NAME,
    SHARED_ERROR_DESIGNS,
    Look,
    Looks,
    design_for,
    read_looks,
    record_looks,
)


@pytest.mark.parametrize("most", DESIGNS)
@pytest.mark.parametrize(
    ("designs", "noise", "total", "power"), [(DESIGNS, 0.0, 0.04, 3), (SHARED_ERROR_DESIGNS, 1 / 9, 0.046, 4)]
)
def test_each_look_spends_its_share_of_the_error(
    designs: dict[int, tuple[Look, ...]], noise: float, total: float, power: int, most: int
) -> None:
    """Scores of looks at information s < t are normal with the correlation √(s/t) (Jennison and Turnbull 2000).

    ``noise`` is the squared error of a mean of ten documented seeds in that of one of ours.
    """
    design = designs[most]
    information = (1 / most + noise) / np.array([1 / look.seeds + noise for look in design])
    correlation = np.sqrt(np.minimum.outer(information, information) / np.maximum.outer(information, information))
    bounds = stats.norm.isf([look.level for look in design])
    assert design[0] == (3, pytest.approx(total * information[0] ** power, rel=1e-4))
    for count in range(2, len(design) + 1):
        inside = stats.multivariate_normal.cdf(
            bounds[:count], cov=correlation[:count, :count], maxpts=100_000, abseps=1e-7, releps=1e-7, rng=1
        )
        assert 1 - inside == pytest.approx(total * information[count - 1] ** power, rel=5e-4, abs=2e-5)


@pytest.mark.parametrize(
    ("scores", "std", "n", "designs"),
    [
        ([0.0, 1.0, 2.0], 0.6, 10, SHARED_ERROR_DESIGNS),  # our std is 1, theirs 0.6 √(10/9) = 0.63
        ([0.0, 1.0, 2.0, 90.0], 0.6, 10, SHARED_ERROR_DESIGNS),  # seeds of later looks choose nothing
        ([0.0, 1.0, 2.0], 0.54, 10, DESIGNS),  # 1.75 times 0.569 is less than 1
        ([0.0, 1.0, 2.0], 0.55, 10, SHARED_ERROR_DESIGNS),
        ([0.0, 1.0, 2.0], 0.6, 11, DESIGNS),
        ([0.0, 1.0, 2.0], 0.6, 2, DESIGNS),
        ([0.0, 1.0, 2.0], 0.6, None, DESIGNS),
        ([0.0, 1.0, 2.0], None, 10, DESIGNS),
        ([0.0, 1.0, 2.0], 0.0, 10, DESIGNS),
        ([0.0, 1.0], 0.6, 10, DESIGNS),
    ],
)
def test_a_shared_error_counts_where_the_first_three_seeds_vary_at_most_1_75_times_as_much(
    scores: list[float], std: float | None, n: int | None, designs: dict[int, tuple[Look, ...]]
) -> None:
    assert design_for(20, scores, std, n) == designs[20]


def test_looks_are_recorded_beside_the_seeds_and_never_fewer(tmp_path: Path) -> None:
    assert read_looks(tmp_path / "cell") is None
    for count, total in ((0, 0), (1, 1), (0, 1), (5, 5), (2, 5)):  # another process may be ahead
        record_looks(tmp_path / "cell", Looks(DESIGN, count))
        assert read_looks(tmp_path / "cell") == Looks(DESIGN, total)
    assert [path.name for path in (tmp_path / "cell").iterdir()] == [NAME]
    with pytest.raises(UsageError, match="add --most-seeds 20"):
        record_looks(tmp_path / "cell", Looks(DESIGNS[8], 0))


def test_looks_wait_for_a_lock_and_are_never_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = tmp_path / "cell"
    cell.mkdir()
    lock, attempts = FolderLock(cell), [False, True]
    assert lock.acquire()
    monkeypatch.setattr(looks_module, "ATTEMPTS", 2)
    with pytest.raises(UsageError, match=rf"process {os.getpid()} holds its lock; end it \(if there is none, delete"):
        record_looks(cell, Looks(DESIGN, 0))
    lock.release()
    monkeypatch.setattr(FolderLock, "acquire", lambda _: attempts.pop(0))
    record_looks(cell, Looks(DESIGN, 0))
    assert read_looks(cell) == Looks(DESIGN, 0)


def test_looks_of_another_cell_are_refused(tmp_path: Path) -> None:
    record_looks(tmp_path / "cell", Looks(DESIGN, 1))
    (tmp_path / "other").mkdir()
    (tmp_path / "cell" / NAME).rename(tmp_path / "other" / NAME)
    with pytest.raises(RefusedFile, match=r"other/looks\.json: holds the looks of cell; move it there"):
        read_looks(tmp_path / "other")


def test_look_has_the_next_look_and_its_inflation() -> None:
    looks = Looks((Look(3, 0.01), Look(6, 0.04)), 1)
    assert (looks.current, looks.following, looks.inflation) == ((3, 0.01), (6, 0.04), pytest.approx(5.0))
    assert str(looks) == "look 1 of 2 at 3 seeds, level 0.01"
    assert Looks(looks.design, 2).following is None
    before = Looks(looks.design, 0)
    assert (before.current, before.following) == ((3, 0.01), (3, 0.01)) and str(before) == str(looks)


@pytest.mark.parametrize(
    ("looks", "count_taken", "message"),
    [
        *(([[seeds, 0.05]], 1, "holds no design of --until-decided") for seeds in (-3, 0, 1, 3, 10**400)),
        ([list(look) for look in DESIGN[:4]], 1, "holds no design"),
        ([[seeds, 1.1 * level] for seeds, level in DESIGN], 1, "holds no design"),
        ("3", 1, "holds no design"),
        ([], 1, "holds no design"),
        ([list(look) for look in DESIGN], 6, "counts 6 of 5 looks"),
        ([list(look) for look in DESIGN], -1, "counts -1 of 5 looks"),
        ([list(look) for look in DESIGN], True, "counts True of 5 looks"),
    ],
)
def test_another_design_or_a_wrong_count_is_refused(
    looks: object, count_taken: object, message: str, tmp_path: Path
) -> None:
    files.replace(
        tmp_path / NAME, files.seal({"schema_version": 1, "id": tmp_path.name, "looks": looks, "taken": count_taken})
    )
    with pytest.raises(RefusedFile, match=message):
        read_looks(tmp_path)


def test_a_link_in_the_place_of_looks_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).symlink_to(tmp_path / "nowhere")
    with pytest.raises(RefusedFile, match="is a link"):
        read_looks(tmp_path)
