"""Environments as Gymnasium's registry has them, wrappers and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium


def made(name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Make one env."""
    return lambda: gymnasium.make(name, disable_env_checker=True)
