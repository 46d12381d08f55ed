"""ROMs of Atari games: where ale-py or ``ALE_ROMS_DIR`` has them; stdout stays for results."""

from __future__ import annotations

import os
from pathlib import Path

from ale_py import roms

from rlbench.envs.atari import known
from rlbench.errors import UsageError

vars(roms)["print"] = lambda *_: None  # with ALE_ROMS_DIR it says on stdout, at each look, where it looks


def rom_of(game: str, where: str) -> Path:
    """The ROM file of a game; ``where`` names the engine in messages.

    Raises:
        UnknownName: there is no such game.
        UsageError: its ROM is missing, or not the one that ale-py expects.
    """
    known(game, roms.get_all_rom_ids(), where=where)
    folder = os.environ.get("ALE_ROMS_DIR")
    try:
        rom = roms.get_rom_path(game)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        remedy = f"mend ALE_ROMS_DIR={folder}, or unset it" if folder else "install ale-py again"
        raise UsageError(f"{where}: no ROM of {game!r} ({reason}); {remedy}") from None
    if rom is None:
        raise UsageError(f"{where}: the ROM of {game!r} is not in this ale-py")
    return rom
