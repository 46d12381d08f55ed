"""Minari's remote data sets, listed and downloaded by the ``minari`` package, an optional extra."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from io import StringIO
from types import ModuleType
from warnings import catch_warnings

from rlbench.errors import ResourceExhausted, UsageError

REMOTE = "hf://farama-minari"
REMEDY = "pip install 'minari[hf]>=0.5.3'"


def names() -> list[str]:
    """List the data sets of the remote, by an access of the network.

    Raises:
        UsageError: Minari is not installed, or ``MINARI_REMOTE`` names no storage that it supports.
        ResourceExhausted: the remote cannot be reached.
    """
    with _minari() as minari:
        return sorted(minari.list_remote_datasets())


def download(name: str) -> None:
    """Download a data set into Minari's folder; ``huggingface_hub`` resumes an interrupted download.

    Raises:
        UsageError: as ``names``, or the remote has no data set of this name.
        ResourceExhausted: the remote cannot be reached, or the disk is full.
    """
    with _minari() as minari:
        minari.download_dataset(name, force_download=True)  # or it skips a folder that is there, whole or not


@contextmanager
def _minari() -> Iterator[ModuleType]:
    """Import the package, keep stdout free of its messages, and translate its errors."""
    remote = os.environ.get("MINARI_REMOTE") or REMOTE
    if not remote.startswith(("hf://", "gcp://")):
        raise UsageError(f"MINARI_REMOTE={remote}: give hf://ORGANISATION or gcp://BUCKET, or unset it")
    try:
        with redirect_stdout(StringIO()), catch_warnings(record=True):
            yield import_module("minari")
    except ImportError as error:
        raise UsageError(f"Minari's remote needs a package that is not installed ({error}): {REMEDY}") from error
    except ValueError as error:
        raise UsageError(f"{remote}: {error} `rlbench data list --remote` lists the data sets") from error
    except Exception as error:  # each transport raises its own
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ResourceExhausted(
            f"{remote}: {reason}; check the connection and run the same command again: it resumes"
        ) from error
