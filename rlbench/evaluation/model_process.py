"""Process of one TorchScript or ONNX model: ``python -m rlbench.evaluation.model_process torchscript|onnx``.

stdin brings the model, then observations; stdout answers with actions. Every message is a header of little-endian
numbers and bytes (``ModelClient`` reads them). The limits of ``sandbox.py`` hold before a library reads a byte of the
model.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from importlib import import_module
from io import BytesIO
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from rlbench.evaluation.sandbox import limit_resources, refuse_system_calls
from rlbench.signals import end_with_parent

Array: TypeAlias = NDArray[np.generic]
Model: TypeAlias = Callable[[Array], Array]
REQUEST: Final = struct.Struct("<cQ4I")  # dtype (f, B), bytes, and a shape padded by ones
RESPONSE: Final = struct.Struct("<cII")  # A: actions [rows, columns] float64; E: an error of so many bytes
STDOUT, STDERR = 1, 2  # file descriptors
MODEL_SIZE: Final = struct.Struct("<Q")
DTYPES: Final = {b"f": np.float32, b"B": np.uint8}


def main(form: str) -> None:
    """Load the model and answer until stdin ends."""
    end_with_parent()  # a model that loops never reads that stdin ends
    limit_resources()
    responses = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)  # a model may print
    torch.set_num_threads(1)
    torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3)) @ torch.ones(6, 6)  # loads libraries
    runtime = import_module("onnxruntime") if form == "onnx" else None
    raw = _read(MODEL_SIZE.unpack(_read(MODEL_SIZE.size))[0])
    refuse_system_calls()
    try:
        model = _torchscript(raw) if runtime is None else _onnx(raw, runtime)
        _write(responses, RESPONSE.pack(b"A", 0, 0))
        while head := sys.stdin.buffer.read(REQUEST.size):
            kind, size, *shape = REQUEST.unpack(head)
            obs = np.frombuffer(_read(size), DTYPES[kind]).reshape([n for n in shape if n])
            action = np.asarray(model(obs), np.float64).reshape(len(obs), -1)
            _write(responses, RESPONSE.pack(b"A", *action.shape) + action.tobytes())
    except Exception as error:  # noqa: BLE001 - a model may raise anything; the parent names it
        text = f"{type(error).__name__}: {error}".encode()[:2000]
        _write(responses, RESPONSE.pack(b"E", len(text), 0) + text)


def _torchscript(raw: bytes) -> Model:
    load: Callable[[BytesIO], Callable[[torch.Tensor], object]] = vars(torch.jit)["load"]  # has no types
    module = load(BytesIO(raw))

    def act(obs: Array) -> Array:
        with torch.inference_mode():
            output = module(torch.from_numpy(obs.copy()))
        first = output[0] if isinstance(output, tuple) else output
        return np.asarray(first)

    return act


def _onnx(raw: bytes, runtime: object) -> Model:
    ort = vars(runtime)
    options = ort["SessionOptions"]()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort["InferenceSession"](raw, options, providers=["CPUExecutionProvider"])
    model_input = session.get_inputs()[0]
    dtype = {"tensor(uint8)": np.uint8, "tensor(double)": np.float64}.get(model_input.type, np.float32)

    def act(obs: Array) -> Array:
        rows = np.split(obs, len(obs)) if model_input.shape[:1] == [1] else [obs]
        return np.concatenate([session.run(None, {model_input.name: row.astype(dtype)})[0] for row in rows])

    return act


def _read(size: int) -> bytes:
    raw = sys.stdin.buffer.read(size)
    if len(raw) != size:
        os._exit(0)  # the parent is gone
    return raw


def _write(pipe: int, raw: bytes) -> None:
    unsent = memoryview(raw)
    while unsent:
        unsent = unsent[os.write(pipe, unsent) :]


if __name__ == "__main__":
    main(sys.argv[1])
