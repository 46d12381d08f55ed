"""Banned constructs, and their few exceptions."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tests.laws.source import Finding, Module, dotted

HOT: Final = {"ops", "nets", "buffers", "algorithms", "training", "accel"}  # in every update: never waits for the host
COMPUTES: Final = HOT | {"envs", "collectors"}  # layers 2 to 5


class Ban(NamedTuple):
    """Patterns of full names that no module mentions, with exceptions."""

    names: tuple[str, ...]
    instead: str
    exempt: frozenset[str] = frozenset()  # units and paths
    only: frozenset[str] = frozenset()  # units of the ban; all if empty
    allowed: tuple[str, ...] = ()  # names that match and are no violation


BANS: Final = (
    Ban(("random", "random.*"), "take a generator from seeds.py"),
    Ban(
        ("numpy.random", "numpy.random.*"),
        "take a generator from seeds.py",
        allowed=(
            "numpy.random.Generator",
            "numpy.random.SeedSequence",
            "numpy.random.PCG64",
            "numpy.random.default_rng",
        ),
    ),
    Ban(
        ("torch.manual_seed", "torch.seed", "torch.cuda.manual_seed*", "torch.cuda.seed*", "torch.random.*_seed"),
        "the global generator is seeded in assembly and run.py alone",
        exempt=frozenset({"seeds", "assembly", "run"}),
    ),
    Ban(
        ("pickle", "pickle.*", "dill*", "cloudpickle*", "joblib*", "shelve*", "marshal*", "torch.save"),
        "read a file without running it: safetensors and JSON",
    ),
    Ban(
        ("torch.load",),
        "read a file without running it: safetensors; only zips of Stable-Baselines3 have none",
        exempt=frozenset({"rlbench/datasets/torchfile.py"}),
    ),
    Ban(
        ("torch.jit.load", "torch.package*", "torch.hub*", "torch.export.load", "pandas.read_pickle", "jsonpickle*"),
        "it reads a program: weights come from safetensors, tables from CSV",
        exempt=frozenset({"rlbench/evaluation/model_process.py"}),
    ),
    Ban(
        ("os.system", "os.popen", "os.exec*", "os.spawn*", "subprocess.getoutput", "subprocess.getstatusoutput"),
        "start a program by subprocess, from a list of words, without a shell",
    ),
    Ban(("runpy*", "code.*", "importlib.util.spec_from_file_location"), "only modules of the package are run"),
    Ban(("tempfile.mktemp", "shutil.unpack_archive"), "create and unpack files under a fixed name"),
    Ban(("eval", "exec", "compile", "__import__"), "parse a value by its type; never run it"),
    Ban(("yaml", "yaml.*"), "TOML and JSON hold no code"),
    Ban(
        ("print", "logging", "logging.*", "sys.stdout", "sys.stdout.*", "sys.stderr", "sys.stderr.*"),
        "return it, or raise it; only cli/ and report/ print",
        exempt=frozenset({"cli", "report", "rlbench/suites/plugins.py"}),  # the last redirects prints to stderr
    ),
    Ban(
        ("time.time", "time.time_ns", "datetime.*.now", "datetime.*.utcnow", "datetime.*.today"),
        "measure durations by time.monotonic",
        only=frozenset(COMPUTES),
    ),
    Ban(("warnings.filterwarnings", "warnings.simplefilter"), "mend the cause; the filter would hide the next warning"),
    Ban(
        ("typing.Any",),
        "name the type, or object",
        # Gymnasium and emulators define the types of envs; overrides.py reads annotations
        exempt=frozenset({"envs", "rlbench/config/overrides.py"}),
    ),
)

WAITS: Final = {"item", "cpu", "tolist", "numpy"}  # methods that wait for the device
MAY_WAIT: Final = {
    ("rlbench/training/updates.py", "MeanMetrics.take"): "one read an epoch",
    ("rlbench/accel/numpy_mlp.py", "as_array"): "on the host, where nothing waits",
    ("rlbench/training/online.py", "OnlineTrainer.load_state_dict"): "once, when a run resumes",
}

DRAWS: Final = re.compile(r"torch\.(rand|randn|randint|randperm|rand_like|randn_like|multinomial|normal|bernoulli)")


def banned_names(module: Module) -> Iterator[Finding]:
    """No module mentions a name of ``BANS``."""
    for line, name in module.mentions:
        for ban in BANS:
            holds = module.unit not in ban.exempt and module.path not in ban.exempt
            holds &= not ban.only or module.unit in ban.only
            if holds and _any(name, ban.names) and not _any(name, ban.allowed):
                yield Finding(line, f"{name}: {ban.instead}")


def own_generators(module: Module) -> Iterator[Finding]:
    """A random draw outside of networks and policies names its generator; no generator is seeded by the clock."""
    for _, call in module.calls:
        name = module.full(call.func)
        keywords = {keyword.arg for keyword in call.keywords}
        if name == "numpy.random.default_rng" and not call.args and "seed" not in keywords:
            yield Finding(call.lineno, "default_rng() without a seed differs in every run")
        if DRAWS.fullmatch(name) and "generator" not in keywords and module.unit not in {"nets", "ops"}:
            yield Finding(call.lineno, f"{name} without generator= draws from the global stream")


def no_waiting(module: Module) -> Iterator[Finding]:
    """No code between two epochs reads a number from the device."""
    if module.unit in HOT:
        for inside, call in module.calls:
            waits = isinstance(call.func, ast.Attribute) and call.func.attr in WAITS and not call.args
            if waits and (module.path, inside) not in MAY_WAIT:
                yield Finding(call.lineno, f"{dotted(call.func)}() waits for the device; read it once an epoch")


def no_device_moves(module: Module) -> Iterator[Finding]:
    """No module stores a device or moves tensors: assembly places networks, collectors/ move steps."""
    if module.unit not in COMPUTES - {"collectors"}:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and dotted(node) == "self.device":
            yield Finding(node.lineno, "self.device: use x.new_…, like= or an argument")
    for _, call in module.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        values = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
        moves = method == "to" and any(dotted(value).split(".")[-1] == "device" for value in values)
        if moves or method == "cuda":
            yield Finding(call.lineno, f".{method}(…): create it on its device; only assembly and collectors/ move")


def roles_not_modes(module: Module) -> Iterator[Finding]:
    """A call of a network names its role; ``train()`` and ``eval()`` are not used."""
    for _, call in module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"train", "eval"} and module.unit != "cli":
            yield Finding(call.lineno, f"{dotted(call.func)}(): pass a role instead of setting a mode")


def safe_reading(module: Module) -> Iterator[Finding]:
    """No keyword lets a file run code, and no archive chooses its paths."""
    unsafe = {("weights_only", False), ("allow_pickle", True), ("shell", True), ("trust_remote_code", True)}
    for _, call in module.calls:
        keywords = {(k.arg, k.value.value) for k in call.keywords if isinstance(k.value, ast.Constant)}
        for name, value in sorted(unsafe & keywords):
            yield Finding(call.lineno, f"{name}={value} lets a file run code")
        if module.full(call.func) == "torch.load" and ("weights_only", True) not in keywords:
            yield Finding(call.lineno, "torch.load(…) lets a file run code: write weights_only=True")
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in {"extractall", "extract"}
            and module.unit != "cli"
        ):
            yield Finding(call.lineno, f"{dotted(call.func)}() writes to paths of the archive: read members by name")


def safe_import_path(module: Module) -> Iterator[Finding]:
    """No child process imports from the current folder, whose files may be another program's."""
    text = any(isinstance(node, ast.Constant) and node.value == "PYTHONSAFEPATH" for node in ast.walk(module.tree))
    commands = [node for node in ast.walk(module.tree) if isinstance(node, ast.List | ast.Tuple)]
    for node in commands:
        words = [getattr(one, "value", None) for one in node.elts]
        python = not words or not isinstance(words[0], str) or words[0].startswith("-")
        python &= not any(re.match(r"core\.\w+=", str(word)) for word in words)  # settings of git
        for place, word in enumerate(words):
            if python and word in {"-m", "-c"} and "-P" not in words[:place]:
                yield Finding(node.lineno, f'"{word}" puts the current folder on sys.path: write "-P" before it')
    for _, call in module.calls:
        starts = module.full(call.func) in {"multiprocessing.get_context", "multiprocessing.Process"}
        if starts and not text:
            yield Finding(call.lineno, "multiprocessing starts Python by -c: set PYTHONSAFEPATH for it")


def no_pass_through(module: Module) -> Iterator[Finding]:
    """A function names its arguments; it does not pass ``**kwargs`` on."""
    for function in module.functions():
        kwargs = function.args.kwarg.arg if function.args.kwarg else None
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and kwargs in {dotted(k.value) for k in node.keywords if k.arg is None}:
                yield Finding(node.lineno, f"{function.name} passes **{kwargs} on: name its arguments")


def no_type_ignore(module: Module) -> Iterator[Finding]:
    """``type: ignore`` stands only in the adapters of untyped libraries."""
    for line, comment in module.comments:
        if re.search(r"#\s*type:\s*ignore", comment) and module.unit != "envs":
            yield Finding(line, "type: ignore: name the type; only adapters in envs/ may")


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


LAWS: Final = (
    banned_names, own_generators, no_waiting, no_device_moves, roles_not_modes, safe_reading, safe_import_path,
    no_pass_through, no_type_ignore,
)  # fmt: skip
