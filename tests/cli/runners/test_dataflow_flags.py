"""What is asked of Dataflow: refused before anything is looked at, or shown as a plan."""

import shlex

import pytest

from tests.support.command import flags_of

IMAGE = "us-docker.pkg.dev/p/r/bert-embed:1"
WHOLE = {
    "runner": "DataflowRunner",
    "project": "my-project",
    "region": "us-central1",
    "temp_location": "gs://plans/tmp",
    "sdk_container_image": IMAGE,
}
OUTPUT, INPUT = "gs://plans/out", "gs://plans/in"
OPTIONS, EXPERIMENT = (
    "--dataflow_service_options=worker_accelerator=",
    "use_multiple_sdk_containers",
)
L4 = "'type:nvidia-l4;count:1;install-nvidia-driver'"
V5E = "'type:tpu-v5-lite-podslice;topology:1x1'"
HINT = "--resource_hints='accelerator=type:nvidia-tesla-t4;count:1;install-nvidia-driver'"
# Flags beside those of a whole command; a word with a minus at its end stands for none.
REFUSED = [
    ("--setup_file=./nosetup.py", "--setup_file ./nosetup.py does not exist"),
    (f"--extra_package={shlex.quote(__file__)}", ".py is no package: its name must end in .tar, "),
    ("--job_name='Bad Name'", "Invalid job_name (Bad Name); the name must consist of only"),
    ("--disk_size_gb=-1", "--disk_size_gb must be at least 1, got -1"),
    ("--number_of_worker_harness_threads=-4", "harness_threads must be at least 1, got -4"),
    ("--labels=Team=a", "--labels Team=a: keys and values are of small letters, digits"),
    ("--resource_hints=colour=1 --runner=FnApiRunner", "Unknown resource hint: colour"),
    ("--input=gs://_plans/in", "gs://_plans/in names no bucket: _plans cannot be"),
    ("--output=gs://", "gs:// must be gs://BUCKET/NAME"),
    (f"--accelerator=l4 {OPTIONS}{L4}", "l4 conflicts with --dataflow_service_options worker_acc"),
    (HINT, "--resource_hints cannot name an accelerator: give --accelerator, or --dataflow_serv"),
    (f"--accelerator=v5e --experiments={EXPERIMENT}", f"{EXPERIMENT} conflicts with a TPU"),
    ("--device=gpu", "--device gpu requires workers with one: give --accelerator, such as l4"),
    (f"{OPTIONS}{V5E} --device=gpu", "leave tpu-v5-lite-podslice idle; give --device tpu"),
    ("--accelerator=v5e-16", "l4-8, a100-8, a100-80gb-8, h100-8, v5e-8, v6e-8, got 'v5e-16'"),
    (
        f"{OPTIONS}count:1",
        "worker_accelerator=count:1 names no type, such as type:nvidia-l4;count:1",
    ),
    (
        "--accelerator=v5e-4 --batch_tokens=9000000 --dry_run",
        "--batch_tokens 9000000 does not fit: this model and texts of up to 256 tokens take at "
        "least 41.6 GB a chip, and one of tpu-v5-lite-podslice has 16.0 GB",
    ),
    ("--accelerator=t4 --disk_size_gb=30", "--disk_size_gb 30 is too small"),
    ("--accelerator=t4 --sdk_container_image-", "is missing: nvidia-tesla-t4 requires an image"),
    ("--sdk_container_image-", "--sdk_container_image is missing: give the image"),
    *(
        (f"--sdk_container_image={image}", f"{image} has Python 3.10 and this command runs with 3.")
        for image in ("us-docker.pkg.dev/p/r/i:py310-7", "apache/beam_python3.10_sdk:2.77.0")
    ),
    ("--accelerator=l4 --runner=FnApiRunner", "--accelerator requires --runner Dataflow"),
    ("--accelerator=l4 --precision=int8", "--precision int8 is not available on --accelerator l4"),
    ("--accelerator=v5e --precision=float16", "--precision float16 is not available on"),
]


@pytest.fixture
def submit(command):
    """Runs `embed` with all that Dataflow needs, and these words in place of it or beside it."""

    def ran(words="", model="minilm", name="embed", **more):
        flags = {"output": OUTPUT, "input": INPUT, "model": model} | WHOLE
        for word in shlex.split(words):
            flag, _, value = word.removeprefix("--").partition("=")
            flags[flag] = value or True
            if flag.endswith("-"):
                del flags[flag], flags[flag[:-1]]
        return command(name, **flags, **more)

    return ran


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_would_go_wrong_is_refused(words, message, submit, monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert message in submit(words, code=2).err


@pytest.fixture
def corpus(gcs):
    gcs.put("plans", {"in/a.txt": "the bank of the river\n" * 10})
    return gcs


def test_all_that_is_missing_is_named_at_once(tiny_bundle, command, monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    words = flags_of("new", tiny_bundle, "texts", runner="DataflowRunner", skip_existing="old")
    said = command("embed", *words, code=2).err
    assert said.count("\n") == 1
    for name in ("temp_location", "project", "region"):
        assert f"--{name} is missing" in said
    for place in ("--output new", "--input texts", "--skip_existing old"):
        assert f"{place} is on this machine" in said


def test_a_dry_run_shows_the_plan_and_asks_no_service(corpus, tiny_bundle, submit):
    for name in ("embed", "tokenize"):
        assert "about 10 documents" in submit("--dry_run", tiny_bundle, name).out
    assert [blob.name for blob in corpus.client.list_blobs("plans")] == ["in/a.txt"]
    said = "--temp_location gs://plns/tmp cannot be written: "
    assert said in submit("--dry_run --temp_location=gs://plns/tmp", tiny_bundle, code=2).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "--accelerator=v5e-8",
            "ct5lp-hightpu-8t, 8 chips (type:tpu-v5-lite-podslice;topology:2x4), 100 GB of disk, "
            "one process (no_use_multiple_sdk_containers)",
        ),
        (
            f"{OPTIONS}{L4} --experiments={EXPERIMENT}",
            "a machine that Dataflow chooses, type:nvidia-l4;count:1;install-nvidia-driver, 100 GB "
            "of disk, several processes",
        ),
        ("--setup_file=./setup.py --sdk_container_image- --max_num_workers=9", None),
    ],
)
def test_a_dry_run_says_what_workers_compute_on(corpus, tiny_bundle, submit, words, said):
    printed = submit(f"--dry_run {words}", tiny_bundle).out
    shown = [line for line in printed.splitlines() if line.startswith("each worker")]
    assert shown == ([f"each worker: {said}"] if said else [])
    image = "packages that each worker installs, at most 9" if "setup" in words else f"{IMAGE}, as"
    assert f"\nDataflowRunner in us-central1, project my-project: {image} " in printed
