"""Memory of loading a data set: ``python -m tests.reliability.loading FILE ALGORITHM`` as JSON."""

import json
import sys
from pathlib import Path

from rlbench import suites
from rlbench.assembly.assemble import build
from rlbench.assembly.environments import describe
from rlbench.config.footprint import footprint
from rlbench.config.run import Runtime
from rlbench.datasets import checksums
from tests.reliability.measured import resident, warm

if __name__ == "__main__":
    path, algorithm = Path(sys.argv[1]), sys.argv[2]
    spec = suites.spec("offline", algorithm, "rlb-halfcheetah-medium", seed=0)
    info = describe(spec)
    warm(spec)
    checksums.seal_of(path)
    Path("/proc/self/clear_refs").write_text("5")
    base = resident("VmRSS")
    trainer = build(spec, Runtime(device="cpu", threads=1, dataset=str(path)), info)
    growth = resident("VmHWM") - base
    print(json.dumps({"growth": growth, "foreseen": footprint(spec).replay}))  # noqa: T201 - to who started it
