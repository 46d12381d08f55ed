"""Versions of installed packages; one answer per process, since what is installed later is not what it has imported."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version(package: str) -> str:
    """Version of an installed package at the first call.

    Raises:
        PackageNotFoundError: it is not installed.
    """
    return metadata.version(package)
