"""Beam's local runners beside the default one, and the flags that choose them."""

import pytest

from tests.support.command import ROOT

PRISM = ROOT / "build" / "prism"
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
RUNNERS = {
    "processes": ("--runner=FnApiRunner", *PROCESSES),
    "prism": ("--runner=PrismRunner", f"--prism_location={PRISM}"),
}


def runner_flags(name: str) -> tuple[str, ...]:
    """The flags of one of `RUNNERS`; skips the test if it is not there."""
    if name == "prism" and not PRISM.exists():
        pytest.skip("build/prism is not there: `make build/prism` builds it where Go is installed")
    return RUNNERS[name]
