"""Python runs this where this folder is on its path: see tests/support/command.py."""

import importlib.util
import os
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_MOST_SECONDS = 300  # a test that failed leaves no process behind


def _may_pass(folder: Path, calls: int) -> bool:
    """Takes one of the passes, which all processes share; False if none is left."""
    for number in range(calls):
        try:
            os.close(os.open(folder / f"passed-{number}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


def _hold(folder: Path, calls: int, owner: object, name: str) -> None:
    call = getattr(owner, name)

    def held(*arguments: object, **named: object) -> object:
        if not _may_pass(folder, calls):
            (folder / f"held-{os.getpid()}").touch()
            for _ in range(100 * _MOST_SECONDS):
                if (folder / "go").exists():
                    break
                time.sleep(0.01)
        return call(*arguments, **named)

    setattr(owner, name, held)


class _Finder:
    """Holds a function as soon as its module is imported; imports nothing by itself."""

    def __init__(self, folder: str, calls: str, module: str, owner: str, name: str) -> None:
        self._module = module
        self._held = Path(folder), int(calls), owner, name

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        if name != self._module:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute, (folder, calls, owner, function) = spec.loader.exec_module, self._held

        def execute_and_hold(module: ModuleType) -> None:
            execute(module)
            _hold(folder, calls, getattr(module, owner) if owner else module, function)

        spec.loader.exec_module = execute_and_hold  # type: ignore[method-assign]
        return spec


def _main(folder: str, calls: str, module: str, owner: str, name: str) -> None:
    if module in sys.modules:
        there = sys.modules[module]
        function = getattr(there, name, None)
        _hold(Path(folder), int(calls), getattr(there, owner) if owner else there, name)
        for each in () if owner else tuple(sys.modules.values()):
            if getattr(each, "__dict__", {}).get(name) is function:  # imported by its name
                setattr(each, name, getattr(there, name))
    else:
        sys.meta_path.insert(0, _Finder(folder, calls, module, owner, name))  # type: ignore[arg-type]


_main(*os.environ["BERT_EMBED_HELD"].split("|"))
