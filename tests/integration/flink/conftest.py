"""One cluster for all tests of this folder, a corpus, and what the local runner makes of it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.command import embed
from tests.support.flink.cluster import FlinkCluster, flink_cluster

BLOCK_BYTES = 1000


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkCluster]:
    with flink_cluster(tmp_path_factory.mktemp("flink") / "cluster") as made:
        yield made


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 25 blocks of lines, one of them blank and one that is no UTF-8."""
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    words = np.random.default_rng(7).choice(["red", "river", "bank", "of", "seven"], (700, 6))
    lines = [f"{n} {' '.join(row)}".encode() for n, row in enumerate(words)]
    lines[100], lines[200] = b"", b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.fixture(scope="session")
def whole(corpus: Path, tiny_bundle: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of Beam's local runner."""
    output = tmp_path_factory.mktemp("whole") / "out"
    assert embed(output, tiny_bundle, corpus, block_bytes=BLOCK_BYTES, threads=1) == 0
    return output
