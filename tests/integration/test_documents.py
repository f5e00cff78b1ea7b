"""What README and docs show is what is printed, and no block of theirs is left out.

Here: blocks about recorded machines, and that every other block is somebody's. What is typed at a cluster
is in test_documents_cluster.py; that commands without output exist, in tests/unit/cli/test_documents.py.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.integration.shown import DOCUMENTS, ROOT, blocks, shown

HERE = ROOT / "tests/integration"
RECORDED = "--machine tests/machines/"
SHOWN = {item.command: item for item in shown() if RECORDED in item.command}

# Compared by another test, which has what the block needs: a private engine, another tier.
ELSEWHERE = {
    ("docs/how-to/rest.md", "python3 submit.py"): "test_rest.py",
    ("docs/how-to/usage.md", "dshpc usage"): "test_usage.py",
    ("docs/how-to/usage.md", "dshpc job show 12"): "../unit/usage/test_show.py",
    ("README.md", "./dshpc passthrough"): "test_passthrough_engines.py",
    ("docs/how-to/jobs.md", "dshpc job clean --yes"): "../unit/cli/test_cleaning.py",
    ("docs/how-to/jobs.md", "dshpc job show 6"): "test_scheduling.py",
    ("docs/how-to/isolation.md", "dshpc config set isolation enforced"): "test_isolation.py",
    ("docs/how-to/isolation.md", "./configure-environment"): "test_isolation.py",
    ("docs/how-to/isolation.md", "dshpc status | grep Isolation"): "test_isolation.py",
    (
        "docs/how-to/jobs.md",
        """dshpc run --memory 60M --wait -- sh -c 'python3 -c "len(bytearray(300 << 20))"; true'""",
    ): "test_isolation.py",
    **{
        ("docs/how-to/ssh.md", command): "test_ssh.py"
        for command in (
            "dshpc ssh-config --yes",
            """ssh gpu 'echo "job $SLURM_JOB_ID, GPU $CUDA_VISIBLE_DEVICES"'""",
            """ssh gpu 'echo "job $SLURM_JOB_ID again"'""",
            "ssh gpu-x9 hostname 2>&1 | head -5",
        )
    },
}
# Blocks that are not compared with what is printed, and why: document, first line, reason.
EXISTS = "its commands show no output: tests/unit/cli/test_documents.py looks whether they exist"
NOT_TYPED = {
    (
        "docs/how-to/rest.md",
        "./dshpc rest token --lifespan 12h     # 30m without it",
    ): "test_rest.py types it",
    (
        "docs/how-to/ssh.md",
        "ssh -L 8888:localhost:8888 gpu       # then start the server in the job, and open http://localhost:8888",
    ): "does not end by itself; test_ssh.py forwards a port",
    (
        "docs/how-to/ssh.md",
        "ssh workstation dshpc ssh-config --dir PROJECT --through workstation >>~/.ssh/config",
    ): "there is no such machine; test_ssh.py prints that block, and uses it",
    (
        "docs/how-to/many-nodes.md",
        "./configure-environment --yes --simulate h100:8 --nodes 4",
    ): "test_nodes.py does the same with smaller nodes",
    (
        "docs/how-to/many-nodes.md",
        "./dshpc env add --apt python3-mpi4py && ./dshpc env lock && ./configure-environment --yes",
    ): "fetches 100 MB; test_nodes.py lets tasks meet by PMIx",
    (
        "docs/how-to/other-machines.md",
        "./configure-environment --yes --listen eth0       # an address of this machine, or an interface",
    ): "takes two machines; test_join.py types it on two of a network of its own",
    (
        "docs/how-to/other-machines.md",
        "./dshpc node add ada@10.0.0.7",
    ): "takes two machines; test_node_add.py types it on two of a network of its own",
    (
        "docs/how-to/other-machines.md",
        "./dshpc node token --ttl 2h --once",
    ): "takes two machines; test_join.py types it on two of a network of its own",
    (
        "docs/how-to/without-docker.md",
        "./configure-environment --yes --engine builtin --simulate h100:2",
    ): "test_builtin_cluster.py types it",
    (
        "docs/how-to/without-docker.md",
        "./dshpc image save cluster.tar.xz                            # there: some 45 MB",
    ): "test_builtin_cluster.py types it",
    (
        "docs/how-to/podman.md",
        "./configure-environment --yes --engine podman --simulate h100:2",
    ): "test_podman_cluster.py types it",
    (
        "docs/how-to/podman.md",
        "./dshpc image save cluster.tar.xz                            # there",
    ): "test_podman_cluster.py types it",
    (
        "README.md",
        "./configure-environment --yes      # ends with Slurm up and a real srun that passed",
    ): EXISTS,
    (
        "README.md",
        "cd work                                     # your scripts and data; the cluster sees this folder",
    ): EXISTS,
    (
        "README.md",
        "sudo apt-get install -y nvidia-container-toolkit    # from NVIDIA's repository, see the link above",
    ): "changes the machine as root, from NVIDIA's own repository",
    (
        "README.md",
        "docker exec dshpc-slurm nvidia-smi                          # NVIDIA",
    ): "needs a real GPU and its driver",
}
# Blocks that are files: their language, and who reads them.
FILES = {
    ("docs/how-to/packages.md", "yaml"): "tests/unit/environment/test_conda.py",
    ("docs/how-to/rest.md", "yaml"): "tests/unit/settings/test_rest.py",
    ("docs/how-to/rest.md", "python"): "tests/integration/test_rest.py",
    ("docs/how-to/homes.md", "yaml"): "tests/unit/settings/test_places.py",
    ("docs/how-to/many-nodes.md", "text"): "tests/integration/test_nodes.py",
    ("docs/how-to/other-machines.md", "text"): "tests/integration/test_join.py",
    ("README.md", "json"): "tests/unit/cli/test_documents.py",
    ("README.md", "yaml"): "tests/unit/cli/test_documents.py",
    ("docs/how-to/ci.md", "yaml"): "tests/integration/test_ci.py",
    ("docs/how-to/ci.md", "text"): "tests/integration/test_ci.py",
    ("docs/how-to/configuration.md", "yaml"): "tests/integration/test_documents_cluster.py",
    ("docs/how-to/dashboard.md", "yaml"): "tests/unit/cli/test_dashboard.py",
    ("docs/how-to/dashboard.md", "apache"): "tests/integration/test_dashboard_others.py",
    ("docs/how-to/dashboard.md", "nginx"): "tests/integration/test_dashboard_others.py",
    ("docs/how-to/metrics.md", "yaml"): "tests/unit/metrics/test_metrics.py",
    ("docs/how-to/usage.md", "yaml"): "tests/unit/metrics/test_metrics.py",
    ("docs/how-to/own-configuration.md", "yaml"): "tests/integration/test_seed_recipes.py",
    ("docs/how-to/own-configuration.md", ""): "tests/integration/test_documents_cluster.py",
    ("docs/how-to/workflows.md", "yaml"): "tests/unit/workflows/test_docs.py",
    ("docs/how-to/workflows.md", "python"): "tests/unit/cli/test_documents.py",
}


@pytest.mark.parametrize("command", SHOWN)
def test_a_block_about_a_recorded_machine(command: str) -> None:
    env = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    argv = ["sh", "-c", f"{command} 2>&1"]
    done = subprocess.run(
        argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.splitlines() == list(SHOWN[command].lines)


def test_every_block_is_somebodys() -> None:
    """A new block that is no console block is added to one of the lists above, with its reason."""
    others = [block for name in DOCUMENTS for block in blocks(name) if block.language != "console"]
    typed = {
        (block.document, block.text.splitlines()[0]) for block in others if block.language == "sh"
    }
    assert typed == set(NOT_TYPED)
    assert {(item.document, item.language) for item in others if item.language != "sh"} == set(
        FILES
    )
    assert all((ROOT / name).is_file() for name in FILES.values())


def test_the_tests_that_compare_a_block_elsewhere_name_it() -> None:
    assert not set(ELSEWHERE) - {item.key for item in shown()}
    for (document, _), name in ELSEWHERE.items():
        assert f'documented("{document}"' in re.sub(r"\(\s+", "(", (HERE / name).read_text())


def test_what_shows_a_terminal_is_a_console_block() -> None:
    """A `$` in a block that is indented, or has no language, would be compared by nobody."""
    for document in DOCUMENTS:
        fenced = re.sub(r"^```\w*\n.*?^```$", "", (ROOT / document).read_text(), flags=re.M | re.S)
        assert not re.search(r"^ {4,}\$ ", fenced, re.M), document
        assert not any(
            block.language != "console" and "\n$ " in f"\n{block.text}"
            for block in blocks(document)
        )
