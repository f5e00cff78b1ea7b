"""A project folder with what configure-environment wrote, and a container that answers for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dshpc_setup.apply import apply
from dshpc_setup.apply.apply import Wanted
from dshpc_setup.cluster import compose_file
from dshpc_setup.project.folder import Project
from tests.unit.engine.fake import Answer, FakeMachine

TEXTS = {
    "config/slurm.conf": "ClusterName=p\nNodeName=p CPUs=2\n",
    "config/gres.conf": "AutoDetect=off\n",
    "config/cgroup.conf": "CgroupPlugin=disabled\n",
    "docker-compose.yml": '    labels:\n      org.dshpc.rendered: "abc1"\n',
    ".env": "COMPOSE_PROJECT_NAME=p\n",
}


def configured(project: Project, **changes: str) -> None:
    """As a run of configure-environment; `changes` are new texts by the name without its ending."""
    texts = {path: changes.get(Path(path).stem, text) for path, text in TEXTS.items()}
    wanted = {
        path: Wanted(text, 0o600 if path == ".env" else 0o644) for path, text in texts.items()
    }
    apply.write(project, apply.compare(project, wanted))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.prepare()
    (made.folder / "work").mkdir()
    runtime = {"container": "p-slurm", "work": f"{made.folder}/work", "prefix": "p"}
    made.write_json(".dshpc/runtime.json", runtime)
    configured(made)
    compose_file.remember_used(made, None)
    return made


def container(
    project: Project, status: str = "running", label: str = "abc1", config_hash: str | None = None
) -> Answer:
    """`config_hash`: compose's own label; None: the same as when compose was last called by us."""
    labels = {"org.dshpc.project": str(project.folder), "org.dshpc.rendered": label}
    if config_hash is not None:
        labels["com.docker.compose.config-hash"] = config_hash
    state = {"Running": status in ("running", "paused"), "Status": status, "ExitCode": 1,
             "StartedAt": "2026-01-01T00:00:00Z"}  # fmt: skip
    value = {"Id": "1", "Name": "/p-slurm", "Image": "sha256:1", "Created": "2026-01-01T00:00:00Z",
             "State": state, "Config": {"Image": "p-slurm:none", "Labels": labels}}  # fmt: skip
    return Answer(json.dumps([value]))


GONE = Answer(code=1, stderr="Error: No such container: p-slurm")
INSPECT = "docker inspect --type container -- p-slurm"


def in_slurm(texts: Mapping[str, str]) -> Answer:
    """What the container prints of its /etc/slurm."""
    coded = {
        name.removeprefix("config/"): base64.b64encode(text.encode("utf-8", "surrogateescape"))
        for name, text in texts.items()
    }
    return Answer("".join(f"{name} {raw.decode()}\n" for name, raw in coded.items()))


def cluster(project: Project, texts: Mapping[str, str] | None = None, **report: Any) -> FakeMachine:
    """A running cluster with these texts in force, and that start report."""
    mounted = {path: text for path, text in TEXTS.items() if path.startswith("config/")}
    start = {"phase": "ready", "ready": True, "customized": {}, **report}
    return FakeMachine(
        programs={"docker"},
        commands={
            INSPECT: container(project),
            "docker exec p-slurm sh -c cd": in_slurm({**mounted, **(texts or {})}),
            "docker exec p-slurm dshpc-node status": Answer(json.dumps(start)),
        },
    )
