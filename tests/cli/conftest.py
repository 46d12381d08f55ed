"""Commands meet an empty folder, and no data set or setting of the developer."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def nothing_of_the_developer(
    empty_folder: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.getbasetemp()))  # of the cache of matplotlib's fonts
    for name in ("RLBENCH_DATASETS", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "MINARI_REMOTE"):
        monkeypatch.delenv(name, raising=False)
