"""Packages of methods on the real engine: locked, built into the image, and imported by a job."""

from __future__ import annotations

import json

import pytest

from tests.integration.cluster import Cluster, docker

pytestmark = pytest.mark.engines(
    "docker", why="of the built-in engine's image it is in test_builtin_cluster.py"
)

SEEN = """
import importlib.metadata as all, json, markupsafe._speedups as compiled, idna
print(json.dumps([all.version("markupsafe"), all.version("idna"), compiled.__file__]))
"""


def label(cluster: Cluster) -> dict[str, str]:
    (tag,) = docker("images", "--format", "{{.Repository}}:{{.Tag}}", cluster.container).split()
    return json.loads(docker("inspect", "--format", "{{json .Config.Labels}}", tag)) or {}


def test_a_job_imports_what_was_locked(fresh: Cluster) -> None:
    fresh.folder.mkdir(exist_ok=True)
    fresh.dshpc("env", "add", "--dir", str(fresh.folder), "markupsafe==3.0.2", "idna>=3").good()
    fresh.dshpc("env", "add", "--dir", str(fresh.folder), "--apt", "libgomp1").good()

    # declared and not locked: refused, nothing is built
    refused = fresh.configure("--simulate", "h100:2")
    assert refused.code == 2
    assert "dshpc env lock" in json.dumps(refused.report["error"])
    assert not fresh.exists()

    lock = fresh.dshpc("env", "lock", "--json", "--dir", str(fresh.folder)).good().report
    versions = {each["name"].lower(): each["version"] for each in lock["wheels"]}
    assert versions["markupsafe"] == "3.0.2"
    assert "cp313" in next(each["file"] for each in lock["wheels"] if "arkup" in each["file"])
    assert [each["name"] for each in lock["debian"]] == ["libgomp1"]

    fresh.configure("--simulate", "h100:2").good()
    shown = fresh.dshpc("env", "show", "--json").good().report
    assert (shown["in_image"], shown["differences"], shown["next"]) == (True, [], None)
    assert "org.dshpc.environment" in label(fresh)

    markupsafe, idna, compiled = json.loads(
        fresh.dshpc("srun", "--quiet", "python3", "-c", SEEN).good().stdout
    )
    assert (markupsafe, idna) == ("3.0.2", versions["idna"])
    assert compiled.endswith(".so")
    # another thing than the carried packages of dsHPC, which its own programs go on using
    assert fresh.exec("python3", "-IS", "-c", "import idna").code == 1
    assert (
        fresh.said("dpkg-query", "-W", "-f", "${Version}", "libgomp1")
        == (lock["debian"][0]["version"])
    )
    assert fresh.said("idna", "example")  # a command that a package brings

    # what is locked and not declared any more is not built either
    fresh.dshpc("env", "remove", "idna").good()
    assert "idna>=3 is locked and not declared" in json.dumps(fresh.configure().report["error"])


def test_without_a_declaration_nothing_is_asked_for(standard: Cluster) -> None:
    assert "org.dshpc.environment" not in label(standard)
    dockerfile = (standard.folder / ".dshpc/build/Dockerfile").read_text()
    assert "environment" not in dockerfile
    assert not (standard.folder / ".dshpc/build/environment").exists()
    assert not (standard.folder / ".dshpc/packages").exists()
