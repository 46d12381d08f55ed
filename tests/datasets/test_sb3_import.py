"""Zips of Stable-Baselines3: real ones are converted, hostile ones refused by name, and no code in them is run."""

import io
import json
import math
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlbench.datasets import torchfile
from rlbench.datasets.policies import Policy, parse_policy
from rlbench.datasets.sb3_import import convert_sb3, read_policy
from rlbench.datasets.torchfile import tensors
from rlbench.errors import RefusedFile
from tests.zips import torch_zip, with_member, zip_of

REAL = Path(__file__).parent / "sb3-2.9.2-sac-pendulum.zip"
START = np.zeros(1, np.int64)


def actor(prefix: str, sizes: tuple[int, ...], *, last: str | None = None) -> dict[str, torch.Tensor]:
    """Plain layers under the names of a ``torch.nn.Sequential``, which counts activations too."""
    state: dict[str, torch.Tensor] = {}
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        name = last if last is not None and i == len(sizes) - 2 else f"{prefix}.{2 * i}"
        state[f"{name}.weight"] = torch.arange(outputs * inputs).reshape(outputs, inputs).float() / 50 - 0.1
        state[f"{name}.bias"] = torch.full((outputs,), 0.01 * (i + 1))
    return state


PPO = {
    "log_std": torch.tensor([-1.0, -2.0]),
    **actor("mlp_extractor.policy_net", (3, 4, 5, 2), last="action_net"),
    **actor("mlp_extractor.value_net", (3, 4, 5)),
}


def zipped(folder: Path, state: Mapping[str, object] | bytes, data: object = None) -> Path:
    """A zip as ``save`` lays it out."""
    weights = state if isinstance(state, bytes) else torch_zip(OrderedDict(state))
    text = json.dumps({"policy_kwargs": {}} if data is None else data)
    members = {"data": text, "policy.pth": weights, "_stable_baselines3_version": "2.9.2"}
    (folder / "model.zip").write_bytes(zip_of(members))
    return folder / "model.zip"


def converted(path: Path) -> Policy:
    """The policy that a zip becomes."""
    return parse_policy(convert_sb3(path, task="Small-v0"), str(path))


def test_actor_of_an_sb3_zip_acts_like_sb3() -> None:
    policy = parse_policy(convert_sb3(REAL, task="Pendulum-v1"), "real")
    obs = np.array([[0.1, 0.2, 0.3], [1, -1, 2]], np.float32)
    # SAC("MlpPolicy", …).predict(obs, deterministic=True) of the model before it was saved, halved: torque is within ±2
    assert 2 * policy(obs, np.zeros(2, np.int64)).ravel() == pytest.approx([-0.39951575, -0.5955986], abs=1e-6)
    assert (policy.metadata.squash, policy.metadata.log_std, policy.metadata.activation) == ("tanh", "layer", "relu")
    assert (policy.metadata.log_std_min, policy.metadata.log_std_max) == (-20, 2)
    assert policy.metadata.env_evaluated == "Pendulum-v1"


def test_an_on_policy_zip_acts_as_its_layers_do(tmp_path: Path) -> None:
    policy = converted(zipped(tmp_path, PPO))
    x = torch.tensor([0.5, -1.0, 2.0])
    for i in (0, 2):
        x = torch.tanh(PPO[f"mlp_extractor.policy_net.{i}.weight"] @ x + PPO[f"mlp_extractor.policy_net.{i}.bias"])
    mean = PPO["action_net.weight"] @ x + PPO["action_net.bias"]
    obs = np.array([[0.5, -1.0, 2.0]], np.float32)
    assert policy(obs, START)[0] == pytest.approx(mean.numpy(), abs=1e-6)
    sample = policy(obs, START, np.array([[0.5, -0.5]]))
    assert sample[0] == pytest.approx(mean.numpy() + np.array([math.exp(-1), -math.exp(-2)]) / 2, abs=1e-6)
    assert policy.metadata.squash == "clip"


