"""JAX: programs that XLA compiles for TPUs and NVIDIA GPUs, of packed rows, on all chips."""

import os
from typing import Any

from bert_embed.backends.protocol import Backend
from bert_embed.base.errors import SettingError

BACKEND = Backend(
    name="jax",
    package="jax",
    precisions={
        "gpu": ("float32", "bfloat16", "float16"),
        "tpu": ("float32", "bfloat16"),
        "cpu": ("float32", "bfloat16", "float16"),
    },
    load="bert_embed.backends.jax.engine:JaxEngine",
    named_on=("cpu",),  # where it is slow
    providers={"gpu": "jax[cuda12]", "tpu": "jax[tpu]"},
    plugins={"gpu": ("jax_cuda13_plugin", "jax_cuda12_plugin"), "tpu": ("libtpu",)},
    sees="bert_embed.backends.jax:sees",
    memory="bert_embed.backends.jax:memory",
)


def local_chips(device: str) -> list[Any]:
    """Returns this machine's chips of a device; RuntimeError where JAX finds none."""
    import jax  # which takes a second

    # Else the first process takes three quarters of a GPU's memory, whatever it needs.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    return jax.local_devices(backend=device)


def sees(device: str) -> bool:
    """Returns whether JAX finds a GPU or TPU; SettingError where it finds not even a processor."""
    try:
        return bool(local_chips(device))
    except RuntimeError as error:
        if device != "cpu":
            return False
        raise SettingError(
            "engine",
            "jax: JAX does not start on this machine's processor: JAX_PLATFORMS is "
            f"{os.environ.get('JAX_PLATFORMS') or 'not set'}; unset it, or set it to cpu",
        ) from error


def memory(device: str) -> list[int]:
    """Returns the bytes that programs may use of each chip of this machine, if the chips say it."""
    said = [chip.memory_stats() for chip in local_chips(device)]
    return [stats["bytes_limit"] for stats in said if stats and "bytes_limit" in stats]
