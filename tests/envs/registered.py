"""Environments from Gymnasium's registry with their wrappers."""

from collections.abc import Callable
from typing import Any

import gymnasium


def make(name: str) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Make one env."""
    return lambda: gymnasium.make(name, disable_env_checker=True)
