"""Environments of single jobs: made once by the user, used in place, in a cluster that nothing disturbs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.integration import conda_channel
from tests.integration.cluster import Cluster, wait_until

pytestmark = pytest.mark.engines("builtin", "docker")

SEEN = """
import json, sys, markupsafe._speedups as compiled
print(json.dumps([sys.prefix, compiled.__file__, sys.version_info[:2]]))
"""


def environments(cluster: Cluster) -> list[str]:
    folder = cluster.work / "jobs" / str(os.getuid()) / ".envs"
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def ran(cluster: Cluster, *words: str) -> str:
    return cluster.dshpc("run", "--wait", *words).good().stdout


def test_a_folder_of_requirements(standard: Cluster, tmp_path: Path) -> None:
    started = standard.started_at
    (tmp_path / "requirements.txt").write_text("# ours\nMarkupSafe==3.0.2\ncowsay==6.1\n")
    before = environments(standard)
    prefix, compiled, version = json.loads(
        ran(standard, "--env", str(tmp_path), "--", "python3", "-c", SEEN)
    )
    (made,) = set(environments(standard)) - set(before)
    assert prefix == f"{standard.work}/jobs/{os.getuid()}/.envs/{made}"
    assert compiled.startswith(f"{prefix}/lib/python3.13/site-packages/")
    assert version == [3, 13]

    # Used in place, with the scripts that packages bring, by whoever declares the same
    again = standard.dshpc("run", "--wait", "--env", str(tmp_path), "--", "cowsay", "-t", "moo")
    assert "| moo |" in again.good().stdout
    assert "environment:" not in again.stderr
    assert set(environments(standard)) - set(before) == {made}
    # The image has none of it, nothing was restarted
    assert standard.dshpc("run", "--wait", "--", "python3", "-c", SEEN).code != 0
    assert standard.started_at == started


def test_a_locked_project_and_a_method(standard: Cluster) -> None:
    method = standard.folder / "methods" / "says"
    method.mkdir(parents=True)
    (method / "pyproject.toml").write_text(
        '[project]\nname = "says"\nversion = "1"\nrequires-python = ">=3.13"\n'
        'dependencies = ["cowsay==6.1"]\n'
    )
    (method / "uv.lock").write_text(LOCK.replace("WHERE", WHERE).replace("HASH", HASH))
    (method / "main.py").write_text("import cowsay; print(cowsay.__version__)\n")
    (method / "method.json").write_text(
        json.dumps({"name": "says", "command": "python3", "script_path": "main.py", "env": "."})
    )
    assert standard.dshpc("method", "run", "says", "--wait").good().stdout == "6.1\n"

    # One that has been taken away while its job waited is told, and made again by the next
    words = ("run", "--env", str(method), "--", "true")
    standard.said("scontrol", "update", "nodename=ALL", "state=drain", "reason=x")
    try:
        job = standard.dshpc(*words[:1], "--json", *words[1:]).good().report
        for name in environments(standard):
            shutil.rmtree(standard.work / "jobs" / str(os.getuid()) / ".envs" / name)
    finally:
        standard.said("scontrol", "update", "nodename=ALL", "state=resume")
    wait_until(lambda: standard.job_state(str(job["job_id"]))[0] == "FAILED", "it has failed")
    log = Path(str(job["workspace"]), "output.log").read_text()
    assert "is not there any more" in log
    assert "Submit it again" in log
    standard.dshpc("run", "--wait", *words[1:]).good()


def test_what_cannot_be_had_is_told(standard: Cluster, tmp_path: Path) -> None:
    before = environments(standard)
    for text, told in (
        ("no-such-package-of-ours-at-all\n", "no such Python package"),
        ("-r other.txt\n", "these lines lead to others"),
    ):
        (tmp_path / "requirements.txt").write_text(text)
        refused = standard.dshpc("run", "--json", "--env", str(tmp_path), "--", "true")
        assert refused.code != 0
        assert told in json.dumps(refused.report)
    missing = standard.dshpc("run", "--json", "--env", "A=1", "--", "true")
    assert missing.code == 64
    assert "env NAME=VALUE" in json.dumps(missing.report)
    assert environments(standard) == before


def test_packages_of_conda(standard: Cluster, tmp_path: Path) -> None:
    """py-rattler is fetched for it; the channel is a folder, as none on the internet can be counted on."""
    where = conda_channel.channel(tmp_path / "channel", os.uname().machine)
    file = tmp_path / "environment.yml"
    file.write_text(
        f"channels: [{where}]\n"
        "dependencies: [python, greetings=1.0, toolbox, {pip: [cowsay==6.1, greetings>=1]}]\n"
        "variables: {OURS: it's ours}\n"
    )
    run = ("--env", str(tmp_path), "--", "sh", "-c")
    shown = ran(
        standard,
        *run,
        'greet; toolbox; echo "$TOOLBOX $OURS"; cowsay -t moo; python -c "import cowsay"',
    )
    prefix = shown.splitlines()[1].removeprefix("toolbox of ")
    assert Path(prefix).parent == standard.work / "jobs" / str(os.getuid()) / ".envs"
    assert shown.splitlines()[0] == "greetings 1.0"
    assert shown.splitlines()[2] == f"{prefix}/share/toolbox it's ours"
    assert "| moo |" in shown
    # Nothing that a job writes reaches what others are made of
    assert all(each.stat().st_nlink == 1 for each in Path(prefix, "share").rglob("data"))
    again = standard.dshpc("run", "--wait", *run, "exit 7")
    assert (again.code, "environment:" in again.stderr) == (7, False)

    for text, told in (
        ("dependencies: [no-such-package]", "cannot be had together"),
        ("dependencies: ['greetings >=>1']", "not written as conda has it"),
        ("dependencies: [{pip: [six]}, toolbox]", "no Python for them"),
        (
            "dependencies: [toolbox]\nchannels: [file:///no/such/channel]",
            "There is no such channel",
        ),
        ("dependencies: [toolbox]\nchannels: [http://127.0.0.1:9/x]", "could not be reached"),
    ):
        file.write_text(text if "channels" in text else f"channels: [{where}]\n{text}\n")
        refused = standard.dshpc("run", "--json", "--env", str(tmp_path), "--", "true")
        assert refused.code != 0
        assert told in json.dumps(refused.report)


WHERE = "packages/f1/13/63c0a02c44024ee16f664e0b36eefeb22d54e93531630bd99e237986f534"
HASH = "274b1e6fc1b966d53976333eb90ac94cb07a450a700b455af9fbdf882244b30a"
LOCK = """version = 1
revision = 3
requires-python = ">=3.13"

[[package]]
name = "cowsay"
version = "6.1"
source = { registry = "https://pypi.org/simple" }
wheels = [
    { url = "https://files.pythonhosted.org/WHERE/cowsay-6.1-py3-none-any.whl", hash = "sha256:HASH" },
]

[[package]]
name = "says"
version = "1"
source = { virtual = "." }
dependencies = [
    { name = "cowsay" },
]

[package.metadata]
requires-dist = [{ name = "cowsay", specifier = "==6.1" }]
"""
