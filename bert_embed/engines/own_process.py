"""Settings of processes that are ours, the command line's and workers': never of a host's."""

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them
_LARGE = 1 << 20
# Of the user, for these or for all settings of glibc's allocator.
_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")


def set_up_process() -> None:
    """Lets TensorFlow print errors alone, glibc return large blocks; the environment wins."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    _return_large_blocks()


def _return_large_blocks() -> None:
    """Has glibc return each block of 1 MiB or more to the system as soon as it is freed.

    glibc raises this limit up to 32 MiB while a program runs. The values between a model's
    operations, whose sizes differ from batch to batch, then leave gaps that nothing fits into: 40
    MiB a thread after some thousand sentences.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _SETTINGS):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, 2 * _LARGE)  # what glibc would set with it
