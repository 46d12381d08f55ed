"""``rlbench eval --policy``: policies of Stable-Baselines3, TorchScript and ONNX, and invalid files."""

import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import psutil
import pytest
import torch
from torch import Tensor, nn

from rlbench.assembly.foreign_policy import ForeignActor, sb3_actor
from rlbench.datasets.sb3_import import read_policy
from rlbench.envs.base import Box, Discrete, EnvInfo
from rlbench.errors import RefusedFile
from rlbench.evaluation import model_process
from rlbench.evaluation.model_process import ModelClient, ModelFormat
from tests.commands import line_of_refusal, run_command, stdout_of
from tests.datasets.onnx.make import Balance
from tests.laws.source import ROOT
from tests.zips import torch_zip, zip_of

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # by torch itself
FILES = ROOT / "tests/datasets/sb3"
MODELS = ROOT / "tests/datasets/onnx"
PREDICTED: dict[str, list[float]] = json.loads((FILES / "actions.json").read_text())
POLES = EnvInfo(1, (4,), np.dtype(np.float32), Discrete(2), ())
PENDULUM = EnvInfo(1, (3,), np.dtype(np.float32), Box(np.float32([-2]), np.float32([2])), ())
FRAMES = EnvInfo(1, (84, 84), np.dtype(np.uint8), Discrete(6), ())


@pytest.mark.parametrize("name", PREDICTED)
def test_sb3_policy_acts_like_its_predict(name: str) -> None:
    policy = read_policy(FILES / f"{name}.zip")
    info = POLES if name.endswith("cartpole") else PENDULUM
    obs = np.random.default_rng(0).normal(size=(16, *info.obs_shape)).astype(np.float32)
    action = sb3_actor(Path(name), policy, info).act(torch.from_numpy(obs), "eval").numpy()
    assert policy.algorithm == name.partition("-")[0] and policy.normalized == ("normalized" in name)
    expected = np.array(PREDICTED[name])
    if info is PENDULUM:
        np.testing.assert_allclose(2 * action, expected, atol=1e-5)
        assert len(np.unique(action.round(3))) > 3
    else:
        assert (action == expected).all() and len(set(expected)) == 2


