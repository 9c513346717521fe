"""Let the package index's torch run on a CPU alone: `python benchmarks/cpu_torch.py`, after pip.

For Linux the index has only the torch that is linked to CUDA. With its CUDA packages it takes 6 GB,
yet on a CPU nothing is ever called in most of them: the loader merely wants files of these names.
So torch is installed with --no-deps (requirements-torch.txt, with the two small CUDA packages that
are called when torch is imported), and this writes an empty shared library of each other name into
its folder. The environment is for benchmarks only: a call into CUDA would end the process.
"""

import importlib.util
import struct
from pathlib import Path

_ABSENT = (
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcupti.so.13",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)
# The one variable that the loader asks for at once. The loader takes it from any library without
# versions but the one it is named after.
_VARIABLE, _ITS_LIBRARY = "nvshmem_selected_device_transport", "libcublas.so.13"
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 4, 5, 6, 10, 11, 14
_HEADER, _SEGMENT, _SYMBOL = 64, 56, 24  # bytes of the ELF structures


def empty_library(name: str, variables: tuple[str, ...] = ()) -> bytes:
    """Returns an ELF shared library for x86-64 with a name, and 8 bytes for each variable.

    Source: System V ABI, chapters 4 and 5 (tables of symbols, hashes and the dynamic section).
    """
    strings = b"\0" + b"".join(word.encode() + b"\0" for word in (name, *variables))
    places = [strings.index(word.encode() + b"\0") for word in (name, *variables)]
    count = len(variables) + 1  # the first symbol of every table is the empty one
    chain = [*range(1, count), 0]  # one bucket, whose chain runs through all symbols
    hashes = struct.pack(f"<{3 + count}I", 1, count, *chain[:1], 0, *chain[1:])
    hashes += bytes(-len(hashes) % 8)
    at_symbols = _HEADER + 3 * _SEGMENT
    at_hashes = at_symbols + count * _SYMBOL
    at_dynamic = at_hashes + len(hashes)
    at_strings = at_dynamic + 7 * 16
    at_data = at_strings + len(strings) + -len(strings) % 8
    size = at_data + 8 * len(variables)
    symbols = (
        bytes(_SYMBOL)
        + b"".join(
            struct.pack("<I2BH2Q", place, 0x11, 0, 1, at_data + 8 * row, 8)  # a global object
            for row, place in enumerate(places[1:])
        )
    )
    dynamic = struct.pack(
        "<14Q",
        *(_SONAME, places[0], _HASH, at_hashes, _STRTAB, at_strings, _SYMTAB, at_symbols),
        *(_STRSZ, len(strings), _SYMENT, _SYMBOL, 0, 0),
    )
    segments = (
        (_LOAD, 6, 0, size, 4096),
        (_DYNAMIC, 6, at_dynamic, len(dynamic), 8),
        (_STACK, 6, 0, 0, 16),
    )
    table = b"".join(
        struct.pack("<2I6Q", kind, flags, at, at, at, length, length, align)
        for kind, flags, at, length, align in segments
    )
    return (_header() + table + symbols + hashes + dynamic + strings).ljust(size, b"\0")


def _header() -> bytes:
    magic = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    shared_object, x86_64 = 3, 62
    return struct.pack(
        "<16s2HI3QI6H",
        *(magic, shared_object, x86_64, 1, 0, _HEADER, 0, 0),
        *(_HEADER, _SEGMENT, 3, 64, 0, 0),
    )


def main() -> None:
    """Writes the libraries into torch's folder; none is written over a real one."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SystemExit("torch is not installed in this environment")
    folder = Path(spec.origin).parent / "lib"
    for name in _ABSENT:
        if not (folder / name).exists():
            variables = (_VARIABLE,) if name == _ITS_LIBRARY else ()
            (folder / name).write_bytes(empty_library(name, variables))
    lazy = "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"
    (folder.parents[1] / "cpu_torch.pth").write_text(lazy, encoding="ascii")


if __name__ == "__main__":
    main()
