"""Available memory read from a made-up /proc and control groups of both versions."""

import pytest

from strata.machine import available_memory

MIB = 2**20


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path):
    """A machine with 1,000 MiB available."""
    tree(tmp_path, {"proc/meminfo": f"MemTotal: 4096000 kB\nMemAvailable: {1000 * 1024} kB\n"})
    return tmp_path


def test_the_machine_alone(machine):
    assert available_memory(machine) == 1000 * MIB


def test_unknown_without_meminfo(tmp_path):
    assert available_memory(tmp_path) is None
    tree(tmp_path, {"proc/meminfo": "MemTotal: 4096000 kB\n"})
    assert available_memory(tmp_path) is None


def test_this_machine_has_some():
    available = available_memory()
    assert available is None or 0 < available < 2**50


def test_a_group_without_a_limit_does_not_count(machine):
    tree(machine, {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": f"{900 * MIB}\n",
    })  # fmt: skip
    assert available_memory(machine) == 1000 * MIB


def test_a_group_of_version_2_counts_its_files_as_free(machine):
    tree(machine, {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": f"{600 * MIB}\n", "sys/fs/cgroup/a/b/memory.current": f"{500 * MIB}\n",
        "sys/fs/cgroup/a/b/memory.stat": f"anon 1\ninactive_file {250 * MIB}\nactive_file {50 * MIB}\n",
    })  # fmt: skip
    assert available_memory(machine) == 400 * MIB


def test_the_tightest_group_above_counts(machine):
    tree(machine, {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": f"{500 * MIB}\n",
        "sys/fs/cgroup/a/memory.max": f"{700 * MIB}\n", "sys/fs/cgroup/a/memory.current": f"{600 * MIB}\n",
    })  # fmt: skip
    assert available_memory(machine) == 100 * MIB


def test_version_1_seen_from_inside_a_container(machine):
    tree(machine, {
        "proc/self/cgroup": "9:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{300 * MIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{200 * MIB}\n",
        "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {20 * MIB}\ntotal_active_file {30 * MIB}\n",
    })  # fmt: skip
    assert available_memory(machine) == 150 * MIB


def test_a_group_that_is_over_its_limit_has_nothing_left(machine):
    tree(machine, {
        "proc/self/cgroup": "0::/\n",
        "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "5000\n",
    })  # fmt: skip
    assert available_memory(machine) == 0
