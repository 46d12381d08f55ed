"""OpenGL backends of MuJoCo, which imports the one that ``MUJOCO_GL`` names, also where nothing is rendered."""

from __future__ import annotations

import os
from typing import Final

LIBRARIES: Final = {"egl": ("libEGL", "libegl1"), "osmesa": ("libOSMesa", "libosmesa6")}
"""Shared library and Debian package of each backend."""


def import_remedy() -> str | None:
    """Explain why ``import mujoco`` fails with the backend of ``MUJOCO_GL``; None where the variable is not set."""
    backend = os.environ.get("MUJOCO_GL")
    if not backend:
        return None
    library, package = LIBRARIES.get(backend.strip().lower(), (None, None))
    if library is None:
        return f"MUJOCO_GL={backend}: MuJoCo cannot be imported with this backend; `unset MUJOCO_GL`"
    return f"MUJOCO_GL={backend} needs {library}, which is missing here; `unset MUJOCO_GL`, or `apt install {package}`"
