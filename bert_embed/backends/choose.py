"""The table of engines: which computes a precision on a device, of those that are installed."""

import logging
import os
import pkgutil
import shlex
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec

from bert_embed.backends import jax, litert, openvino, tensorflow
from bert_embed.backends.protocol import Backend, Engine
from bert_embed.base.arguments import one_of
from bert_embed.base.environment import flags, missing
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import WEIGHTS, Bundle
from bert_embed.models.encoder import EncoderConfig

# Where several compute the same, the first that is installed does.
TABLE = (litert.BACKEND, openvino.BACKEND, jax.BACKEND, tensorflow.BACKEND)
# That of models that no other computes; here, because its engine imports tokenizers, which the
# options, which import this table, do without.
_STATIC = Backend(
    name="static",
    package="numpy",
    precisions={"cpu": ("float32",)},
    load="bert_embed.backends.host:StaticEngine",
)
# Other packages name their `Backend` as an entry point of this group; `engine` must name them.
GROUP = "bert_embed.backends"
PRECISIONS = ("float32", "int8", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "gpu", "tpu")
_NEEDS = {"gpu": "an NVIDIA driver", "tpu": "a TPU VM"}
_PLURALS = {"cpu": "processors", "gpu": "GPUs", "tpu": "TPUs"}
# One of them exists where an NVIDIA driver is loaded: on Linux, in containers, on WSL.
NVIDIA_DRIVER = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
_LOG = logging.getLogger(__name__)
# The type of `load_engine`; callers can pass a function of their own.
EngineLoader = Callable[[Bundle, tuple[int, int], str, str, int, str | None], Engine]


def check_precision(precision: str, device: str = "auto", engine: str | None = None) -> None:
    """Checks that an engine computes so on a device of any machine; SettingError if none does."""
    one_of("precision", precision, PRECISIONS)
    one_of("device", device, DEVICES)
    devices = _devices(precision, engine)
    if devices and device in ("auto", *devices):
        return
    if engine is not None:
        on = "" if device == "auto" else f" on device {device}"
        computed = {name: None for names in _named(engine).precisions.values() for name in names}
        where = ", ".join(_named(engine).precisions)
        raise SettingError(
            "engine",
            f"{engine} does not compute {precision}{on}, but {', '.join(computed)} on {where}",
            "precision",
        )
    computing = " and ".join(_PLURALS[name] for name in devices)
    instead = "int8" if device == "cpu" else "bfloat16"
    raise SettingError(
        "precision", f"{precision} is for {computing}, for device {device} take {instead}", "device"
    )


def _devices(precision: str, engine: str | None) -> list[str]:
    """The devices on which an engine, or any that need not be named, computes so."""
    return [device for device in _PLURALS if _computing(precision, device, engine)]


def _computing(precision: str, device: str, engine: str | None) -> list[Backend]:
    rows = TABLE if engine is None else (_named(engine),)
    return [
        row
        for row in rows
        if precision in row.precisions.get(device, ())
        and (engine is not None or device not in row.named_on)
    ]


def _told(computing: Sequence[Backend]) -> Backend:
    """The engine that a message names: one that is installed, if there is one."""
    return next(filter(is_installed, computing), computing[0])


def is_installed(backend: Backend) -> bool:
    """Returns whether this machine has the package of an engine."""
    return find_spec(backend.package) is not None


def _has_plugin(backend: Backend, device: str) -> bool:
    plugins = backend.plugins.get(device)
    return plugins is None or any(map(find_spec, plugins))


def _provider(backend: Backend, device: str) -> str:
    return backend.providers.get(device, backend.package)


def _named(engine: str) -> Backend:
    known = {backend.name: backend for backend in TABLE}
    if engine in known:
        return known[engine]
    # Here, because the standard library's mail parser comes with it: a tenth of a light command.
    from importlib.metadata import entry_points

    others = {point.name: point for point in entry_points(group=GROUP)}
    return others[one_of("engine", engine, (*known, *others))].load()


