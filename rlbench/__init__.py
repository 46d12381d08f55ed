"""rlbench: documented scores of deep reinforcement learning, measured again."""

import os

__version__ = "0.1.0"

# numpy reads it when it is imported; with more threads its sums round otherwise.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# torch reads them; gradients of convolutions are wrong where OpenMP starts fewer threads than torch counts on.
os.environ["OMP_DYNAMIC"] = "FALSE"
os.environ["OMP_MAX_ACTIVE_LEVELS"] = "1"
# torch.compile reads them; they change numbers, which depend on the record alone, and an invalid one ends a command.
_INDUCTOR = ("TORCHINDUCTOR_", "AOTINDUCTOR_", "AOT_INDUCTOR_", "TORCH_COMPILE_OVERRIDE_")
for _name in [name for name in os.environ if name.startswith(_INDUCTOR)]:
    del os.environ[_name]
# pydantic and torch read them; their plug-ins are any package's, and damaged metadata of one would end every command.
os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
