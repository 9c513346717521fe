"""Fixtures that all tests share: the packaged model, a tiny one, servers of the whole session."""

import functools
import gc
import io
import os
import shutil
import signal
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from bert_embed.backends import runner
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from tests.support import forks
from tests.support.models.folder import imported
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface
from tests.support.servers.bigquery import BigQueryServer, bigquery_server
from tests.support.servers.gcs import GcsServer, Proxy, behind, gcs_server
from tests.support.skips import unlisted

# Containers often have Python keep no bytecode: each of the hundreds of processes that tests start
# would then compile Beam, which takes longer than to import it.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / "build" / "bytecode")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
# A shell starts a command in the background with SIGINT ignored, and children inherit that: those
# that tests interrupt would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The C++ side of TensorFlow reads this when it is first imported; without it each test process
# prints a page of notes about the processor.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# One thread an operation, as the engine on processors sets it where TensorFlow has not started yet:
# here imports start it, and sums over two threads are rounded in another order.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# NumPy's threads wait by spinning: for the small matrices of reports, as long as a run computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The processor computes, also where there is a GPU: tests compare bits and name the engine.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# XLA's programs are compiled for what they compute: to have LLVM make them quick takes longer.
quickly = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ.setdefault("XLA_FLAGS", quickly)


# Texts on which a model fails on purpose are tried again at once.
runner.PAUSES = (0.0, 0.01)


# A shared machine may pause any example; how long one takes is for benchmarks.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flag with which `.ci/run` starts pytest."""
    text = "fail where a test is skipped for a reason that tests/support/skips.py does not list"
    parser.addoption("--listed-skips", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Has the processes of xdist share one from which commands are forked."""
    if (config.getoption("numprocesses", None) or 0) > 1:
        forks.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails a run with `--listed-skips` in which a test was skipped for another reason."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not session.config.getoption("--listed-skips") or hasattr(session.config, "workerinput"):
        return
    reasons = [report.longrepr[2] for report in reporter.stats.get("skipped", ())]
    if wrong := unlisted(reasons):
        reporter.write_line(f"\nskipped for reasons that tests/support/skips.py lacks: {wrong}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks as slow what needs a server: starting one takes longer than most tests.

    Files with most slow tests come first: the processes of `make test` end at about one time.
    """
    slow: Counter[Path] = Counter()
    for item in items:
        if {"gcs_session", "bigquery_session"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")
        slow[item.path] += item.get_closest_marker("slow") is not None
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection() -> None:
    """Looks for no garbage while modules are imported: there is none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Speeds Beam up where any of the chosen tests imported it.

    What was imported stays: nothing walks through these million objects for garbage any more.
    """
    gc.freeze()
    gc.set_threshold(20_000)  # with the usual one a small run looks a twelfth of its time
    gc.enable()
    if "apache_beam" in sys.modules and "BEAM_AS_IT_IS" not in os.environ:
        from tests.support.beam import remember

        remember()


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests and their processes leave among the temporary files goes with the session's."""
    folder = str(tmp_path_factory.mktemp("temporary"))
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    yield
    if sys.pycache_prefix:  # modules that tests wrote, each session in another folder
        shutil.rmtree(f"{sys.pycache_prefix}{tmp_path_factory.getbasetemp()}", ignore_errors=True)


@pytest.fixture(autouse=True)
def without_tsne() -> Iterator[None]:
    """Has runs write reports with the map of PCA: t-SNE takes seconds, and few tests look at it."""
    # Not by `monkeypatch`: what a test patches would be undone after its folder is removed.
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("bert_embed.pipeline.report.sample.UNASKED", 0)
        yield


@pytest.fixture(scope="session")
def minilm() -> Bundle:
    """The packaged default model; `make test` fetched it into the cache beforehand."""
    return resolve_model("minilm")


@pytest.fixture(scope="session")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Bundle]:
    """Writes a model by a function of `support/models` and imports it, each once: its bundle."""

    @functools.cache
    def bundle(write: Callable[..., object], *arguments: Hashable, **settings: Hashable) -> Bundle:
        folder = tmp_path_factory.mktemp("model")
        write(folder / "source", *arguments, **settings)
        return imported(folder)

    return bundle


@pytest.fixture(scope="session")
def tiny_bundle(model_of: Callable[..., Bundle]) -> str:
    """A seeded two-layer BERT, imported from a Hugging Face folder; the bundle's folder."""
    return model_of(write_tiny_huggingface).path


@pytest.fixture(scope="session")
def poisoned_bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a bundle like `tiny_bundle` whose vector for "vault" is not a number."""
    folder = tmp_path_factory.mktemp("poisoned")
    name = "embeddings.word_embeddings.weight"
    words = write_tiny_huggingface(folder / "source")[name]
    words[small_vocabulary().index("vault")] = np.nan
    return imported(folder, files={"model.safetensors": {name: words}}).path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of models that is not there yet."""
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def gcs_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """One Cloud Storage for the whole session; tests use buckets of their own."""
    with gcs_server(tmp_path_factory.mktemp("gcs") / "root") as server:
        yield server


@pytest.fixture
def gcs(gcs_session: GcsServer, monkeypatch: pytest.MonkeyPatch) -> GcsServer:
    """Cloud Storage, which every client of this process and its children now talks to."""
    for name, value in gcs_session.environment.items():
        monkeypatch.setenv(name, value)
    return gcs_session


@pytest.fixture
def proxied(gcs: GcsServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before Cloud Storage, by which these now reach it."""
    with behind(gcs, monkeypatch) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def bigquery_session(
    gcs_session: GcsServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BigQueryServer]:
    """One BigQuery for the whole session; tests use datasets of their own."""
    with bigquery_server(gcs_session.root, tmp_path_factory.mktemp("bigquery")) as server:
        yield server


@pytest.fixture
def bigquery(
    bigquery_session: BigQueryServer, gcs: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> BigQueryServer:
    """BigQuery, which every client of this process and its children now talks to."""
    for name, value in bigquery_session.environment.items():
        monkeypatch.setenv(name, value)
    return bigquery_session


class Notebook:
    """What a cell's output shows: lines by a handle of IPython, and what was written to stderr."""

    def __init__(self) -> None:
        kind = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
        self.stderr: io.StringIO = kind()
        self.shown: list[str] = []
        self.updates: list[str] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> "Notebook":
        """Shows a line; the handle that it returns is this."""
        assert (raw, display_id) == (True, True)
        self.shown.append(data["text/plain"])
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        """Changes the line."""
        assert raw
        self.updates.append(data["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    """A stand-in for IPython; tests set `sys.stderr`, integration/notebooks has real kernels."""
    found = Notebook()
    module = types.ModuleType("IPython.display")
    monkeypatch.setattr(module, "display", found.display, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found
