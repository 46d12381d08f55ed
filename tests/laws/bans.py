"""Banned constructs, and their few exceptions."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tests.laws.source import Finding, Module, dotted

HOT: Final = {
    "ops",
    "nets",
    "buffers",
    "algorithms",
    "training",
    "accel",
}  # runs in every update: never waits for the host
COMPUTES: Final = HOT | {"envs", "collectors"}  # layers 2 to 5


class Ban(NamedTuple):
    """Full names that are not to be mentioned, and where they may be after all."""

    names: tuple[str, ...]
    instead: str
    free: frozenset[str] = frozenset()  # units and paths that may
    only: frozenset[str] = frozenset()  # units it holds for; empty is all
    but: tuple[str, ...] = ()  # names that match and are fine


BANS: Final = (
    Ban(("random", "random.*"), "take a generator from seeds.py"),
    Ban(
        ("numpy.random", "numpy.random.*"),
        "take a generator from seeds.py",
        but=("numpy.random.Generator", "numpy.random.SeedSequence", "numpy.random.PCG64", "numpy.random.default_rng"),
    ),
    Ban(
        ("torch.manual_seed", "torch.seed", "torch.cuda.manual_seed*", "torch.cuda.seed*", "torch.random.*_seed"),
        "the global generator is seeded in assembly and run.py alone",
        free=frozenset({"seeds", "assembly", "run"}),
    ),
    Ban(
        ("pickle", "pickle.*", "dill*", "cloudpickle*", "joblib*", "shelve*", "marshal*", "torch.save"),
        "a file is read without running it: safetensors and JSON",
    ),
    Ban(
        ("torch.load",),
        "a file is read without running it: safetensors; only the zips of Stable-Baselines3 have none",
        free=frozenset({"rlbench/datasets/torchfile.py"}),
    ),
    Ban(
        ("torch.jit.load", "torch.package*", "torch.hub*", "torch.export.load", "pandas.read_pickle", "jsonpickle*"),
        "what it reads is a program: weights come from safetensors, tables from CSV",
        free=frozenset({"rlbench/evaluation/model_process.py"}),
    ),
    Ban(
        ("os.system", "os.popen", "os.exec*", "os.spawn*", "subprocess.getoutput", "subprocess.getstatusoutput"),
        "a program is started by subprocess from a list of words; no shell reads them",
    ),
    Ban(("runpy*", "code.*", "importlib.util.spec_from_file_location"), "only modules of the package are run"),
    Ban(("tempfile.mktemp", "shutil.unpack_archive"), "a file is made and unpacked under a name of our own"),
    Ban(("eval", "exec", "compile", "__import__"), "a value is parsed by its type, never run"),
    Ban(("yaml", "yaml.*"), "TOML and JSON hold no code"),
    Ban(
        ("print", "logging", "logging.*", "sys.stdout", "sys.stdout.*", "sys.stderr", "sys.stderr.*"),
        "return it, or raise it; cli/ and report/ speak",
        free=frozenset(
            {"cli", "report", "rlbench/suites/plugins.py"}
        ),  # the last leads the prints of packages to stderr
    ),
    Ban(
        ("time.time", "time.time_ns", "datetime.*.now", "datetime.*.utcnow", "datetime.*.today"),
        "durations come from time.monotonic",
        only=frozenset(COMPUTES),
    ),
    Ban(("warnings.filterwarnings", "warnings.simplefilter"), "mend the cause; the filter would hide the next one"),
    Ban(
        ("typing.Any",),
        "say the type, or object",
        # what Gymnasium and the emulators take and give is theirs to say; override.py reads annotations
        free=frozenset({"envs", "rlbench/config/overrides.py"}),
    ),
)

WAITS: Final = {"item", "cpu", "tolist", "numpy"}  # methods that wait for the device
MAY_WAIT: Final = {
    ("rlbench/training/updates.py", "MeanMetrics.take"): "the one read an epoch",
    ("rlbench/accel/numpy_mlp.py", "as_array"): "on the host, where nothing waits",
    ("rlbench/training/online.py", "OnlineTrainer.load_state_dict"): "once, when a run resumes",
}

DRAWS: Final = re.compile(r"torch\.(rand|randn|randint|randperm|rand_like|randn_like|multinomial|normal|bernoulli)")


def banned_names(module: Module) -> Iterator[Finding]:
    """The table above."""
    for line, name in module.mentions:
        for ban in BANS:
            holds = module.unit not in ban.free and module.path not in ban.free
            holds &= not ban.only or module.unit in ban.only
            if holds and _any(name, ban.names) and not _any(name, ban.but):
                yield Finding(line, f"{name}: {ban.instead}")


def own_generators(module: Module) -> Iterator[Finding]:
    """Outside networks and policies whoever draws says from which stream; no generator is seeded by the clock."""
    for _, call in module.calls:
        name = module.full(call.func)
        named = {keyword.arg for keyword in call.keywords}
        if name == "numpy.random.default_rng" and not call.args and "seed" not in named:
            yield Finding(call.lineno, "default_rng() without a seed differs in every run")
        if DRAWS.fullmatch(name) and "generator" not in named and module.unit not in {"nets", "ops"}:
            yield Finding(call.lineno, f"{name} without generator= draws from the global stream")


def no_waiting(module: Module) -> Iterator[Finding]:
    """Nothing between two epochs asks the device for a number."""
    if module.unit in HOT:
        for inside, call in module.calls:
            waits = isinstance(call.func, ast.Attribute) and call.func.attr in WAITS and not call.args
            if waits and (module.path, inside) not in MAY_WAIT:
                yield Finding(call.lineno, f"{dotted(call.func)}() waits for the device; read it once an epoch")


def given_devices(module: Module) -> Iterator[Finding]:
    """No module stores a device or moves to one: assembly gives it, collectors/ cross it, tensors come from tensors."""
    if module.unit not in COMPUTES - {"collectors"}:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and dotted(node) == "self.device":
            yield Finding(node.lineno, "self.device: take x.new_…, like= or a given device")
    for _, call in module.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "device")]
        moves = method == "to" and any(dotted(value).split(".")[-1] == "device" for value in given)
        if moves or method == "cuda":
            yield Finding(call.lineno, f".{method}(…): make it where it belongs; only assembly and collectors/ move")


def roles_not_modes(module: Module) -> Iterator[Finding]:
    """Whoever calls a network says why; ``train()`` and ``eval()`` do not exist."""
    for _, call in module.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"train", "eval"} and module.unit != "cli":
            yield Finding(call.lineno, f"{dotted(call.func)}(): pass a role instead of setting a mode")


def safe_reading(module: Module) -> Iterator[Finding]:
    """No keyword that lets a file run code, and no archive unpacked to wherever it says."""
    unsafe = {("weights_only", False), ("allow_pickle", True), ("shell", True), ("trust_remote_code", True)}
    for _, call in module.calls:
        given = {(k.arg, k.value.value) for k in call.keywords if isinstance(k.value, ast.Constant)}
        for name, value in sorted(unsafe & given):
            yield Finding(call.lineno, f"{name}={value} lets a file run code")
        if module.full(call.func) == "torch.load" and ("weights_only", True) not in given:
            yield Finding(call.lineno, "torch.load(…) lets a file run code: write weights_only=True")
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in {"extractall", "extract"}
            and module.unit != "cli"
        ):
            yield Finding(call.lineno, f"{dotted(call.func)}() writes where the archive says: read members by name")


def safe_path(module: Module) -> Iterator[Finding]:
    """No Python that is started imports from the current folder, where anybody's files may lie."""
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
            yield Finding(call.lineno, "multiprocessing starts Python by -c: set PYTHONSAFEPATH around it")


def no_pass_through(module: Module) -> Iterator[Finding]:
    """A function names what it takes instead of handing ``**kwargs`` on."""
    for function in module.functions():
        taken = function.args.kwarg.arg if function.args.kwarg else None
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and taken:
                handed = {dotted(keyword.value) for keyword in node.keywords if keyword.arg is None}
                if taken in handed:
                    yield Finding(node.lineno, f"{function.name} hands **{taken} on: name its arguments")


def typed(module: Module) -> Iterator[Finding]:
    """Nothing is hidden from mypy but at the edge to untyped libraries."""
    for line, comment in module.comments:
        if re.search(r"#\s*type:\s*ignore", comment) and module.unit != "envs":
            yield Finding(line, "type: ignore: say the type; only adapters in envs/ may")


def _any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


LAWS: Final = (
    banned_names, own_generators, no_waiting, given_devices, roles_not_modes, safe_reading, safe_path, no_pass_through,
    typed,
)  # fmt: skip
