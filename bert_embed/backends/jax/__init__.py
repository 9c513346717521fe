"""JAX: programs that XLA compiles for TPUs and NVIDIA GPUs, of packed rows, on all chips."""

from bert_embed.backends.protocol import Backend

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
    providers={"gpu": "jax[cuda13]", "tpu": "jax[tpu]"},
    sees="bert_embed.backends.jax:sees",
)


def sees(device: str) -> bool:
    """Returns whether JAX, whose import takes a second, finds a GPU or TPU."""
    import jax

    try:
        return bool(jax.local_devices(backend=device))
    except RuntimeError:
        return False
