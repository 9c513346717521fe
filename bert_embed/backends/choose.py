"""Chooses the engine for a precision and a device, and checks what this machine can compute."""

import logging
import os
from collections.abc import Callable
from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec
from typing import Any

from bert_embed.backends.protocol import Engine
from bert_embed.base.arguments import one_of
from bert_embed.base.environment import missing
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import LITERT, WEIGHTS, Bundle

PRECISIONS = ("float32", "int8", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "gpu", "tpu", "xla_cpu")
# One of them exists where an NVIDIA driver is loaded: on Linux, in containers, on WSL.
NVIDIA_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
_LOG = logging.getLogger(__name__)
# What provides TensorFlow for a device; TensorFlow's own package does for others.
_PROVIDERS = {"gpu": "tensorflow[and-cuda]", "tpu": "tensorflow-tpu"}
# The type of `load_engine`; callers can pass a function of their own.
EngineLoader = Callable[[Bundle, tuple[int, int], str, str, int], Engine]


def check_precision(precision: str, device: str = "auto") -> None:
    """Checks that a precision can run on a device of any machine; SettingError names both."""
    one_of("precision", precision, PRECISIONS)
    one_of("device", device, DEVICES)
    if precision == "int8" and device not in ("auto", "cpu"):
        raise SettingError(
            "precision", f"int8 is for processors, for device {device} take bfloat16", "device"
        )
    if precision not in LITERT and device == "cpu":
        raise SettingError(
            "precision", f"{precision} is for GPUs and TPUs, for device cpu take int8", "device"
        )
    if precision == "float16" and device == "tpu":
        raise SettingError(
            "precision", "float16 is for GPUs, for device tpu take bfloat16", "device"
        )


def check_machine(precision: str, device: str = "auto") -> None:
    """Checks for precision and device; TensorFlow loads only if the answer depends on devices."""
    if precision not in LITERT or device != "auto":
        find_device(precision, device)


def torch_device(name: str | None) -> Any:
    """Returns one of `DEVICES` for a device that PyTorch names; other values as they are.

    >>> torch_device("cuda:0"), torch_device(None), torch_device("tpu")
    ('gpu', 'auto', 'tpu')
    """
    if name is None:
        return "auto"
    kind, _, number = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind != "cuda":
        return name
    if number not in ("", "0"):
        raise SettingError(
            "device",
            f"{name}: the first visible GPU computes; set CUDA_VISIBLE_DEVICES={number} before the "
            "program starts, and take gpu",
        )
    return "gpu"


def find_device(precision: str, device: str | None) -> str:
    """Returns the device that computes: for "auto" a GPU if TensorFlow finds one, else "cpu".

    `device` may be as PyTorch names it; "auto" never chooses a TPU, and with int8 the processor.
    SettingError: this machine lacks the device, the precision on it, or TensorFlow.
    """
    device = torch_device(device)
    check_precision(precision, device)
    _check_tensorflow(precision, device)
    if device not in ("auto", "gpu"):
        return device
    if precision != "int8" and _has_gpu():
        return "gpu"
    if device == "gpu":
        raise SettingError(
            "device",
            "gpu: TensorFlow sees no GPU on this machine; it needs an NVIDIA driver and the "
            "packages of tensorflow[and-cuda]",
        )
    if precision not in LITERT:
        raise SettingError(
            "precision",
            f"{precision} requires a GPU, and TensorFlow finds none here; take int8 or float32",
        )
    return "cpu"


def _check_tensorflow(precision: str, device: str) -> None:
    if (precision in LITERT and device in ("auto", "cpu")) or _has_tensorflow():
        return
    package = _PROVIDERS.get(device, "tensorflow")
    if precision in LITERT:
        raise SettingError("device", missing(device, package))
    raise SettingError("precision", missing(precision, package))


def _has_tensorflow() -> bool:
    return find_spec("tensorflow") is not None


def has_nvidia_driver() -> bool:
    """Returns whether this machine has an NVIDIA GPU with its driver."""
    return any(map(os.path.exists, NVIDIA_DRIVER))


def _has_gpu() -> bool:
    if not has_nvidia_driver():
        return False  # known without TensorFlow, whose import takes seconds
    seen = _has_tensorflow() and has_cuda() and _sees_gpu()
    if not seen:
        _warn_of_unused_gpu()
    return seen


@cache  # a process asks several times
def _warn_of_unused_gpu() -> None:
    _LOG.warning(
        "this machine has an NVIDIA GPU, and TensorFlow does not see it: it needs the packages "
        "of tensorflow[and-cuda]; the processor computes"
    )


def has_cuda() -> bool:
    """Returns whether there are CUDA libraries for TensorFlow: in packages, or the system's."""
    packaged = find_spec("nvidia") is not None and find_spec("nvidia.cudnn") is not None
    return packaged or find_library("cudnn") is not None


def _sees_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def engine_name(device: str) -> str:
    """Returns the name of the engine that computes on a device that `find_device` returned."""
    return "litert" if device == "cpu" else "xla"


def weight_files(bundle: Bundle, precision: str, device: str | None) -> list[str]:
    """Returns the names of the bundle's weights that `load_engine` reads on this machine."""
    on_processor = find_device(precision, device) == "cpu"
    return [LITERT[precision] if on_processor else WEIGHTS]


def load_engine(
    bundle: Bundle,
    special_ids: tuple[int, int],
    precision: str,
    device: str = "auto",
    threads: int = 1,
) -> Engine:
    """Loads a model into an engine, which `threads` will call at once.

    `special_ids` are those of [CLS] and [SEP]; `device` is as `find_device` takes it. SettingError:
    this machine does not support precision or device; InputError: the bundle's files are damaged.
    """
    device = find_device(precision, device)
    if device == "cpu":
        from bert_embed.backends.litert.engine import LiteRTEngine

        return LiteRTEngine(bundle, special_ids, precision, threads)
    from bert_embed.backends.tensorflow.engine import XLAEngine

    return XLAEngine(bundle, special_ids, precision, device)
