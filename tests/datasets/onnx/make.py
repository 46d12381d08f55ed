"""Write the models of this folder with torch.onnx: ``python make.py``, in an environment with torch and onnx."""

import numpy as np
import torch
from torch import Tensor, nn


class Balance(nn.Module):
    """Push the cart below the falling pole."""

    def forward(self, obs: Tensor) -> Tensor:
        """Logits ``[N, 2]``."""
        lean = obs[:, 2] + obs[:, 3] * 0.5 + obs[:, 1] * 0.05
        return torch.stack([-lean, lean], 1)


class Frames(nn.Module):
    """Small convolutions of stacked frames."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(4, 2, 8, 4), nn.ReLU(), nn.Conv2d(2, 4, 4, 2), nn.ReLU(), nn.Flatten())
        self.values = nn.Linear(324, 6)

    def forward(self, obs: Tensor) -> Tensor:
        """``[N, 4, 84, 84]`` uint8 to values ``[N, 6]``."""
        return self.values(self.layers(obs.float() / 255))


if __name__ == "__main__":
    torch.manual_seed(0)
    frames = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 4, 84, 84), np.uint8))
    for name, model, obs in (("balance", Balance(), torch.zeros(3, 4)), ("frames", Frames(), frames)):
        batch = {"obs": {0: "n"}, "values": {0: "n"}}
        names = {"input_names": ["obs"], "output_names": ["values"], "dynamic_axes": batch}
        torch.onnx.export(model, (obs,), f"{name}.onnx", dynamo=False, **names)
