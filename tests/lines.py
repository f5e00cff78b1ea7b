"""Which line of scripts/side_by_side.py a test file goes with, told without importing it."""

from __future__ import annotations

import re
from pathlib import Path

_TESTS = Path(__file__).parent
# The tests that go with another line than their place says; the lines of one stage take about as long
ELSEWHERE = {
    "others": "test_cluster_commands test_container test_documents_cluster test_main_path test_workers",
    "jobs": "test_doctor test_gpus test_job_ends test_job_log test_job_signals test_jobs test_methods "
    "test_profiles test_shipped_methods test_targets test_workflows test_workspaces",
    # The extended stage: ended at any moment; taken to its limits by people or faults; any host and engine
    "kills": "test_accounting test_accounting_faults test_durable test_keep_running test_key "
    "test_restarts test_soak test_start_faults",
    "attacks": "test_benchmarks test_clean test_completion test_demo test_denial test_faults test_homes "
    "test_installed test_isolation test_limits test_release test_security "
    "test_seed_recipes test_stopping test_throughput test_trust",
    "hosts": "test_bench test_builtin test_builtin_cluster test_ci test_compose_config test_compose_patch "
    "test_debian_base test_debian_fetch test_engine_install test_every_machine test_gpu_places "
    "test_handed_over test_image test_launchers test_newer_slurm test_passthrough_engines "
    "test_podman_cluster test_slow_tools",
    # Other ways in, and what looks on: a browser, ssh, HTTP, Prometheus; several nodes
    "extras": "test_code test_dashboard test_dashboard_browser test_dashboard_others "
    "test_dashboard_terminal test_folders_of_jobs test_images test_job_environments test_join test_lab "
    "test_many_nodes test_metrics test_node_add test_node_faults test_nodes test_rest "
    "test_scheduling test_ssh test_upgrade test_usage",
}
_LINE_OF = {name: line for line, names in ELSEWHERE.items() for name in names.split()}
_ROOMS = re.compile(r"(?m)^pytest_plugins\b")


def line_of(path: Path) -> str | None:
    """`unit`: all in tests/unit; else as `ELSEWHERE` says; `others`: what is not in tests/integration, and
    what has engines of its own (`pytest_plugins` bring them); `engine`: the rest, on this machine's engine.
    None for a folder that holds files of several lines.
    """
    within = path.relative_to(_TESTS).parts
    if within[:1] == ("unit",):
        return "unit"
    if path.is_dir() and within[:1] in ((), ("integration",)):
        return None
    if within[:1] != ("integration",):
        return "others"
    if path.stem in _LINE_OF:
        return _LINE_OF[path.stem]
    return "others" if _ROOMS.search(path.read_text()) else "engine"
