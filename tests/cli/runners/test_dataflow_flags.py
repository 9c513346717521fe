"""What is asked of Dataflow: refused before anything is looked at, or shown as a plan."""

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import flags_of

WHOLE = {
    "runner": "DataflowRunner",
    "project": "my-project",
    "region": "us-central1",
    "temp_location": "gs://plans/tmp",
    "sdk_container_image": "us-docker.pkg.dev/p/r/bert-embed:1",
}
OUTPUT, INPUT = "gs://plans/out", "gs://plans/in"
L4 = "worker_accelerator=type:nvidia-l4;count:1;install-nvidia-driver"
V5E = "worker_accelerator=type:tpu-v5-lite-podslice;topology:1x1"
HINT = "accelerator=type:nvidia-tesla-t4;count:1;install-nvidia-driver"


def main_with(*, output=OUTPUT, input=INPUT, without=(), model="minilm", **flags):
    asked = {name: value for name, value in (WHOLE | flags).items() if name not in without}
    return main(["embed", *flags_of(output, model, input, **asked)])


def test_all_that_is_missing_is_named_at_once(corpus, tiny_bundle, capsys):
    flags = {
        "runner": "DataflowRunner",
        "output": "vectors",
        "input": "texts",
        "model": tiny_bundle,
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    assert main(["embed", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for name in ("temp_location", "project", "region", "output", "input"):
        assert f"--{name} " in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"without": ["temp_location"]}, "--temp_location is missing"),
        ({"temp_location": "/tmp/x"}, "--temp_location is missing"),
        ({"without": ["project"]}, "--project is missing"),
        ({"runner": "dataflow", "without": ["project"]}, "--project is missing"),
        ({"without": ["region"]}, "--region is missing"),
        ({"output": "build/out"}, "--output build/out is on this machine"),
        ({"input": "texts/*.txt"}, "--input texts/*.txt is on this machine"),
        ({"skip_existing": "build/old"}, "--skip_existing build/old is on this machine"),
        ({"setup_file": "./nosetup.py"}, "--setup_file ./nosetup.py does not exist"),
        ({"requirements_file": "none.txt"}, "--requirements_file none.txt does not exist"),
        ({"extra_package": "none.whl"}, "--extra_packages none.whl does not exist"),
        ({"extra_package": __file__}, ".py is no package: its name must end in .tar, "),
        ({"sdk_location": "none"}, "--sdk_location none does not exist"),
        ({"staging_location": "/tmp/x"}, "Invalid GCS path (/tmp/x), given for the option: stag"),
        ({"temp_location": "gs://plans"}, "option: temp_location"),
        ({"temp_location": "gs://"}, "Invalid GCS path (gs://), given for the option: temp_loc"),
        ({"job_name": "Bad Name"}, "Invalid job_name (Bad Name); the name must consist of only"),
        ({"project": "12345"}, "Invalid Project ID (12345)"),
        (
            {"num_workers": 5, "max_num_workers": 2},
            "num_workers (5) cannot exceed max_num_workers (2)",
        ),
        ({"max_num_workers": 0}, "Invalid value (0) for option: max_num_workers"),
        ({"disk_size_gb": -1}, "--disk_size_gb must be at least 1, got -1"),
        ({"number_of_worker_harness_threads": -4}, "harness_threads must be at least 1, got -4"),
        ({"labels": "Team=a"}, "--labels Team=a: keys and values are of small letters, digits"),
        ({"labels": '{"team": 1}'}, "--labels team=1: keys and values are of small letters"),
        ({"labels": "{team"}, "--labels {team is neither KEY=VALUE nor JSON"),
        ({"resource_hints": "min_ram=much"}, "Resource hint min_ram has invalid value much"),
        ({"resource_hints": "colour=1", "runner": "FnApiRunner"}, "Unknown resource hint: colour"),
        ({"input": "gs://_plans/in"}, "gs://_plans/in names no bucket: _plans cannot be"),
        ({"output": "gs://"}, "gs:// must be gs://BUCKET/NAME"),
        (
            {"accelerator": "l4", "dataflow_service_options": L4},
            "--accelerator l4 conflicts with --dataflow_service_options worker_accelerator",
        ),
        (
            {"accelerator": "l4", "resource_hints": HINT},
            "--accelerator l4 conflicts with --resource_hints accelerator",
        ),
        (
            {"resource_hints": "accelerator=type:tpu-v5-lite-podslice;count:1"},
            "a TPU is for every worker of a job",
        ),
        (
            {"accelerator": "v5e", "experiments": "use_multiple_sdk_containers"},
            "use_multiple_sdk_containers conflicts with a TPU",
        ),
        (
            {"device": "gpu"},
            "--device gpu requires workers with one: give --accelerator, such as l4",
        ),
        (
            {"device": "tpu"},
            "--device tpu requires workers with one: give --accelerator, such as v5e",
        ),
        ({"accelerator": "l4", "device": "cpu"}, "--device cpu would leave --accelerator l4 idle"),
        ({"accelerator": "v5e", "device": "gpu"}, "give --device tpu"),
        (
            {"dataflow_service_options": V5E, "device": "gpu"},
            "--device gpu would leave tpu-v5-lite-podslice idle",
        ),
        ({"accelerator": "v5e-16"}, "--accelerator must be one of t4, l4, a100,"),
        ({"accelerator": "v7"}, "l4-8, a100-8, a100-80gb-8, h100-8, v5e-8, v6e-8, got 'v7'"),
        (
            {"dataflow_service_options": "worker_accelerator=count:1"},
            "worker_accelerator=count:1 names no type, such as type:nvidia-l4;count:1",
        ),
        (
            {"accelerator": "v5e-4", "batch_tokens": 9_000_000, "dry_run": True},
            "--batch_tokens 9000000 does not fit: this model and texts of up to 256 tokens take at "
            "least 41.6 GB a chip, and one of tpu-v5-lite-podslice has 16.0 GB",
        ),
        ({"accelerator": "t4", "disk_size_gb": 30}, "--disk_size_gb 30 is too small"),
        (
            {"accelerator": "t4", "without": ["sdk_container_image"]},
            "--sdk_container_image is missing: nvidia-tesla-t4 requires an image with CUDA's",
        ),
        ({"without": ["sdk_container_image"]}, "--sdk_container_image is missing: give the image"),
        *(
            (
                {"sdk_container_image": image},
                f"--sdk_container_image {image} has Python 3.10 and this command runs with 3.",
            )
            for image in ("us-docker.pkg.dev/p/r/i:py310-7", "apache/beam_python3.10_sdk:2.77.0")
        ),
        (
            {"accelerator": "l4", "runner": "FnApiRunner"},
            "--accelerator requires --runner Dataflow",
        ),
        (
            {"accelerator": "l4", "precision": "int8"},
            "--precision int8 is not available on --accelerator l4",
        ),
        ({"accelerator": "v5e", "precision": "float16"}, "--precision float16 is not available on"),
    ],
)
def test_what_would_go_wrong_is_refused(flags, message, capsys, monkeypatch):
    monkeypatch.delenv("CLOUDSDK_COMPUTE_REGION", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert main_with(**flags) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def corpus(gcs):
    bucket = gcs.client.bucket("plans")
    if not bucket.exists():
        bucket.create()
        bucket.blob("in/a.txt").upload_from_string("the bank of the river\n" * 10)
    return gcs


@pytest.mark.parametrize("command", ["embed", "tokenize"])
def test_a_dry_run_shows_the_plan_and_asks_no_service(corpus, tiny_bundle, capsys, command):
    flags = flags_of(OUTPUT, tiny_bundle, INPUT, dry_run=True, **WHOLE)
    assert main([command, *flags]) == 0
    assert "about 10 documents" in capsys.readouterr().out
    assert [blob.name for blob in corpus.client.list_blobs("plans")] == ["in/a.txt"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            {"accelerator": "v5e-8"},
            "ct5lp-hightpu-8t, 8 chips (type:tpu-v5-lite-podslice;topology:2x4), 100 GB of disk, "
            "one process (no_use_multiple_sdk_containers)",
        ),
        (
            {"dataflow_service_options": L4, "experiments": "use_multiple_sdk_containers"},
            "a machine that Dataflow chooses, type:nvidia-l4;count:1;install-nvidia-driver, 100 GB "
            "of disk, several processes",
        ),
        ({}, None),
    ],
)
def test_a_dry_run_says_what_workers_compute_on(corpus, tiny_bundle, capsys, flags, said):
    assert main_with(model=tiny_bundle, dry_run=True, **flags) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "each worker" in line]
    assert shown == ([f"each worker: {said}"] if said else [])


def test_a_bucket_for_temporary_files_that_is_not_there_is_refused(corpus, tiny_bundle, capsys):
    flags = {"model": tiny_bundle, "temp_location": "gs://plns/tmp"}
    assert main_with(**flags, dry_run="true") == 2
    assert "--temp_location gs://plns/tmp cannot be written: " in capsys.readouterr().err