def test_a_chosen_activation_is_honoured_and_an_unknown_one_refused(tmp_path: Path) -> None:
    options = {"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ReLU'>"}}
    assert converted(zipped(tmp_path, PPO, options)).metadata.activation == "relu"
    unknown = {"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.ELU'>"}}
    with pytest.raises(RefusedFile, match="has the activation ELU"):
        converted(zipped(tmp_path, PPO, unknown))


def test_deterministic_actor_has_no_std(tmp_path: Path) -> None:
    policy = converted(zipped(tmp_path, {**actor("actor.mu", (3, 4, 2)), **actor("critic.qf0", (5, 4, 1))}))
    assert policy.log_std is None and policy.metadata.squash == "tanh" and len(policy.hidden) == 1


@pytest.mark.parametrize(
    ("state", "data", "why"),
    [
        ({**PPO, "log_std": torch.zeros(5, 2)}, None, "no plain log_std"),  # gSDE
        ({k: v for k, v in PPO.items() if k != "log_std"}, None, "no plain log_std"),  # discrete actions
        ({k: v for k, v in PPO.items() if k != "action_net.bias"}, None, "action_net.bias is missing"),
        ({**PPO, "features_extractor.cnn.0.weight": torch.zeros(1)}, None, "features extractor"),
        (actor("q_net.q_net", (3, 4, 2)), None, "expected an actor of plain layers"),
        (PPO, {"action_space": {"low": "[-2. -2.]", "high": "[2. 2.]"}}, "has actions outside"),
        (PPO, [1], "data is no dictionary"),
        ({**PPO, "action_net.bias": torch.tensor(1.0)}, None, "expected a layer's weight and bias"),
        (PPO, {"action_space": {"low": "1" * 20_000}}, "has actions outside"),
        (PPO, {"policy_kwargs": {"activation_fn": "A" * 10**6}}, "has the activation A{40}…"),
        ({"x" * 10**5: torch.zeros(1)}, None, "holds x{40}…"),
        (PPO, {"buffer": " " * 2**24}, "data has 16,777,"),
        (PPO, {"policy_kwargs": {"squash_output": True}}, "on squash_output=True, which is not read"),
        (PPO, {"policy_kwargs": {":type:": "<class 'dict'>", "squash_output": "True"}}, "squash_output=True"),
        (PPO, {"policy_kwargs": {"normalize_images": 0}}, "on normalize_images=0"),
        (PPO, {"policy_kwargs": {"features_extractor_class": "<class 'a.NatureCNN'>"}}, "class=a.NatureCNN"),
        ({**actor("actor.latent_pi", (3, 3)), **actor("actor.mu", (3, 2))}, None, "actor.mu.weight is missing"),  # gSDE
        (
            {**PPO, "lstm_actor.weight_ih_l0": torch.zeros(16, 3)},
            None,
            "holds lstm_actor.weight_ih_l0, which is not read",
        ),
        ({**PPO, **actor("mlp_extractor.shared_net", (3, 3))}, None, "holds mlp_extractor.shared_net.0.weight"),
    ],
)
def test_an_actor_that_cannot_be_converted_is_refused(
    tmp_path: Path, state: dict[str, torch.Tensor], data: object, why: str
) -> None:
    with pytest.raises(RefusedFile, match=why) as caught:
        convert_sb3(zipped(tmp_path, state, data), task="Small-v0")
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


def test_tqc_is_not_compared_with_sac(tmp_path: Path) -> None:
    state = actor("actor.latent_pi", (3, 4)) | actor("actor.mu", (4, 2), last="actor.mu")
    names = [
        read_policy(zipped(tmp_path, state, data)).algorithm for data in ({}, {"top_quantiles_to_drop_per_net": 2})
    ]
    assert names == ["sac", ""]


