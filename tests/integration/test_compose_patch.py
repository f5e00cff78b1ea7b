"""Patched compose files before the real compose tools, of both generations, and on the real engine."""

from __future__ import annotations

import copy
import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from dshpc_setup.compose_patch import check, command
from dshpc_setup.compose_patch.command import Checked, ChosenHandover, PatchOptions
from dshpc_setup.errors import DshpcError
from dshpc_setup.image.base import BaseImage
from dshpc_setup.machine.local import LocalMachine
from dshpc_setup.passthrough.handover import GpuStanza, Handover
from dshpc_setup.probes.compose import plugin, program
from dshpc_setup.render.gpu_stanza import gpu_stanza
from dshpc_setup.terminal.reporter import Silent
from tests.integration.bench.compose import ComposeTool
from tests.unit.compose_patch.texts import AMD, CDI, FILES, REQUEST, RUNTIME, SOME, WSL

pytest_plugins = ("tests.integration.bench.fixtures",)

GROUP = 4321
HANDOVERS = {
    "cdi": CDI, "request": REQUEST, "some": SOME, "runtime": RUNTIME, "amd": AMD, "wsl": WSL,
}  # fmt: skip
# what the files want to be there: variables, a file
BESIDE = {".env": "JUPYTER_TOKEN=secret\n", "Caddyfile": "\n"}


class Tool:
    """A compose tool of this machine; `form`: the version that a stanza is written for."""

    def __init__(self, machine: LocalMachine, generation: str) -> None:
        found = (program if generation == "v1" else plugin)(machine, 30)[0]
        assert found is not None, f"no compose {generation} here"
        assert (found.major == 1) == (generation == "v1")
        self.machine, self.compose = machine, found
        self.form = found.version if generation == "newest" else None

    def check(self, file: Path, old: str, new: str) -> Checked:
        return check.config(self.machine, self.compose, file, old, new)

    def config(self, file: Path) -> Any:
        """The file as the tool understands it."""
        done = self.machine.run(
            [*self.compose.argv, "-f", str(file), "config"], deadline_s=60, cwd=str(file.parent)
        )
        assert done.ok, done.text
        return yaml.safe_load(done.stdout)


