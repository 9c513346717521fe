"""OpenLineage's events of a job: in a file, at a server, and where neither takes them."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import bert_embed
from bert_embed.pipeline import job, lineage
from bert_embed.pipeline.cli import main
from tests.support.command import flags_of
from tests.support.outputs import clustered_vectors, write_output

COMMANDS = ["embed", "tokenize", "cluster", "dedup"]
FACET = {"_producer", "_schemaURL"}


@pytest.fixture(params=COMMANDS)
def words(request, tmp_path, tiny_bundle):
    """A command that writes to the folder `out`."""
    if request.param in ("embed", "tokenize"):
        return embed_words(tmp_path, tiny_bundle, request.param)
    source = write_output(tmp_path / "source", clustered_vectors(40))
    return [request.param, str(source), str(tmp_path / "out"), "--n_clusters=2"]


def embed_words(folder, bundle, command="embed"):
    (folder / "in.txt").write_text("the river\nthe bank\n")
    words = [command, *flags_of(folder / "out", bundle, folder / "in.txt")]
    return words + ["--no_report"] * (command == "embed")


@pytest.fixture
def server():
    """A server that keeps what is posted; tests set its status and delay."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(listening.delay)
            if listening.status == 201:
                listening.taken.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(listening.status)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_):
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.taken, listening.status, listening.delay = [], 201, 0
    listening.url = f"http://127.0.0.1:{listening.server_port}"
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield listening
    listening.shutdown()
    listening.server_close()


def events_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(events):
    return [event["eventType"] for event in events]


def record(folder):
    return json.loads((folder / "out" / "run.json").read_text())


def without_facets(value):
    """An event without what every facet says of itself."""
    if isinstance(value, dict):
        return {key: without_facets(one) for key, one in value.items() if key not in FACET}
    return [*map(without_facets, value)] if isinstance(value, list) else value


def test_every_command_tells_what_it_reads_and_writes(words, tmp_path):
    place = tmp_path / "events.jsonl"
    place.write_text("")
    assert main([*words, f"--openlineage={place}"]) == 0
    events = events_in(place)
    assert kinds(events) == ["START", "COMPLETE"]
    run = record(tmp_path)
    assert [event["eventTime"] for event in events] == [run["started"], run["ended"]]
    assert len({event["run"]["runId"] for event in events}) == 1
    assert "openlineage" not in run
    for event in events:
        assert (
            event["schemaURL"]
            == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
        )
        assert event["job"]["name"] == f"{words[0]} {tmp_path}/out"
        assert event["job"]["namespace"] == "bert-embed"
        tags = event["run"]["facets"]["tags"]["tags"]
        assert tags == [{"key": "fingerprint", "value": run["run"], "source": "bert-embed"}]
    written = {name: numbers for name, numbers in run["written"].items() if numbers["files"]}
    found = {
        one["name"].removeprefix(f"{tmp_path}/out/"): one["outputFacets"]["outputStatistics"]
        for one in events[1]["outputs"]
    }
    for name, numbers in written.items():
        statistics = without_facets(found[name])
        assert (statistics["size"], statistics["fileCount"]) == (numbers["bytes"], numbers["files"])
        assert statistics.get("rowCount") == numbers.get("rows")
    assert main([*words, f"--openlineage={place}"]) == 0  # it is complete: nothing happens
    assert events_in(place) == events


def test_an_event_names_datasets_columns_and_numbers(tmp_path, tiny_bundle):
    words = embed_words(tmp_path, tiny_bundle)
    words[words.index(f"--input={tmp_path}/in.txt")] = f"--input={tmp_path}/*.txt"
    place = tmp_path / "events"
    assert main([*words, f"--openlineage={place}"]) == 0
    inputs, outputs = (events_in(place)[1][name] for name in ("inputs", "outputs"))
    (read,), (written,) = without_facets(inputs), without_facets(outputs)
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path))
    assert read["facets"]["schema"] == {"fields": [{"name": "text", "type": "string"}]}
    assert read["inputFacets"]["inputStatistics"] == {"rowCount": 2, "size": 19, "fileCount": 1}
    assert written["name"] == f"{tmp_path}/out/embeddings"
    assert written["facets"]["dataSource"] == {
        "name": "file",
        "uri": f"file://{tmp_path}/out/embeddings",
    }
    fields = written["facets"]["schema"]["fields"]
    assert fields[:2] == [
        {"name": "id", "type": "string"},
        {"name": "embedding", "type": "fixed_size_list<element: float>[32]"},
    ]
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_a_server_gets_the_events_with_its_key(tmp_path, tiny_bundle, server, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "letmein")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "nightly")
    words = embed_words(tmp_path, tiny_bundle)
    assert main([*words, f"--openlineage={server.url}"]) == 0
    (first, headers, start), (_, _, complete) = server.taken
    assert first == "/api/v1/lineage"
    assert headers["Authorization"] == "Bearer letmein"
    assert headers["Content-Type"] == "application/json"
    assert kinds([start, complete]) == ["START", "COMPLETE"]
    assert start["job"]["namespace"] == "nightly"
    assert main([*words, f"--openlineage={server.url}/mine?x=1"]) == 0
    assert [path for path, _, _ in server.taken[2:]] == ["/mine?x=1"] * 2
    again = [event for _, _, event in server.taken[2:]]
    assert again[1] == complete
    assert all(again[0][key] == start[key] for key in ("eventType", "eventTime", "job"))
    assert again[0]["run"] == start["run"]