def test_a_layer_of_an_absurd_number_is_none_of_the_actors(tmp_path: Path) -> None:
    name = f"mlp_extractor.policy_net.{'9' * 5_000}.weight"
    assert converted(zipped(tmp_path, {**PPO, name: torch.zeros(1)})).metadata.action_dim == 2


def test_actions_in_unit_bounds_are_unchanged(tmp_path: Path) -> None:
    data = {"action_space": {"low": "[-1. -1.]", "high": "[1. 1.]"}}
    assert converted(zipped(tmp_path, PPO, data)).metadata.action_dim == 2


def test_other_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"

    def refused(why: str, content: bytes | None = None, **members: bytes) -> None:
        if content is not None:
            path.write_bytes(content)
        if members:
            path.write_bytes(zip_of(members))
        with pytest.raises(RefusedFile, match=why):
            convert_sb3(path, task="Small-v0")

    refused("cannot be read")
    refused("not a zip of Stable-Baselines3", b"no zip at all")
    refused(r"policy.pth is missing", data=b"{}")
    refused("data is missing", **{"policy.pth": b""})
    raw = bytearray(zipped(tmp_path, PPO).read_bytes())
    raw[raw.index(b"policy.pth") + 200] ^= 1
    refused("Bad CRC-32", raw)


def test_tensors_equal_those_saved_by_torch() -> None:
    base = torch.arange(24).float().reshape(4, 6)
    state = OrderedDict(
        whole=base,
        turned=base.T,
        cut=base[1:3, ::2],
        scalar=torch.tensor(2.5, dtype=torch.float64),
        count=torch.tensor([7]),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(torch.ones(2)),
    )
    state_back = tensors(torch_zip(state), "x")
    assert state_back.keys() == state.keys()
    for name, array in state_back.items():
        np.testing.assert_array_equal(array, state[name].detach().numpy())
        assert array.dtype == state[name].detach().numpy().dtype


def test_module_state_is_read_without_its_metadata() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1))
    state_back = tensors(torch_zip(module.state_dict()), "x")
    assert {name: array.shape for name, array in state_back.items()} == {
        k: tuple(v.shape) for k, v in module.state_dict().items()
    }