@pytest.fixture(params=["v1", "v2", "newest"])
def tool(
    request: pytest.FixtureRequest,
    compose_tools: dict[str, ComposeTool],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Tool:
    client = tmp_path_factory.mktemp("client") / "config"
    for name, value in compose_tools[request.param].client(client).items():
        monkeypatch.setenv(name, value)
    return Tool(LocalMachine(), str(request.param))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in BESIDE.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def patch(file: Path, service: str, handover: Handover, tool: Tool, version: str | None) -> Any:
    way = ChosenHandover(handover, "For a test.", version)
    return command.run(PatchOptions(file, service), lambda: way, tool.check, Silent(True))


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_taken_and_says_the_same_beside(
    name: str, tool: Tool, folder: Path, full: bool
) -> None:
    """With two of the mechanisms a file, every one of them with some file; with all in a full run."""
    text, service = FILES[name]
    file = folder / "docker-compose.yml"
    first = list(FILES).index(name)
    some = [label for number, label in enumerate(HANDOVERS) if full or (number - first) % 3 == 0]
    file.write_text(text)
    unpatched = tool.config(file)
    for label in some:
        handover, before = HANDOVERS[label], copy.deepcopy(unpatched)
        done = patch(file, service, handover, tool, tool.form)
        assert (label, done.checked_by is not None, done.notes) == (label, True, ())
        after = tool.config(file)
        stanza = gpu_stanza(handover, tool.form)
        found = after["services"].pop(service)
        old = before["services"].pop(service)
        assert after == before
        for key in old:
            if key not in ("devices", "volumes", "environment", "deploy", "group_add"):
                assert found[key] == old[key]
        _has(found, stanza, handover)
        gone = command.run(
            PatchOptions(file, service, remove=True), _no_way, tool.check, Silent(True)
        )
        assert gone.action == "removed"
        assert file.read_text() == text


def _no_way() -> ChosenHandover:
    raise AssertionError("nothing is to be handed over")


def _has(service: Mapping[str, Any], stanza: GpuStanza, handover: Handover) -> None:
    """That the tool has understood the stanza as what it is."""
    said = json.dumps(service)
    assert service.get("runtime") == stanza.runtime
    for part in (*handover.devices, *handover.volumes):
        assert part.split(":")[0] in said
    for group in handover.group_add:
        assert str(group) in [str(each) for each in service["group_add"]]
    if stanza.gpus:
        assert [item.get("device_ids", []) for item in service["gpus"]] == [list(handover.ids)]
    elif handover.mechanism == "cdi" and not stanza.reservations:
        assert set(handover.ids) <= {item["source"] for item in service["devices"]}
    elif handover.mechanism in ("cdi", "device-request"):
        requests = service["deploy"]["resources"]["reservations"]["devices"]
        ours = [item for item in requests if "gpu" in item["capabilities"]]
        assert [item.get("device_ids", []) for item in ours] == [list(handover.ids)]


def test_a_form_that_the_tool_does_not_know_is_not_written(folder: Path) -> None:
    tool = Tool(LocalMachine(), "v1")
    file = folder / "docker-compose.yml"
    text, service = FILES["train"]
    file.write_text(text)
    with pytest.raises(DshpcError) as caught:
        patch(file, service, REQUEST, tool, "2.30.3")
    assert "Unsupported config option" in caught.value.details
    assert "gpus" in caught.value.details
    assert file.read_text() == text
    assert sorted(path.name for path in folder.iterdir()) == sorted([*BESIDE, file.name])


def test_variables_and_files_beside_it_are_found(tool: Tool, folder: Path) -> None:
    """Also where the file is reached by another folder than the one that we stand in."""
    (folder / "more.env").write_text("A=1\n")
    file = folder / "own.yml"
    file.write_text(
        "services:\n  web:\n    image: x:${JUPYTER_TOKEN:?not found}\n    env_file: ./more.env\n"
    )
    assert os.getcwd() != str(folder)
    assert patch(file, "web", REQUEST, tool, None).checked_by


def test_a_text_that_the_locale_cannot_spell(
    tool: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}.items():
        monkeypatch.setenv(name, value)
    file = folder / "own.yml"
    file.write_text("services:\n  web:\n    image: x # f\u00fcr\n    user: M\u00fcller\n", "utf-8")
    assert patch(file, "web", REQUEST, tool, None).checked_by


def test_a_file_that_is_wrong_already_is_told(tool: Tool, folder: Path) -> None:
    file = folder / "own.yml"
    file.write_text("services:\n  web:\n    image: x\n    imagee: y\n")
    done = patch(file, "web", REQUEST, tool, None)
    assert done.checked_by is None
    assert "without the GPU stanza either" in done.notes[0]


def test_the_commands_are_declared_without_what_only_some_of_them_need() -> None:
    """Every command waits for it: `dshpc --help` as well."""
    heavy = ["passthrough", "probes.nvidia", "probes.amd", "compose_patch", "pipeline", "verify"]
    script = (
        "import sys, dshpc_setup.cli.app;"
        f"print([each for each in {heavy!r} if f'dshpc_setup.{{each}}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_container_gets_what_was_added(tool: Tool, folder: Path, base_image: BaseImage) -> None:
    node = folder / "node"
    os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
    os.chmod(node, 0o660)  # whatever the umask
    os.chown(node, 0, GROUP)
    file = folder / "docker-compose.yml"
    text = (
        "version: '2.4'\nservices:\n  job:\n"
        f"    image: {base_image.ref}\n    user: '1000:1000'\n"
        "    network_mode: none\n    group_add:\n    - '7'\n"
        "    command: sh -c 'echo to >/dev/kfd && stat -c %t:%T /dev/kfd && id -G && env'\n"
    )
    file.write_text(text)
    project = f"dshpc-test-patch-{os.getpid()}"
    run = [*tool.compose.argv, "-p", project, "-f", str(file), "run", "--rm", "-T", "job"]
    handover = Handover(
        "devices", devices=(f"{node}:/dev/kfd",), group_add=(GROUP,), environment={"A": "a$HOME"}
    )
    try:
        before = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
        assert before.returncode != 0
        assert "/dev/kfd" in before.stdout + before.stderr
        patch(file, "job", handover, tool, None)
        after = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
        lines = after.stdout.replace("\r", "").splitlines()
        assert after.returncode == 0, after.stderr
        assert lines[0] == "1:3"
        assert set(lines[1].split()) == {"1000", "7", str(GROUP)}
        assert "A=a$HOME" in lines
    finally:
        down = [*tool.compose.argv, "-p", project, "-f", str(file), "down", "--remove-orphans"]
        subprocess.run(down, capture_output=True, timeout=120, check=False)
