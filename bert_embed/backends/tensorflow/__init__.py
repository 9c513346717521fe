"""TensorFlow: programs that XLA compiles for GPUs, and the SavedModel of a model."""

from ctypes.util import find_library
from importlib.util import find_spec

from bert_embed.backends.protocol import Backend

_SHORT = ("float32", "bfloat16", "float16")
BACKEND = Backend(
    name="tensorflow",
    package="tensorflow",
    precisions={"gpu": _SHORT, "cpu": _SHORT},
    load="bert_embed.backends.tensorflow.model:XLAEngine",
    named_on=("cpu",),  # where it is slow
    providers={"gpu": "tensorflow[and-cuda]"},
    sees="bert_embed.backends.tensorflow:sees",
)


def sees(device: str) -> bool:
    """Returns whether TensorFlow, whose import takes seconds, finds a GPU or the processor."""
    packaged = find_spec("nvidia") is not None and find_spec("nvidia.cudnn") is not None
    if device == "gpu" and not packaged and find_library("cudnn") is None:
        return False  # there are no CUDA libraries for it
    import tensorflow as tf

    return bool(tf.config.list_physical_devices(device.upper()))