def find_backend(
    precision: str, device: str | None, engine: str | None = None
) -> tuple[Backend, str]:
    """Returns the engine and the device that compute: for "auto" a GPU if there is one, else "cpu".

    "auto" and None never choose a TPU, and with int8 the processor. `engine` names one of several
    that compute so. SettingError: this machine lacks the device, the precision on it, or the
    package.
    """
    device = "auto" if device is None else device
    check_precision(precision, device, engine)
    if engine is not None and not is_installed(_named(engine)):
        raise SettingError("engine", missing(engine, _provider(_named(engine), device)))
    asked = ("gpu", "cpu") if device == "auto" else (device,)
    for place in asked:
        computing = _computing(precision, place, engine)
        needed = [backend.instructions.get(precision) for backend in computing]
        lacks = needed and all(one and flags().isdisjoint(one) for one in needed)
        if place == "cpu" and lacks:
            raise SettingError(
                "precision",
                f"{precision} requires a processor with {' or '.join(needed[0] or ())}, and this "
                "one has neither; take int8 or float32",
            )
        if here := [backend for backend in computing if _is_here(backend, place)]:
            return here[0], place
        if place == "gpu" and computing and has_nvidia_driver():
            told = _told(computing)
            _warn_of_unused_gpu(told.name, _provider(told, "gpu"))
    raise _nothing_here(precision, device, engine)


def model_backend(
    config: EncoderConfig, precision: str, device: str | None, engine: str | None = None
) -> tuple[Backend, str]:
    """As `find_backend`, for a model of which one engine alone may compute the vectors."""
    if not config.engine:
        return find_backend(precision, device, engine)
    asked = {"precision": precision, "device": device or "auto", "engine": engine}
    usual = {"precision": ("float32",), "device": ("auto", "cpu"), "engine": (None, config.engine)}
    for setting, value in asked.items():
        if value not in usual[setting]:
            raise SettingError(
                setting,
                f"{value} does not compute this model, a table without layers: take "
                f"{usual[setting][-1]}",
            )
    return _STATIC, "cpu"


def _is_here(backend: Backend, device: str) -> bool:
    if device == "gpu" and not has_nvidia_driver():
        return False  # known without TensorFlow, whose import takes seconds
    if not (is_installed(backend) and _has_plugin(backend, device)):
        return False
    return not backend.sees or bool(pkgutil.resolve_name(backend.sees)(device))


def chip_memory(
    config: EncoderConfig, precision: str, device: str, engine: str | None = None
) -> list[int]:
    """Returns the bytes of each GPU or TPU chip here on which a model would run, if they say it."""
    backend, device = model_backend(config, precision, device, engine)
    if device == "cpu" or not backend.memory:
        return []
    return list(pkgutil.resolve_name(backend.memory)(device))


def has_nvidia_driver() -> bool:
    """Returns whether this machine has an NVIDIA GPU with its driver."""
    return any(map(os.path.exists, NVIDIA_DRIVER))


@cache  # a process asks several times
def _warn_of_unused_gpu(engine: str, package: str) -> None:
    _LOG.warning(
        "this machine has an NVIDIA GPU, and %s does not see it: it needs the packages of %s; the "
        "processor computes",
        engine,
        package,
    )


def _nothing_here(precision: str, device: str, engine: str | None) -> SettingError:
    devices = _devices(precision, engine)
    is_named = "cpu" in devices and device not in ("auto", "cpu")
    setting, value = ("device", device) if is_named else ("precision", precision)
    place = devices[0] if device == "auto" else device
    computing = _computing(precision, place, engine)
    told = _told(computing)
    name, package = told.name, _provider(told, place)
    if not is_installed(told):
        return SettingError(setting, missing(value, package))
    if not _has_plugin(told, place):
        problem = f"{value}: {name} is here without its plugin for {_PLURALS[place]}"
        return SettingError(setting, f"{problem}: pip install {shlex.quote(package)}")
    if device in _NEEDS:
        return SettingError(
            "device",
            f"{device}: {name} sees no {device.upper()} on this machine; it needs {_NEEDS[device]} "
            f"and the packages of {package}",
        )
    return SettingError(
        "precision", f"{precision} requires a GPU, and {name} finds none here; take int8 or float32"
    )


def weight_files(
    bundle: Bundle, precision: str, device: str | None, engine: str | None = None
) -> list[str]:
    """Returns the names of the bundle's weights that `load_engine` reads on this machine."""
    backend, _ = model_backend(bundle.config, precision, device, engine)
    return [backend.files.get(precision, WEIGHTS)]


def load_engine(
    bundle: Bundle,
    special_ids: tuple[int, int],
    precision: str,
    device: str = "auto",
    threads: int = 1,
    engine: str | None = None,
) -> Engine:
    """Loads a model into an engine, which `threads` will call at once.

    `special_ids` are those of [CLS] and [SEP]; device and engine are as `find_backend` takes them.
    SettingError: this machine does not support the precision on it; InputError: the bundle's files
    are damaged.
    """
    backend, device = model_backend(bundle.config, precision, device, engine)
    return pkgutil.resolve_name(backend.load)(bundle, special_ids, precision, device, threads)
