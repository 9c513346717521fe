"""The fixture by which tests export."""

import pytest


@pytest.fixture
def export(command):
    """Exports, and returns what is said; `refused` is what the one sentence must hold instead."""

    def exported(source, dest, to="npy", refused=None, **flags):
        said = command("export", source, dest, to=to, code=0 if refused is None else 2, **flags)
        if refused is not None:
            assert refused in said.err
            assert said.err.count("\n") == 1
        return said.out

    return exported
