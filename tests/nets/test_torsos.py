"""Shapes and parameter counts of the papers' networks."""

import torch

from rlbench.nets.dueling import HeadMLP
from rlbench.nets.q_heads import DQNHead, QNet
from rlbench.nets.torsos import MLPTorso, NatureTorso


def count(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_nature_network_has_the_parameters_of_the_paper() -> None:
    """Mnih et al. 2015, Methods: 32@8×8/4, 64@4×4/2, 64@3×3/1 on 4 frames, 512 units, one output an action."""
    torso = NatureTorso(stack=4, size=84, scale=False)
    assert torso.features == 3136
    streams = HeadMLP(features=3136, hidden=512, actions=6, width=1)
    net = QNet(torso, DQNHead(streams, huber=None))
    convolutions = (4 * 64 * 32 + 32) + (32 * 16 * 64 + 64) + (64 * 9 * 64 + 64)
    assert count(net) == convolutions + (3136 * 512 + 512) + (512 * 6 + 6)
    assert net(torch.zeros(2, 4, 84, 84, dtype=torch.uint8), "learn").mean().shape == (2, 6)


def test_pixels_are_divided_by_255_only_when_requested() -> None:
    frames = torch.randint(0, 256, (1, 4, 84, 84), dtype=torch.uint8)
    torch.manual_seed(0)
    plain = NatureTorso(stack=4, size=84, scale=False)
    torch.manual_seed(0)
    other = NatureTorso(stack=4, size=84, scale=True)
    first = torch.nn.functional.conv2d(frames.float() / 255, other.layers[0].weight, other.layers[0].bias, 4)
    torch.testing.assert_close(other(frames), other.layers[1:](first))
    assert plain(frames).abs().max() > 20 * other(frames).abs().max()


def test_the_memory_layout_does_not_change_the_features() -> None:
    """Channels-last is for speed; the same weights as planes give the same numbers."""
    torso = NatureTorso(stack=4, size=84, scale=True)
    frames = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    x = frames.float() / 255
    for layer in torso.layers:
        if isinstance(layer, torch.nn.Conv2d):
            x = torch.nn.functional.conv2d(x, layer.weight.contiguous(), layer.bias, layer.stride)
        else:
            x = layer(x)
    torch.testing.assert_close(torso(frames), x)


def test_a_plain_torso_reads_bytes_as_zero_to_one() -> None:
    torso = MLPTorso(obs_shape=(10, 5), widths=(7, 3))
    assert torso.features == 3
    assert count(torso) == (50 * 7 + 7) + (7 * 3 + 3)
    board = torch.randint(0, 2, (4, 10, 5), dtype=torch.uint8)
    torch.testing.assert_close(torso(board * 255), torso(board.float()))
