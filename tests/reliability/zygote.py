"""A process with all imports that forks one child per command, so that commands cost no start-up.

So a hundred runs can be killed in a minute, and each kill hits a run rather than the import of torch. The child calls
``rlbench.cli.app.main`` or another function, as a process of its own would.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

ROOT = Path(__file__).parents[2]
COMMAND = "rlbench.cli.app:main"
SLICE = 0.005  # seconds between two looks at a child
AROUND = {
    "PYTHONPATH": str(ROOT),
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
    "RLBENCH_RESULTS": "results",
    "GIT_DIR": "/nowhere",  # to ask git for the commit takes longer than the run
}
LONGEST = 600.0  # seconds after which a child hangs; a loaded machine may take a minute for a run of seconds
MODULES = (
    *("torch", "torch._dynamo", "numpy", "scipy", "gymnasium", "mujoco", "ale_py", "imageio", "h5py"),
    *("rlbench.run", "rlbench.generate", "tests.reliability.scenarios"),
    *(f"rlbench.cli.{name}" for name in ("app", "run", "sweep", "inline", "progress_display", "resolve")),
)


class Answer(NamedTuple):
    """The end of a child process."""

    status: int  # its exit code, or minus the signal that ended it
    seconds: float
    output: str


class Zygote:
    """Starts commands; ``with Zygote(folder) as start``, where its output may go."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "output.txt"
        environ = {name: value for name, value in os.environ.items() if not name.startswith("RLBENCH_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.reliability.zygote"],
            cwd=ROOT,
            env=environ | AROUND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(timeout=LONGEST)
        self.process.stdout.close()

    def __call__(
        self,
        words: Sequence[str],
        *,
        function: str = COMMAND,
        environ: Mapping[str, str] | None = None,
        kill_after: float | None = None,
    ) -> Answer:
        """Run a command to its end, or for so many seconds."""
        self.output.write_text("", encoding="utf-8")  # a child may be killed before it opens it
        job = {"function": function, "words": list(words), "environ": dict(environ or {}), "output": str(self.output)}
        self.process.stdin.write(json.dumps({**job, "kill_after": kill_after}) + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        return Answer(reply["status"], reply["seconds"], self.output.read_text(encoding="utf-8"))


def serve() -> None:
    """Fork a child for every line of stdin, and say how it ended."""
    for name in MODULES:
        import_module(name)
    import_module("rlbench.report.reference_scores").primary_references("toy")  # kept, as imports are
    for line in sys.stdin:
        job = json.loads(line)
        begun = time.monotonic()
        child = os.fork()
        if child == 0:
            _obey(job)
        status = _waited(child, begun + (LONGEST if job["kill_after"] is None else job["kill_after"]))
        sys.stdout.write(json.dumps({"status": status, "seconds": time.monotonic() - begun}) + "\n")
        sys.stdout.flush()


def _waited(child: int, deadline: float) -> int:
    """The status of a child that ended by itself or by SIGKILL at the deadline."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        time.sleep(SLICE)


def _obey(job: dict[str, object]) -> NoReturn:
    code = 99
    try:
        handle = os.open(str(job["output"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdin.close()
        environ, words = job["environ"], job["words"]
        os.environ.update(environ)
        module, _, name = str(job["function"]).partition(":")
        code = int(getattr(import_module(module), name)(words) or 0)
    except BaseException:  # noqa: BLE001 - nothing of a child may come back into the zygote
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
