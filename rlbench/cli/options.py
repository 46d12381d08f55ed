"""Options that several verbs take, spelled once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Suite: TypeAlias = Annotated[
    str, typer.Argument(metavar="SUITE", help="atari, mujoco, goals or toy; see: rlbench list suites")
]
Algo: TypeAlias = Annotated[str, typer.Argument(metavar="ALGO", help="for example dqn; see: rlbench list algos")]
Results: TypeAlias = Annotated[
    Path, typer.Option("--results", envvar="RLBENCH_RESULTS", metavar="DIR", help="Folder of the records.")
]
Sets: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="One field, as algo.lr=1e-3; may be repeated.")
]
Config: TypeAlias = Annotated[
    Path | None, typer.Option("--config", metavar="FILE.toml", help="Fields from a TOML file.")
]
Steps: TypeAlias = Annotated[
    int | None,
    typer.Option("--steps", metavar="N", help="Budget in agent steps; also RLBENCH_STEPS.", show_default=False),
]
Smoke: TypeAlias = Annotated[bool, typer.Option("--smoke", help="The whole path on a tiny budget; enters no table.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Jobs: TypeAlias = Annotated[
    str | None,
    typer.Option("--jobs", metavar="auto|N", help="So many runs side by side, each in a process of its own."),
]
Judges: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--judges",
        envvar="RLBENCH_JUDGES",
        metavar="N",
        min=0,
        help="Processes that judge beside offline training; 0: judge within it.",
        show_default="the cores that learning leaves idle",
    ),
]
Engine: TypeAlias = Annotated[str, typer.Option("--engine", metavar="local|ray", help="Where those processes are.")]
RayAddress: TypeAlias = Annotated[
    str | None, typer.Option("--ray-address", metavar="ADDR", help="Of a running cluster; without it, this machine.")
]
Shard: TypeAlias = Annotated[
    str | None, typer.Option("--shard", metavar="i/n", help="Only the i-th of n shares of the runs, for schedulers.")
]
Pipe: TypeAlias = Annotated[int | None, typer.Option("--pipe", hidden=True)]

RESULTS = Path("results")