@pytest.mark.parametrize("words", ["embed", "dedup"], indirect=True)
@pytest.mark.parametrize("status", [500, 302])
def test_a_server_that_refuses_is_noted_and_gets_them_later(
    words, tmp_path, server, status, capsys
):
    server.status = status
    assert main([*words, f"--openlineage={server.url}"]) == 0
    problem = f"START was not delivered to {server.url}: it answers {status}"
    assert capsys.readouterr().err.count(problem) == 1
    assert (record(tmp_path)["status"], record(tmp_path)["openlineage"]) == ("done", problem)
    server.status = 201
    assert main([*words, f"--openlineage={server.url}"]) == 0
    assert kinds(event for _, _, event in server.taken) == ["START", "COMPLETE"]
    assert "openlineage" not in record(tmp_path)


def test_a_server_that_is_dead_or_slow_delays_no_run(
    tmp_path, tiny_bundle, server, monkeypatch, capsys
):
    monkeypatch.setattr(lineage, "_PATIENCE", 0.2)
    words = embed_words(tmp_path, tiny_bundle)
    server.delay = 5
    began = time.monotonic()
    assert main([*words, f"--openlineage={server.url}"]) == 0
    assert time.monotonic() - began < 10
    assert "note: OpenLineage's START was not delivered" in capsys.readouterr().err
    for url in ("http://127.0.0.1:9", "http://nowhere.invalid:80/x?api_key=letmein"):
        assert main([*words, f"--openlineage={url}"]) == 0
        assert "letmein" not in json.dumps(record(tmp_path))
        assert record(tmp_path)["openlineage"].startswith("START was not delivered to http://")
    said = capsys.readouterr().err
    assert said.count("was not delivered") == 2
    assert "letmein" not in said


def test_a_file_that_cannot_be_written_is_noted(tmp_path, tiny_bundle, capsys):
    words = embed_words(tmp_path, tiny_bundle)
    assert main([*words, "--openlineage=/dev/full"]) == 0
    assert "to /dev/full: No space left on device; the same" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [(OSError("no space left"), "FAIL", 1), (KeyboardInterrupt(), "ABORT", 130)],
)
def test_a_job_that_ends_early_says_why_and_is_continued_as_another_run(
    words, tmp_path, monkeypatch, error, kind, code
):
    place, run = tmp_path / "events", job.run_on_runner

    def fails(*_):
        time.sleep(1)  # so that the next attempt starts in another second
        raise error

    monkeypatch.setattr(job, "run_on_runner", fails)
    assert main([*words, f"--openlineage={place}"]) == code
    start, end = events_in(place)
    message = "no space left" if kind == "FAIL" else "interrupted"
    assert end["eventType"] == kind
    assert without_facets(end["run"]["facets"]["errorMessage"]) == {
        "message": message,
        "programmingLanguage": "PYTHON",
    }
    monkeypatch.setattr(job, "run_on_runner", run)
    assert main([*words, f"--openlineage={place}"]) == 0
    *_, again, complete = events_in(place)
    assert kinds(events_in(place)) == ["START", kind, "START", "COMPLETE"]
    assert complete["run"]["runId"] == again["run"]["runId"] != start["run"]["runId"]
    assert complete["run"]["facets"]["tags"] == start["run"]["facets"]["tags"]


def test_a_refused_run_failed(tmp_path, tiny_bundle):
    words = embed_words(tmp_path, tiny_bundle)
    (tmp_path / "in.jsonl").write_text('{"text": "the river"}\n{"text": 3}\n')
    place = tmp_path / "events"
    words = [word.replace("in.txt", "in.jsonl") for word in words]
    place.write_text('{"eventTi')  # of a writer that was killed
    assert main([*words, f"--openlineage={place}"]) == 3
    half, *lines = place.read_text().splitlines()
    assert (half, kinds(map(json.loads, lines))) == ('{"eventTi', ["START", "FAIL"])


@pytest.mark.parametrize("words", ["embed", "cluster"], indirect=True)
@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "ftp://host/x",
            "must be a local file, or http://HOST or https://HOST, got 'ftp://host/x'",
        ),
        ("gs://bucket/events", "must be a local file, or http://HOST"),
        ("http://", "must be a local file, or http://HOST"),
        ("http://host:port/", "must be a local file, or http://HOST"),
        ("https://a b/", "must be a local file, or http://HOST"),
        ("https://me:letmein@host/", "must not hold a password, which others can see"),
        ("", "is empty: give a file or an http address"),
        ("{}", "is a folder; give a file"),
        ("{}/none/events", "there is no folder"),
        ("{}/out/events", "lies in the output itself"),
    ],
)
def test_a_place_that_can_take_no_events_is_refused_before_work(
    words, tmp_path, place, message, capsys
):
    if "/out/" in place:
        (tmp_path / "out").mkdir()
    assert main([*words, f"--openlineage={place.format(tmp_path)}"]) == 2
    said = capsys.readouterr().err
    assert "error: --openlineage" in said
    assert message in said
    assert "letmein" not in said
    assert not (tmp_path / "out" / "run.json").exists()


def test_python_and_yaml_take_it_and_a_dry_run_sends_nothing(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("the river\n")
    more = {"model": str(tiny_bundle), "report": False, "openlineage": tmp_path / "events"}
    call = (str(tmp_path / "in.txt"), str(tmp_path / "out"))
    bert_embed.embed(*call, **more, dry_run=True)
    assert not (tmp_path / "events").exists()
    bert_embed.embed(*call, **more)
    assert kinds(events_in(tmp_path / "events")) == ["START", "COMPLETE"]
    config = {"input": call[0], "output": str(tmp_path / "other"), "model": str(tiny_bundle)}
    config |= {"report": False, "openlineage": str(tmp_path / "more")}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    assert main(["embed", f"--config={tmp_path}/run.yaml"]) == 0
    assert kinds(events_in(tmp_path / "more")) == ["START", "COMPLETE"]
