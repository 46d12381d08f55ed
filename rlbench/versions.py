"""Versions of installed packages; one answer per process, since what is installed later is not what it has imported."""

from __future__ import annotations

from functools import cache
from importlib import metadata

from rlbench.errors import UsageError


@cache
def version(package: str) -> str:
    """Version of an installed package at the first call.

    Raises:
        PackageNotFoundError: it is not installed.
        UsageError: one folder has metadata of two versions of it, as an upgrade that was broken off leaves them.
    """
    every = [*metadata.distributions(name=package)]
    if not every:
        raise metadata.PackageNotFoundError(package)
    folder = every[0].locate_file("")  # which Python searches first
    versions = sorted({each.version for each in every if each.locate_file("") == folder and each.version})
    if len(versions) > 1:
        remedy = f"uninstall {package} until it is gone, and install it again"
        raise UsageError(f"{folder}: has metadata of {package} {' and '.join(versions)}; {remedy}")
    return versions[0] if versions else every[0].version  # a broken installation leaves a folder without
