"""A real Flink cluster: processes of their own, by the scripts that users get, and its jobs."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.support.command import files, record, rejected, rows
from tests.support.flink.handlers import Faults
from tests.support.servers.gcs import answers, free_port

ROOT = Path(__file__).resolve().parents[3]
_SCRIPTS = ROOT / "deploy" / "flink"
_JOB = _SCRIPTS / "job.yaml"
_BUILT = ROOT / "build" / "flink"
_JARS = str(_BUILT / "job_server")
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PATIENCE = 240.0  # seconds that anything may take on a busy machine
# Reads ids of processes to the end of its input, which comes when the tests end or are killed. An
# empty line says that none is left to be killed. TaskManagers leave gigabytes in the folder.
_GUARD = """while read -r each; do groups="${each:+$groups $each}"; done
for each in $groups; do kill -KILL "-$each"; done; rm -rf "$1" """


@dataclass
class FlinkCluster:
    """A running JobManager, its TaskManagers and Beam's job server.

    Attributes:
        folder: Holds logs, artifacts, and in `work` all that Flink and workers unpack.
        rest_port: Of the JobManager, for people and tests.
        rpc_port: Of the JobManager, for TaskManagers.
        job_port: Of the job server.
        stack: Ends every process.
        guard: Takes the id of each process; it ends those that a killed test session leaves.
        job_manager: Process id of the JobManager.
        job_server: Process id of the job server.
        restarts: Whether it restarts jobs that fail.
        task_managers: Process ids of the TaskManagers that were started and not killed.
    """

    folder: Path
    rest_port: int
    rpc_port: int
    job_port: int
    stack: ExitStack
    guard: IO[str]
    job_manager: int = 0
    job_server: int = 0
    restarts: bool = True
    task_managers: list[int] = field(default_factory=list)

    def rest(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://localhost:{self.rest_port}/{path}", timeout=10) as it:
            return json.load(it)

    def have_task_managers(self, count: int) -> None:
        """Starts TaskManagers until there are so many, and waits until all slots are free."""
        while len(self.task_managers) < count:
            log = self.folder / f"taskmanager-{time.monotonic_ns()}.log"
            values = self.values | {"taskmanager.memory.process.size": "1g"}
            self.task_managers.append(self._node("taskmanager", log, values))
        wait_until(lambda: self.rest("overview")["slots-available"] == count, "free slots")

    def blocks_by_task_manager(self) -> dict[str, int]:
        """How many blocks the stage that infers took up on each TaskManager, in the newest job."""
        job = max(self.rest("jobs/overview")["jobs"], key=lambda each: each["start-time"])["jid"]
        stages = self.rest(f"jobs/{job}")["vertices"]
        infer = next(each["id"] for each in stages if "Tokenize" in each["name"])
        parts = self.rest(f"jobs/{job}/vertices/{infer}")["subtasks"]
        return {each["taskmanager-id"]: each["metrics"]["read-records"] for each in parts}

    def kill_task_manager(self, pid: int) -> None:
        """Kills the Java process alone, as a crash would: its workers must notice by themselves."""
        self.task_managers.remove(pid)
        os.kill(pid, signal.SIGKILL)

    @property
    def values(self) -> dict[str, Any]:
        return {"rest.port": self.rest_port, "jobmanager.rpc.port": self.rpc_port}

    def restart_jobs(self, restarts: bool) -> None:
        """Has the cluster restart jobs that fail, or not: a JobManager takes the other's place."""
        if restarts != self.restarts:
            os.kill(self.job_manager, signal.SIGKILL)
            os.waitid(os.P_PID, self.job_manager, os.WEXITED | os.WNOWAIT)
            self.start_job_manager(restarts)
            self.have_task_managers(len(self.task_managers))

    def start_job_server(self) -> None:
        """Starts one and waits until it takes jobs."""
        log = self.folder / f"job_server-{time.monotonic_ns()}.log"
        flags = [f"--flink-master=localhost:{self.rest_port}", f"--job-port={self.job_port}"]
        command = [str(_SCRIPTS / "job_server.sh"), *flags, f"--artifact-port={free_port()}"]
        self.job_server = self._run(command, log, ARTIFACTS=str(self.folder / "artifacts"))

        def takes_jobs() -> bool:
            if os.waitid(os.P_PID, self.job_server, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                raise AssertionError(f"the job server ended:\n{log.read_text('utf-8')}")
            return "JobService started" in log.read_text("utf-8")

        wait_until(takes_jobs, "job server")

    def start_job_manager(self, restarts: bool) -> None:
        """Starts one and waits until it answers."""
        log = self.folder / f"jobmanager-{'restarts' if restarts else 'fails'}.log"
        changed = {} if restarts else {"restart-strategy.type": "none"}
        self.restarts = restarts
        self.job_manager = self._node("jobmanager", log, self.values | changed)
        wait_until(lambda: answers(f"http://localhost:{self.rest_port}/overview"), "JobManager")

    def _node(self, kind: str, log: Path, values: dict[str, Any]) -> int:
        words = [word for name, value in values.items() for word in ("-D", f"{name}={value}")]
        home = str(_BUILT / "libraries" / "pyflink")
        return self._run([str(_SCRIPTS / "node.sh"), kind, *words], log, FLINK_HOME=home)

    def _run(self, command: list[str], log: Path, **env: str) -> int:
        """Starts a process that the stack ends, or the guard; returns its id."""
        env["JOB_SERVER_JARS"] = _JARS
        # Processes that live for minutes do not earn what the second compiler of Java takes.
        env["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={self.folder / 'work'} {_SHORT_LIVED}"
        pid = self.stack.enter_context(_running(command, log, **env))
        print(pid, file=self.guard, flush=True)
        return pid

    def flags(self, **environment: str) -> list[str]:
        """The flags of an `embed` job on this cluster, and what its workers' environment has."""
        return [f"--config={_JOB}", *self._own_flags(**environment), "--threads=1"]

    def _own_flags(self, **more: str) -> list[str]:
        environment = {"TMPDIR": str(self.folder / "work"), "BERT_EMBED_VENV": sys.prefix, **more}
        worker = {"command": str(_SCRIPTS / "worker.sh"), "env": environment}
        endpoint = f"--job_endpoint=localhost:{self.job_port}"
        return [endpoint, f"--environment_config={json.dumps(worker)}"]

    def start(self, *arguments: str, faults: Faults | None = None) -> subprocess.Popen[str]:
        module = "bert_embed" if faults is None else "tests.support.flink.faulty_pipeline"
        made = "" if faults is None else json.dumps(asdict(faults))
        # Workers import the handler that has the faults from the tests.
        flags = self.flags() if faults is None else self.flags(PYTHONPATH=str(ROOT))
        return subprocess.Popen(
            [sys.executable, "-m", module, "embed", *arguments, *flags],
            cwd=ROOT,
            env={**os.environ, "FAULTS": made},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def embed(
        self, *arguments: str, faults: Faults | None = None
    ) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments, faults=faults) as process:
            out, errors = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


@contextmanager
def flink_cluster(folder: Path) -> Iterator[FlinkCluster]:
    """Runs a JobManager, two TaskManagers and a job server, and ends them with all they started."""
    (folder / "work").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    with ExitStack() as stack:
        guard = stack.enter_context(_guard(folder / "work"))
        ports = free_port(), free_port(), free_port()
        cluster = FlinkCluster(folder, *ports, stack, guard)
        cluster.start_job_server()
        cluster.start_job_manager(restarts=True)
        cluster.have_task_managers(2)
        yield cluster


@contextmanager
def _guard(folder: Path) -> Iterator[IO[str]]:
    """Removes a folder at the end, also of a killed session, whose processes it then ends."""
    command = ["sh", "-c", _GUARD, "guard", str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        assert process.stdin
        yield process.stdin
        process.stdin.write("\n")


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


def counted(output: Path, reused: bool = True) -> dict[str, Any]:
    """The counts of a run's record, which depend on the corpus alone, not on when and where it ran.

    `reused` is False where blocks may come from an attempt.
    """
    names = (
        "counts",
        "rejected",
        "tokens",
        "computed_tokens",
        "padded_tokens",
        "batches",
        "lengths",
    )
    counts = {name: record(output)[name] for name in names}
    if not reused:
        counts["counts"] = {**counts["counts"], "parts_reused": 0}
    return counts


def same_output(output: Path, whole: Path) -> bool:
    """Whether a run wrote what the local runner did: every file, and nothing twice."""
    assert record(output)["status"] == "done"
    assert counted(output, reused=False) == counted(whole)
    return files(output) == files(whole)


def same_rows(output: Path, whole: Path) -> bool:
    """The same but for the last bits of vectors, which hang on where arrays lie in memory."""
    assert record(output)["status"] == "done"
    assert counted(output, reused=False) == counted(whole)
    assert rejected(output) == rejected(whole)
    assert rows(output)["id"] == rows(whole)["id"]
    return np.allclose(rows(output)["embedding"], rows(whole)["embedding"], rtol=0, atol=1e-5)


def reports(output: Path) -> dict[str, int]:
    """When each part was finished, by its name."""
    found = (output / "_state" / "blocks").glob("[0-9]*-*.json")
    return {path.name: path.stat().st_mtime_ns for path in found}


def events(trace: Path) -> list[dict[str, Any]]:
    """What the workers noted, in the order of time."""
    lines = [line for path in trace.glob("*.jsonl") for line in path.read_text().splitlines(True)]
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return sorted(rows, key=lambda row: row["time"])


def computing(trace: Path) -> Iterator[dict[str, Any]]:
    """The workers that are in the middle of a block."""
    last = {row["pid"]: row for row in events(trace)}
    return (row for row in last.values() if row["what"] == "begin")


def begun(trace: Path, parts: set[str], since: float) -> set[str]:
    """Those of the parts that some worker began after a moment."""
    names = {
        f"{row['block']:07d}-{row['part']:05d}.json"
        for row in events(trace)
        if row["what"] == "begin" and row["time"] > since
    }
    return names & parts
