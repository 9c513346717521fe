"""A real Flink cluster for tests: processes of their own, by the scripts that users are given."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.flink.handlers import Faults
from tests.servers import answers, free_port

ROOT = Path(__file__).resolve().parents[2]
_SCRIPTS = ROOT / "deploy" / "flink"
_BUILT = ROOT / "build" / "flink"
_JARS = str(_BUILT / "job_server")
_PATIENCE = 240.0  # seconds that anything may take on a busy machine


@dataclass
class FlinkCluster:
    """A running JobManager, its TaskManagers and Beam's job server.

    Attributes:
        folder: Holds logs, artifacts and what workers unpack.
        rest_port: Of the JobManager, for people and tests.
        rpc_port: Of the JobManager, for TaskManagers.
        job_port: Of the job server.
        stack: Ends every process.
        task_managers: Process ids of the TaskManagers that were started and not killed.
    """

    folder: Path
    rest_port: int
    rpc_port: int
    job_port: int
    stack: ExitStack
    task_managers: list[int] = field(default_factory=list)

    def rest(self, path: str) -> Any:
        """Asks the JobManager."""
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}/{path}", timeout=10) as it:
            return json.load(it)

    def have_task_managers(self, count: int) -> None:
        """Starts TaskManagers until there are so many, and waits until all slots are free."""
        while len(self.task_managers) < count:
            log = self.folder / f"taskmanager-{time.monotonic_ns()}.log"
            values = self.values | {"taskmanager.memory.process.size": "1g"}
            pid = self.stack.enter_context(_node("taskmanager", log, values))
            self.task_managers.append(pid)
        wait_until(lambda: self.rest("overview")["slots-available"] == count, "free slots")

    def kill_task_manager(self, pid: int) -> None:
        """Kills the Java process alone, as a crash would: its workers must notice by themselves."""
        self.task_managers.remove(pid)
        os.kill(pid, signal.SIGKILL)

    @property
    def values(self) -> dict[str, Any]:
        """What differs from `deploy/flink/conf/config.yaml`."""
        return {"rest.port": self.rest_port, "jobmanager.rpc.port": self.rpc_port}

    def flags(self, restart: bool = True) -> list[str]:
        """The flags of a job on this cluster.

        Args:
            restart: Whether the job is restarted by the cluster, or fails at the first fault.
        """
        environment = {"TMPDIR": str(self.folder / "work"), "BERT_EMBED_VENV": sys.prefix}
        worker = {"command": str(_SCRIPTS / "worker.sh"), "env": environment}
        flags = [f"--config={_SCRIPTS / 'job.yaml'}", f"--job_endpoint=localhost:{self.job_port}"]
        flags += [f"--environment_config={json.dumps(worker)}", "--threads=1"]
        return flags if restart else [*flags, f"--flink_conf_dir={self.folder / 'no_restart'}"]

    def start(
        self, *arguments: str, faults: Faults | None = None, restart: bool = True
    ) -> subprocess.Popen[str]:
        """`embed` on this cluster, in a process of its own."""
        module = "pipeline" if faults is None else "tests.flink.faulty_pipeline"
        made = "" if faults is None else faults.to_json()
        return subprocess.Popen(
            [sys.executable, "-m", module, "embed", *arguments, *self.flags(restart)],
            cwd=ROOT,
            env={**os.environ, "FAULTS": made},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def embed(self, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        with self.start(*arguments, **how) as process:
            out, errors = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


@contextmanager
def flink_cluster(folder: Path) -> Iterator[FlinkCluster]:
    """Runs a JobManager, two TaskManagers and a job server, and ends them with all they started."""
    (folder / "work").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    _write_no_restart(folder / "no_restart")
    with ExitStack() as stack:
        ports = free_port(), free_port(), free_port()
        cluster = FlinkCluster(folder, *ports, stack)
        stack.enter_context(_node("jobmanager", folder / "jobmanager.log", cluster.values))
        stack.enter_context(_job_server(cluster))
        wait_until(lambda: answers(f"http://localhost:{cluster.rest_port}/overview"), "JobManager")
        cluster.have_task_managers(2)
        log = folder / "job_server.log"
        wait_until(lambda: "JobService started" in log.read_text("utf-8"), "job server")
        yield cluster


def _write_no_restart(folder: Path) -> None:
    settings = yaml.safe_load((_SCRIPTS / "conf" / "config.yaml").read_text("utf-8"))
    settings["restart-strategy"] = {"type": "none"}
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")


def _node(kind: str, log: Path, values: dict[str, Any]) -> Any:
    words = [word for name, value in values.items() for word in ("-D", f"{name}={value}")]
    homes = {"FLINK_HOME": str(_BUILT / "libraries" / "pyflink"), "JOB_SERVER_JARS": _JARS}
    return _running([str(_SCRIPTS / "node.sh"), kind, *words], log, **homes)


def _job_server(cluster: FlinkCluster) -> Any:
    flags = [f"--flink-master=localhost:{cluster.rest_port}", f"--job-port={cluster.job_port}"]
    return _running(
        [str(_SCRIPTS / "job_server.sh"), *flags, f"--artifact-port={free_port()}"],
        cluster.folder / "job_server.log",
        JOB_SERVER_JARS=_JARS,
        ARTIFACTS=str(cluster.folder / "artifacts"),
    )


@contextmanager
def _running(command: list[str], log: Path, **env: str) -> Iterator[int]:
    """A process in a session of its own, which is ended with everything it started."""
    with open(log, "wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            start_new_session=True,
        )
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until(
    ready: Callable[[], bool], what: str, process: subprocess.Popen[str] | None = None
) -> None:
    """Asks until it is so; the process, if there is one, must not have ended before."""
    limit = time.monotonic() + _PATIENCE
    while not ready():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended before: {what}\n{process.communicate()}")
        if time.monotonic() > limit:
            raise AssertionError(f"it never came to pass: {what}")
        time.sleep(0.05)
