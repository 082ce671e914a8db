"""What a load needs is said before it begins, and against what this process may really use."""

import psutil
import pytest

from engine.models import memory_needed
from engine.models.memory_needed import LIBRARY_BYTES, free_bytes, left_in_container

GB = 10**9
V2 = "0::/user.slice/job\n"
V1 = "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n1:name=systemd:/docker/abc\n"


def made(root, groups, of_process):
    """A root with those control group files, and what /proc says of this process."""
    files = {"proc/self/cgroup": of_process, **{f"sys/fs/cgroup/{name}": text for name, text in groups.items()}}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    "of_process, groups, left",
    [
        (V2, {"user.slice/job/memory.max": 4 * GB, "user.slice/job/memory.current": GB}, 3 * GB),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/job/memory.current": GB}, None),
        (V2, {"user.slice/job/memory.max": "max", "user.slice/job/memory.high": 2 * GB,
              "user.slice/job/memory.current": GB}, GB),
        (V2, {"user.slice/job/memory.max": 4 * GB, "user.slice/job/memory.current": 3 * GB,
              "user.slice/job/memory.stat": f"anon {GB}\ninactive_file {2 * GB}"}, 3 * GB),
        (V2, {"user.slice/memory.max": 2 * GB, "user.slice/memory.current": GB,  # the parent's is the tighter one
              "user.slice/job/memory.max": 9 * GB, "user.slice/job/memory.current": GB}, GB),
        (V2, {"memory.max": 2 * GB, "memory.current": GB}, GB),  # a container that sees its own group as the topmost
        (V2, {"user.slice/job/memory.max": GB, "user.slice/job/memory.current": 2 * GB}, 0),
        (V1, {"memory/docker/abc/memory.limit_in_bytes": 4 * GB, "memory/docker/abc/memory.usage_in_bytes": 3 * GB,
              "memory/docker/abc/memory.stat": f"inactive_file 1\ntotal_inactive_file {GB}"}, 2 * GB),
        (V1, {"memory/memory.limit_in_bytes": 4 * GB, "memory/memory.usage_in_bytes": GB}, 3 * GB),
        ("5:cpu:/docker/abc\n", {"memory/memory.limit_in_bytes": 4 * GB, "memory/memory.usage_in_bytes": GB}, None),
        ("no such thing", {}, None),
    ],
)  # fmt: skip
def test_a_container_leaves_what_its_limit_leaves(of_process, groups, left, tmp_path):
    assert left_in_container(made(tmp_path, groups, of_process)) == left


def test_without_control_groups_nothing_is_limited(tmp_path):
    assert left_in_container(tmp_path) is None


def test_a_containers_limit_counts_where_it_is_tighter_than_the_machine(monkeypatch):
    monkeypatch.setattr(memory_needed, "device_class", lambda: "cpu")
    for left in (GB // 100, None, 10**18):
        monkeypatch.setattr(memory_needed, "left_in_container", lambda left=left: left)
        at_most = psutil.virtual_memory().available if left is None else left
        assert free_bytes() <= at_most + LIBRARY_BYTES + GB // 2
    assert free_bytes() < psutil.virtual_memory().total + LIBRARY_BYTES