class Hostile:
    """Unpickled, it would run a command."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("function", "name"),
    [(os.system, "system"), (eval, "eval"), (os.unlink, "unlink"), (getattr, "getattr"), (list, "list")],
)
def test_a_pickle_that_calls_something_is_refused_by_name_and_never_run(
    tmp_path: Path, function: Any, name: str, protocol: int
) -> None:
    witness = tmp_path / "witness"
    witness.write_text("alive")
    command = f"rm {witness}" if name == "system" else f"__import__('os').unlink({str(witness)!r})"
    program = pickle.dumps({"x": Hostile(function, str(witness) if name == "unlink" else command)}, protocol)
    raw = with_member(torch_zip(OrderedDict(PPO)), "data.pkl", program)
    with pytest.raises(RefusedFile, match=rf"holds (the pickle step|[a-z_]+\.{name})") as caught:
        convert_sb3(zipped(tmp_path, raw), task="Small-v0")
    assert witness.read_text() == "alive" and "never run" in str(caught.value)
    if protocol:
        assert f".{name}, which is never run" in str(caught.value)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (b"", "damaged"),
        (b"\x80\x02}", "damaged"),
        (b"\x80\x02.", "not a zip of tensors"),
        (b"\x80\x02K\x01.", "no dictionary of tensors"),
        (b"\x80\x02}X\x01\x00\x00\x00aK\x01s.", "a is no tensor"),
        (b"\x80\x02ccollections\nOrderedDict\nK\x01\x85R.", "not a zip of tensors"),
        (b"\x80\x02}K\x01K\x02s.", "1 is no tensor"),
        (b"\x80\x02}}X\x01\x00\x00\x00aK\x01sb.", r"not a zip of tensors \(damaged, or more than a state_dict\)"),
        (b"\x80\x04)\x85\x85\x93.", "damaged|never run"),
        (b"\x80\x02h\x07.", "used twice"),
        (b"\x80\x02t.", "not a zip of tensors"),
        (b"\x80\x022.", "damaged|the pickle step DUP"),
        (b"\x80\x02(ios\nsystem\n.", "the pickle step INST"),
        (b"\x80\x02\x8c\x01xQ.", "not a zip of tensors"),
        (b"\x80\x02ccollections\nCounter\n)R.", "collections.Counter"),
        (b"\x80\x02cbuiltins\nset\n)R.", "builtins.set"),
        (b"\x80\x02ctorch._utils\n_rebuild_wrapper_subclass\n)R.", "_rebuild_wrapper_subclass"),
        (b"\x80\x02}K\x01\x85q\x00h\x00\x86q\x00.", "used twice"),
        (b"\x80\x02}K\x01\x85q\x00q\x01h\x01\x86.", "used twice"),
        (b"\x80\x02K\x01\x85(uq\x00h\x00\x86.", "used twice"),
    ],
)
def test_a_pickle_that_makes_no_tensors_is_refused(program: bytes, why: str) -> None:
    with pytest.raises(RefusedFile, match=why):
        tensors(with_member(torch_zip({"a": torch.ones(2)}), "data.pkl", program), "x")


ONES = torch_zip(OrderedDict(a=torch.ones(4)))


def resized(shape: bytes) -> bytes:
    """``ONES`` with another size beside the same numbers and the stride (1,)."""
    with zipfile.ZipFile(io.BytesIO(ONES)) as file:
        program = file.read(next(name for name in file.namelist() if name.endswith("data.pkl")))
    assert program.count(b"K\x04\x85") == 1  # (4,)
    return with_member(ONES, "data.pkl", program.replace(b"K\x04\x85", shape + b"\x85"))


def in_the_old_format() -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        *[(resized(size), "not a zip of tensors") for size in (b"K\x05", b"J\xff\xff\xff\x7f", b"J\xff\xff\xff\xff")],
        (with_member(ONES, "data/0", b"\0" * 12), r"record size \(12 bytes\)"),
        (ONES.replace(torch.ones(4).numpy().tobytes(), b"\x01" + torch.ones(4).numpy().tobytes()[1:]), "Bad CRC-32"),
        (torch_zip(OrderedDict(a=torch.ones(1).expand(10**12))), "reaches beyond its numbers"),
        (in_the_old_format(), "not a zip of tensors"),
    ],
    ids=["beyond its storage", "far beyond", "negative", "other length", "flipped bit", "huge integer", "old format"],
)
def test_damaged_numbers_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(RefusedFile, match=why):
        tensors(raw, "x")


def test_oversized_storage_is_refused_before_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    one = torch.ones(250)
    monkeypatch.setattr(torchfile, "MAX_UNPACKED_BYTES", 2000)
    assert tensors(torch_zip(OrderedDict(a=one)), "x")["a"].sum() == 250
    for state in (OrderedDict(a=torch.ones(500)), OrderedDict(a=one, b=one[:], c=one[:])):
        with pytest.raises(RefusedFile, match="holds more than 2,000 bytes"):
            tensors(torch_zip(state), "x")
    monkeypatch.setattr(torchfile, "MAX_PICKLE_BYTES", 10)
    with pytest.raises(RefusedFile, match=r"data.pkl has [\d,]+ bytes, 10 are allowed"):
        tensors(torch_zip(OrderedDict(a=torch.ones(1))), "x")


def test_a_pickle_that_nests_one_tuple_into_itself_is_refused_before_anything_hashes_it() -> None:
    doubled = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(60))
    program = b"\x80\x02}K\x01\x85q\x00" + doubled + b"K\x01s."
    with pytest.raises(RefusedFile, match="a tuple or dictionary that is used twice"):
        tensors(with_member(torch_zip({"a": torch.ones(2)}), "data.pkl", program), "x")
