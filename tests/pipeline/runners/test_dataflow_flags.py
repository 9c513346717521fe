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
        ({"temp_location": "s3://x/y"}, "--temp_location s3://x/y must be in Cloud Storage"),
        ({"staging_location": "/tmp/x"}, "--staging_location /tmp/x must be in Cloud Storage"),
        ({"without": ["project"]}, "--project is missing"),
        ({"runner": "dataflow", "without": ["project"]}, "--project is missing"),
        ({"without": ["region"]}, "--region is missing"),
        ({"output": "build/out"}, "--output build/out is on this machine"),
        ({"input": "texts/*.txt"}, "--input texts/*.txt is on this machine"),
        ({"skip_existing": "build/old"}, "--skip_existing build/old is on this machine"),
        ({"tfrecord_output": "build/x"}, "--tfrecord_output build/x is on this machine"),
        ({"job_name": "Bad_Name"}, "--job_name Bad_Name must be lower-case letters"),
        ({"labels": '{"a": 1}'}, "--labels a=1 must be name=value"),
        ({"labels": "Team=a"}, "--labels Team=a must be name=value"),
        ({"update": True}, "--update is for streaming jobs"),
        (
            {"use_public_ips": True, "no_use_public_ips": True},
            "--use_public_ips conflicts with --no_use_public_ips",
        ),
        (
            {"num_workers": 9, "max_num_workers": 8},
            "--num_workers 9 is more than --max_num_workers 8",
        ),
        ({"max_num_workers": 0}, "--max_num_workers 0 must be at least 1"),
        ({"setup_file": "./nosetup.py"}, "--setup_file ./nosetup.py does not exist"),
        (
            {"accelerator": "l4", "dataflow_service_options": L4},
            "--accelerator l4 conflicts with --dataflow_service_options worker_accelerator",
        ),
        (
            {"accelerator": "l4", "resource_hints": HINT},
            "--accelerator l4 conflicts with --resource_hints accelerator",
        ),
        (
            {"dataflow_service_options": L4, "resource_hints": HINT},
            "worker_accelerator conflicts with --resource_hints accelerator",
        ),
        ({"right_fitting": True}, "--right_fitting requires --accelerator"),
        (
            {"accelerator": "v5e", "right_fitting": True},
            "--right_fitting requires --accelerator t4",
        ),
        (
            {"resource_hints": "accelerator=type:tpu-v5-lite-podslice;count:1"},
            "a TPU is for every worker of a job",
        ),
        (
            {"accelerator": "t4", "right_fitting": True, "flexrs_goal": "COST_OPTIMIZED"},
            "--flexrs_goal conflicts with --right_fitting",
        ),
        (
            {"resource_hints": HINT, "flexrs_goal": "COST_OPTIMIZED"},
            "--flexrs_goal conflicts with",
        ),
        (
            {"accelerator": "t4", "dataflow_service_options": "enable_prime"},
            "Dataflow Prime conflicts with an accelerator for every worker",
        ),
        (
            {
                "dataflow_service_options": L4 + ";use_nvidia_mps",
                "machine_type": "g2-standard-8",
                "experiments": "no_use_multiple_sdk_containers",
            },
            "use_nvidia_mps is for several processes",
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
        (
            {"accelerator": "l4", "machine_type": "n1-standard-8"},
            "--machine_type n1-standard-8 cannot carry nvidia-l4; give one of g2-…",
        ),
        (
            {"accelerator": "t4", "machine_type": "g2-standard-8"},
            "--machine_type g2-standard-8 cannot carry nvidia-tesla-t4; give one of n1-…",
        ),
        (
            {"accelerator": "v5e", "machine_type": "ct6e-standard-1t"},
            "cannot carry tpu-v5-lite-podslice; give one of ct5lp-…",
        ),
        (
            {"accelerator": "v5e", "machine_type": "ct5lp-hightpu-4t"},
            "--machine_type ct5lp-hightpu-4t has more chips than the one",
        ),
        (
            {"dataflow_service_options": L4},
            "--machine_type is missing: nvidia-l4 requires one of g2-",
        ),
        ({"accelerator": "t4", "disk_size_gb": 30}, "--disk_size_gb 30 is too small"),
        (
            {"accelerator": "t4", "without": ["sdk_container_image"]},
            "--sdk_container_image is missing: nvidia-tesla-t4 requires an image with CUDA's",
        ),
        ({"without": ["sdk_container_image"]}, "--sdk_container_image is missing: give the image"),
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


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        (
            {"max_num_workers": 20, "no_use_public_ips": True, "job_name": "mine"},
            [
                "Dataflow job: mine, us-central1, project my-project",
                "n2-standard-8, 1 to 20, 50 GB of disk each, one process per core, --device auto",
                "accelerator:  none",
                "private addresses",
                "code:         us-docker.pkg.dev/p/r/bert-embed:1",
                "staged:       the graph, to gs://plans/tmp",
            ],
        ),
        (
            {"accelerator": "t4", "disk_size_gb": 200, "machine_type": "n1-standard-4"},
            [
                "n1-standard-4, 1 or more, as the service decides, 200 GB of disk each, one proc",
                "type:nvidia-tesla-t4;count:1;install-nvidia-driver:5xx, for every worker",
                "--device gpu",
            ],
        ),
        (
            {"accelerator": "l4", "right_fitting": True},
            [
                "type:nvidia-l4;count:1;machine_type:g2-standard-8;install-nvidia-driver:5xx, by a "
                "hint for the step Embed",
                "e2-standard-2, 1 or more",
            ],
        ),
        (
            {"accelerator": "v5e", "precision": "bfloat16"},
            ["ct5lp-hightpu-1t", "topology:1x1, for every worker", "--device tpu, --precision bf"],
        ),
        (
            {"dataflow_service_options": L4 + ";use_nvidia_mps", "machine_type": "g2-standard-4"},
            [
                "g2-standard-4",
                "use_nvidia_mps, for every worker",
                "one process per core, --device gpu",
            ],
        ),
        (
            {"without": ["sdk_container_image"], "setup_file": "./setup.py"},
            ["installed by every worker from ./setup.py", "a package made with ./setup.py"],
        ),
    ],
    ids=["cpu", "t4", "l4", "v5e", "mps", "setup"],
)
def test_a_dry_run_shows_the_job_and_asks_no_service(corpus, tiny_bundle, flags, shown, capsys):
    assert main_with(model=tiny_bundle, dry_run=True, **flags) == 0
    out = capsys.readouterr().out
    assert [text for text in shown if text not in out] == []
    assert "about 10 documents" in out
    assert [blob.name for blob in corpus.client.list_blobs("plans")] == ["in/a.txt"]


def test_texts_are_tokenized_there_too(corpus, tiny_bundle, capsys):
    flags = flags_of(OUTPUT, tiny_bundle, INPUT, dry_run=True, **WHOLE)
    assert main(["tokenize", *flags]) == 0
    out = capsys.readouterr().out
    assert "Dataflow job: bert-tokenize-" in out
    assert "n2-standard-8" in out


def test_settings_of_a_job_may_stand_in_a_file(corpus, tiny_bundle, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(
        "accelerator: l4\nright_fitting: false\nmax_num_workers: 3\n"
    )
    assert main_with(model=tiny_bundle, dry_run=True, config=tmp_path / "job.yaml") == 0
    out = capsys.readouterr().out
    assert "g2-standard-8, 1 to 3" in out
    assert "install-nvidia-driver:5xx, for every worker" in out