class Nature(nn.Module):
    """CnnPolicy of DQN as Stable-Baselines3 names its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.features_extractor = nn.Module()
        self.features_extractor.cnn = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU()
        )
        self.features_extractor.linear = nn.Sequential(nn.Linear(3136, 16), nn.ReLU())
        self.q_net = nn.Sequential(nn.Linear(16, 6))

    def forward(self, obs: Tensor) -> Tensor:
        extractor = self.features_extractor
        return self.q_net(extractor.linear(extractor.cnn(obs / 255).flatten(1)))


def zipped(path: Path, state: dict[str, Tensor]) -> Path:
    path.write_bytes(zip_of({"data": "{}", "policy.pth": torch_zip(state)}))
    return path


def test_frame_policy_gets_frames_divided_by_255(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Module()
    network.q_net = Nature()
    policy = read_policy(zipped(tmp_path / "q.zip", network.state_dict()))
    obs = torch.randint(0, 256, (5, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        expected = network.q_net(obs.float()).argmax(1)
    assert (sb3_actor(tmp_path, policy, FRAMES).act(obs, "eval") == expected).all()
    with pytest.raises(RefusedFile, match="sees frames, the task shows vectors"):
        sb3_actor(tmp_path, policy, POLES)
    network.q_net.features_extractor.own = nn.Linear(1, 1)
    with pytest.raises(RefusedFile, match="features extractor of its own"):
        read_policy(zipped(tmp_path / "own.zip", network.state_dict()))


@pytest.mark.parametrize("algorithm", ["PPO", "DQN"])
def test_sb3_frame_policy_acts_like_its_predict(algorithm: str, tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")  # its smallest zip of this policy has 535 kB
    env = gymnasium.Env()
    env.observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    env.action_space = gymnasium.spaces.Discrete(6)
    settings = {"features_extractor_kwargs": {"features_dim": 4}}
    memory = {"n_steps": 64} if algorithm == "PPO" else {"buffer_size": 1}
    model = getattr(sb3, algorithm)("CnnPolicy", env, policy_kwargs=settings, seed=1, device="cpu", **memory)
    model.save(tmp_path / "frames.zip")
    frames = np.random.default_rng(0).integers(0, 256, (32, 84, 84, 4), np.uint8)
    policy = read_policy(tmp_path / "frames.zip")
    obs = torch.from_numpy(frames.transpose(0, 3, 1, 2).copy())
    actions = sb3_actor(tmp_path, policy, FRAMES).act(obs, "eval").numpy()
    assert policy.algorithm == algorithm.lower() and (actions == model.predict(frames, deterministic=True)[0]).all()


def test_policy_without_its_normalization_is_not_compared() -> None:
    policy = f"--policy {FILES / 'a2c-normalized-pendulum.zip'} --format sb3"
    out = stdout_of(f"eval {policy} toy Pendulum-v1 --algo sac --episodes 2")
    assert "NOT COMPARABLE: trained within VecNormalize" in out and "documented" not in out


def test_model_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlbench.records.machine.available_memory", lambda: 1_000_000_000)
    Path("m.pt").touch()
    os.truncate("m.pt", 100_000_000)
    assert "1.00 GB are free" in line_of_refusal("eval --policy m.pt --format torchscript toy CartPole-v1")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torchscript", "onnx"])
def test_model_is_evaluated_and_compared_with_the_reference(form: str, tmp_path: Path) -> None:
    model = MODELS / "balance.onnx"
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    else:
        model = tmp_path / "balance.pt"
        torch.jit.save(torch.jit.trace(Balance(), torch.ones(3, 4)), model)
    words = ("eval", "--policy", str(model), "--format", form, "toy", "CartPole-v1", "--episodes", "6")
    code, out, error = run_command([*words, "--algo", "ppo", "--json"])
    document = json.loads(out)
    assert (code, error) == (0, "") and document["documented"]["score"] == 500.0
    assert len(document["returns"]) == 6 and document["low"] <= document["mean"] <= document["high"]
    assert document["verdict"] == ("REACHED" if document["low"] >= 475 else "INCONCLUSIVE: play more episodes")
    assert document["mean"] > 150
    assert "no reference; name the algorithm with --algo" in stdout_of(words)


def test_sb3_policy_is_compared_with_the_reference_of_its_algorithm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLBENCH_DEVICE", "cpu")  # of a variable nothing is refused
    out = stdout_of(f"eval --policy {FILES / 'ppo-cartpole.zip'} --format sb3 toy CartPole-v1 --episodes 4")
    assert "toy/ppo/CartPole-v1" in out and "documented  500.00" in out and "verdict     BELOW" in out
    error = line_of_refusal(f"eval --policy {FILES / 'a2c-pendulum.zip'} --format sb3 toy CartPole-v1")
    assert "does not take observations of shape [4]" in error


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--policy", "x.zip", "toy", "Catch"), "name format and task too"),
        (("--policy", "x.zip", "--format", "tf", "toy", "Catch"), "unknown format 'tf'"),
        (("--policy", "x.zip", "--format", "sb3", "toy"), "name format and task too"),
        (("--policy", "x.zip", "--format", "sb3", "toy", "Catch"), "x.zip: cannot be read"),
        (("--policy", "x.pt", "--format", "torchscript", "toy", "Catch"), "x.pt: cannot be read"),
        (("--format", "sb3", "toy", "Catch"), "name it with --policy FILE"),
        (
            ("--policy", "x.zip", "toy", "--video", "x.gif", "--checkpoint", "best"),
            "leave --video and --checkpoint out",
        ),
        (("--policy", "x.zip", "toy", "--device", "cpu"), "--policy x.zip: plays no run; leave --device out"),
        (("--policy", "x.zip", "toy", "--results", "x"), "--policy x.zip: plays no run; leave --results out"),
        (("run", "--import", "nowhere"), "unknown run 'run'"),
    ],
)
def test_eval_policy_with_missing_options_is_refused_in_one_line(words: tuple[str, ...], text: str) -> None:
    assert text in line_of_refusal(["eval", *words])


def test_missing_onnxruntime_message_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_process, "find_spec", lambda _: None)
    assert 'pip install "rlbench[onnx]"' in line_of_refusal("eval --policy m.onnx --format onnx toy CartPole-v1")


def test_frame_model_in_its_process_equals_torch() -> None:
    pytest.importorskip("onnxruntime")
    frames = np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8)
    with ModelClient(MODELS / "frames.onnx", "onnx") as client:
        values = client(frames)
    assert values.shape == (3, 6)
    np.testing.assert_allclose(values[:, 0], [0.008313071, 0.018329021, 0.023678280], rtol=1e-4)


def test_a_model_of_one_row_answers_row_by_row_and_other_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Session:
        get_inputs = staticmethod(lambda: [SimpleNamespace(name="obs", shape=[1, 2], type="tensor(float)")])

        def run(self, _: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            (row,) = inputs["obs"]
            return [2 * row[None]]

    runtime = SimpleNamespace(SessionOptions=SimpleNamespace, InferenceSession=lambda *_, **__: Session())
    obs = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert (model_process._onnx(b"", runtime)(obs) == 2 * obs).all()
    client = object.__new__(ModelClient)
    client.path = Path("m.onnx")
    monkeypatch.setattr(ModelClient, "_send", lambda *_: None)
    monkeypatch.setattr(ModelClient, "_receive", lambda *_: obs[:1])
    with pytest.raises(RefusedFile, match=r"m\.onnx: answers 1 rows to 3"):
        client(obs)


class Transposed(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs.t()


class Failing(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return obs @ torch.ones(7, 7)


@pytest.mark.parametrize(
    ("module", "text"),
    [(Transposed(), "2 rows to 3"), (Failing(), r"fails \(RuntimeError: mat1 and mat2 shapes cannot be multiplied")],
)
def test_model_with_an_action_a_column_or_an_error_is_refused(module: nn.Module, text: str, tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(module), tmp_path / "m.pt")
    with ModelClient(tmp_path / "m.pt", "torchscript") as client, pytest.raises(RefusedFile, match=text):
        client(np.ones((3, 2), np.float32))


class Printing(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        for _ in range(1000):
            print("a line of the model")  # noqa: T201 - as a model may
        return 2 * obs


def test_torchscript_that_prints_and_was_packed_again_by_another_program_plays(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Printing()), tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt") as saved, zipfile.ZipFile(tmp_path / "again.pt", "w") as again:
        for name in saved.namelist():
            again.writestr(name, saved.read(name))  # without the flag of UTF-8 names
    obs = np.arange(6, dtype=np.float32).reshape(3, 2)
    with ModelClient(tmp_path / "again.pt", "torchscript") as client:
        assert (client(obs) == 2 * obs).all()


def test_changed_torchscript_file_is_refused(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    torch.jit.save(torch.jit.script(module), tmp_path / "m.pt")
    raw = bytearray((tmp_path / "m.pt").read_bytes())
    raw[raw.index(module.weight.detach().numpy().tobytes()) + 3] ^= 0x80  # a sign
    (tmp_path / "m.pt").write_bytes(raw)
    with pytest.raises(RefusedFile, match="data/0 is damaged"):
        ModelClient(tmp_path / "m.pt", "torchscript")


class Endless(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        while bool(obs.sum() == obs.sum()):
            obs = obs + 0
        return obs


class Huge(nn.Module):
    def forward(self, obs: Tensor) -> Tensor:
        return torch.ones(250_000_000_000)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "text"), [(Endless(), "no answer in time"), (Huge(), "fails|ended with code")])
def test_hanging_or_oversized_model_is_refused(
    module: nn.Module, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.jit.save(torch.jit.script(module), tmp_path / "m.pt")
    monkeypatch.setattr(model_process, "REPLY_TIMEOUT", 2.0)
    with ModelClient(tmp_path / "m.pt", "torchscript") as client, pytest.raises(RefusedFile, match=text):
        client(np.ones((2, 4), np.float32))
    assert client._process.returncode is not None


CALL = """
import sys, numpy, pathlib
from rlbench.evaluation.model_process import ModelClient
client = ModelClient(pathlib.Path(sys.argv[1]), "torchscript")
print(client._process.pid, flush=True)
client(numpy.ones((2, 4), numpy.float32))
"""


@pytest.mark.slow
def test_looping_model_ends_with_its_killed_command(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Endless()), tmp_path / "m.pt")
    with subprocess.Popen(
        [sys.executable, "-c", CALL, tmp_path / "m.pt"], stdout=subprocess.PIPE, text=True
    ) as command:
        model = psutil.Process(int(command.stdout.readline()))
        time.sleep(2)  # the model loops now, and no longer reads its stdin
        command.kill()
    model.wait(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["torchscript", "onnx"])
@pytest.mark.parametrize("raw", [b"", b"<html>\x1b[31m", b"PK\x03\x04" + b"\0" * 100])
def test_invalid_model_file_is_refused(raw: bytes, form: ModelFormat, tmp_path: Path) -> None:
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    (tmp_path / "m.pt").write_bytes(raw)
    with pytest.raises(RefusedFile, match=r"m\.pt: (fails|its process ended)") as refusal:
        ModelClient(tmp_path / "m.pt", form)
    assert str(refusal.value).isprintable()


def test_the_process_of_a_model_has_no_files_network_programs_or_signals(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("")
    attempts = {
        "look": f"os.stat({str(tmp_path / 'secret')!r})",
        "list": f"os.listdir({str(tmp_path)!r})",
        "read": f"open({str(tmp_path / 'secret')!r})",
        "write": f"open({str(tmp_path / 'new')!r}, 'w')",
        "unlink": f"os.unlink({str(tmp_path / 'secret')!r})",
        "rename": f"os.rename({str(tmp_path / 'secret')!r}, {str(tmp_path / 'b')!r})",
        "network": "socket.socket()",
        "program": "subprocess.run(['true'])",
        "fork": "os.fork()",
        "shared memory": "os.memfd_create('m')",
        "signal": "os.kill(os.getppid(), 0)",
        "signal by descriptor": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 0)",
    }
    code = "import os, resource, signal, socket, subprocess, sys, threading\nimport rlbench.config.names\n"
    code += "from rlbench.evaluation import model_process\ngo = threading.Event()\n"
    code += f"def attempt():\n go.wait()\n for name, text in {attempts!r}.items():\n"
    code += "  try: eval(text); print(name, 'WORKED')\n  except PermissionError: print(name, 'refused')\n"
    code += "  except BaseException as error: print(name, repr(error))\n"
    code += "other = threading.Thread(target=attempt); other.start()\n"
    code += "model_process.limit_resources(); model_process.refuse_system_calls(); go.set(); other.join(); attempt()\n"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n")[:-1] == [f"{name} refused" for name in attempts] * 2, done.stdout + done.stderr
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize(
    ("output", "info", "text"),
    [
        ([[np.nan, 0.0]], POLES, "not a finite number"),
        ([[0.5]], POLES, "not among 0 to 1"),
        ([[2.0]], POLES, "not among 0 to 1"),
        ([[0.0, 0.0, 0.0]], POLES, "gives 3 outputs per observation, the task takes 1 or 2"),
        ([[0.0, 0.0]], PENDULUM, "gives 2 outputs per observation, the task takes 1"),
    ],
)
def test_invalid_model_output_is_refused(output: list[list[float]], info: EnvInfo, text: str) -> None:
    actor = ForeignActor(Path("m.pt"), lambda _: np.array(output), info, normalized=False)
    with pytest.raises(RefusedFile, match=text):
        actor.act(torch.zeros(1, *info.obs_shape), "eval")


def test_actions_in_the_environments_units_are_scaled_and_clipped() -> None:
    actor = ForeignActor(Path("m.pt"), lambda _: np.array([[-3.0], [1.0], [2.0]]), PENDULUM, normalized=False)
    assert actor.act(torch.zeros(3, 3), "eval").tolist() == [[-1.0], [0.5], [1.0]]
