"""ROM files of Atari games, of ale-py or from ``ALE_ROMS_DIR``."""

from __future__ import annotations

import os
from pathlib import Path

from ale_py import roms

from rlbench.envs.atari import check_game
from rlbench.errors import UsageError

vars(roms)["print"] = lambda *_: None  # with ALE_ROMS_DIR it prints a message on stdout, which is for results


def rom_of(game: str, where: str) -> Path:
    """Path of the ROM of a game; ``where`` names the engine in messages.

    Raises:
        UnknownName: there is no such game.
        UsageError: its ROM is missing, or differs from the one that ale-py expects.
    """
    check_game(game, roms.get_all_rom_ids(), where=where)
    folder = os.environ.get("ALE_ROMS_DIR")
    try:
        rom = roms.get_rom_path(game)
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]
        remedy = f"correct ALE_ROMS_DIR={folder}, or unset it" if folder else "install ale-py again"
        raise UsageError(f"{where}: no ROM of {game!r} ({reason}); {remedy}") from None
    if rom is None:
        raise UsageError(f"{where}: the ROM of {game!r} is not in this ale-py")
    return rom
