"""Cores: quotas of control groups as the kernel shows them; no time."""

import os

import pytest

from bert_embed.base.environment import available_cores, cpu_quota

V1 = {"cpu.cfs_quota_us": "150000\n", "cpu.cfs_period_us": "100000\n"}
V1_NONE = {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/", {}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3.0),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "300000 100000\n"}, 2.0),
        ("0::/host/path", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/", {"cpu.max": "garbage\n"}, None),
        ("5:cpu,cpuacct:/", {f"cpu,cpuacct/{name}": text for name, text in V1.items()}, 1.5),
        ("5:cpuacct,cpu:/d/x", {f"cpu/d/x/{name}": text for name, text in V1.items()}, 1.5),
        ("5:cpu:/d/x", {f"cpu/{name}": text for name, text in V1.items()}, 1.5),
        ("5:cpu:/", {f"cpu/{name}": text for name, text in V1_NONE.items()}, None),
        ("4:cpuset:/", {f"cpu/{name}": text for name, text in V1.items()}, None),
        ("5:cpu:/\n0::/", {"unified/cpu.max": "400000 100000\n"}, 4.0),
        ("no line of the kernel", {"cpu.max": "150000 100000\n"}, None),
    ],
)
def test_the_smallest_quota_counts(tmp_path, membership, files, quota):
    (tmp_path / "cgroup").write_text(f"9:memory:/elsewhere\n{membership}\n")
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "mount") == quota


def test_a_machine_without_control_groups_has_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "none", tmp_path) is None
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))  # whatever this one has
