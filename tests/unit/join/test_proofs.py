"""What is refused on the machine that joins: by clock, name, version, folder; and the firewall's command."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from dshpc_setup import __version__, codec
from dshpc_setup.errors import DshpcError
from dshpc_setup.join import client, cluster_facts, firewall, share
from dshpc_setup.join.asking import Asking, refusal
from dshpc_setup.join.messages import Code, Facts, Probe, Refused, Take
from dshpc_setup.join.token import Token
from dshpc_setup.machine import CommandResult, Read
from dshpc_setup.project.folder import LIVE, Project
from tests.unit.join.test_answering import FACTS


@dataclass
class Files:
    """A machine that has these files."""

    texts: dict[str, str]

    def read(self, path: str) -> Read:
        text = self.texts.get(path)
        return Read("present" if text is not None else "absent", text)

    def exists(self, path: str) -> bool:
        return path in self.texts


def test_clocks_up_to_five_seconds_apart() -> None:
    client._refuse_clock(4.9)
    client._refuse_clock(-4.9)
    with pytest.raises(DshpcError, match="61 s behind"):
        client._refuse_clock(61.0)
    with pytest.raises(DshpcError, match="6 s ahead of"):
        client._refuse_clock(-6.0)


@pytest.mark.parametrize("name", ["lab", "lab-3", "Lab", "", "a b", "-x"])
def test_names_that_no_other_machine_can_have(name: str) -> None:
    with pytest.raises(DshpcError):
        client._refuse_name(name, FACTS.prefix)


@pytest.mark.parametrize("name", ["lab2", "lab-gpu", "node-3"])
def test_names_that_one_can(name: str) -> None:
    client._refuse_name(name, FACTS.prefix)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("gpu1.example.org\n", "gpu1"),
        ("GPU_Box\n", "gpu-box"),
        ("7of9\n", "node-7of9"),
        ("", "node"),
    ],
)
def test_a_machine_is_called_as_its_host(host: str, name: str) -> None:
    assert client.node_name(host) == name


def test_what_the_cluster_decides_is_not_said_here() -> None:
    client.refuse_settings(
        {"listen": "eth0", "work": "/srv/work", "simulate": "t4:1", "prefix": None}
    )
    with pytest.raises(DshpcError, match="--prefix, --slurm-ports: the cluster"):
        client.refuse_settings({"prefix": "x", "slurm_ports": "1,2"})


def test_another_version_is_told() -> None:
    client._refuse_version(replace(FACTS, version=__version__))
    with pytest.raises(DshpcError, match="has dsHPC setup 99"):
        client._refuse_version(replace(FACTS, version="99"))


def test_a_folder_with_a_cluster_of_its_own_does_not_join(tmp_path: Path) -> None:
    project = Project(tmp_path)
    client._refuse_cluster(project, "lab")
    (tmp_path / ".dshpc").mkdir()
    project.write_json(".dshpc/runtime.json", {"container": "x-slurm", "prefix": "x", "work": "/w"})
    with pytest.raises(DshpcError, match="holds a cluster of its own"):
        client._refuse_cluster(project, "lab")
    project.write_json(".dshpc/joined.json", {"node": "lab2", "controller": "10.0.0.1"})
    with pytest.raises(DshpcError, match="belongs to another cluster"):
        client._refuse_cluster(project, "lab")
    client._refuse_cluster(project, "x")


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({"/run/firewalld": ""}, "firewalld", 'port port="61001-61999" protocol="tcp" accept'),
        (
            {"/etc/ufw/ufw.conf": "ENABLED=yes\n"},
            "ufw",
            "from 10.0.0.2 to any port 61001:61999 proto tcp",
        ),
        (
            {"/etc/ufw/ufw.conf": "ENABLED=no\n"},
            "nftables",
            "ip saddr 10.0.0.2 tcp dport 61001-61999 accept",
        ),
    ],
)
def test_the_command_of_the_firewall_that_is_there(
    files: dict[str, str], kind: Any, words: str
) -> None:
    machine: Any = Files(files)
    assert firewall.kind(machine) == kind
    (step,) = firewall.let_in(kind, "10.0.0.2", 61001, 61999, "here")
    assert words in (step.command or "")
    assert len(firewall.let_in(None, "10.0.0.2", 6818, 6818, "there")) == 3


PROBE, TEXT = ".dshpc-join-" + "0" * 16, "a" * 32


def test_a_folder_is_the_same_where_its_file_is(tmp_path: Path) -> None:
    probe = Probe(PROBE, TEXT, os.getuid(), os.getgid())
    assert not share.look(str(tmp_path), probe).is_same
    (tmp_path / PROBE).write_text(TEXT)
    mine = (tmp_path / PROBE).stat()
    found = share.look(str(tmp_path), replace(probe, gid=mine.st_gid))
    assert (found.is_same, found.refused) == (True, None)
    squashed = share.look(str(tmp_path), replace(probe, uid=mine.st_uid + 1))
    assert squashed.refused is not None
    assert "other owners" in squashed.refused.brief
    assert not share.look(str(tmp_path), replace(probe, text="0" * 32)).is_same
    assert not share.look(str(tmp_path), None).is_same


def test_workspaces_are_carried_to_a_folder_of_the_same_path_that_holds_nothing(
    tmp_path: Path,
) -> None:
    """Else a controller could name any folder, and have what is in it in the container."""
    work = tmp_path / "work"

    def carried_to(path: Path | str = work, before: str | None = None) -> str:
        return share.look(str(path), None, str(path), before).carried_to

    assert carried_to() == str(work)  # to be made
    assert carried_to(tmp_path / "gone/work") == ""
    work.mkdir()
    assert carried_to() == str(work)
    (work / "jobs").mkdir()
    assert carried_to() == str(work)
    (work / "secret").write_text("")
    assert carried_to() == ""
    assert carried_to(before=str(work)) == str(work)
    (tmp_path / "link").symlink_to("/")
    for path in (tmp_path / "link", "/", "/etc", "work", f"{tmp_path}/../{tmp_path.name}/new", ""):
        assert carried_to(path) == ""
    assert share.look(str(work), None, "/another", None).carried_to == ""
    words = share.Shared(str(work), False, carried_to=str(work)).words("10.0.0.1", "10.0.0.2")
    assert "take their workspace" in words[0]


def test_no_link_is_taken_for_the_file(tmp_path: Path) -> None:
    (tmp_path / "there").write_text(TEXT)
    (tmp_path / PROBE).symlink_to("there")
    assert not share.look(str(tmp_path), Probe(PROBE, TEXT, 0, 0)).is_same


def test_without_a_share_it_says_what_to_do() -> None:
    said = " ".join(share.Shared("/srv/work", False).words("10.0.0.1", "10.0.0.2"))
    for word in ("not shared", "exportfs", "/srv/work 10.0.0.2(", "10.0.0.1:/srv/work"):
        assert word in said


CODES: tuple[Code, ...] = (
    "unknown", "expired", "revoked", "used", "busy", "malformed", "protocol", "name", "slurm", "slurm-old",
    "slurm-user",
    "nat", "cluster",
)  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_each_refusal_has_words_and_a_step(code: Code) -> None:
    asked = Asking(Token("10.0.0.1", 61999, "00" * 32, "00" * 6, "00" * 16), "lab2")
    error = refusal(Refused(code, "10.0.0.9"), asked)
    assert error.brief
    assert error.steps
    assert error.exit_code != 0


@pytest.mark.parametrize("code", ["slurm", "slurm-old"])
def test_both_versions_of_slurm_are_named(code: Code) -> None:
    asked = Asking(Token("10.0.0.1", 61999, "00" * 32, "00" * 6, "00" * 16), "lab2")
    told = refusal(Refused(code, "controller 24.11.5, this machine's image 26.05.5"), asked)
    assert "controller 24.11.5, this machine's image 26.05.5" in told.details


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("known", "what stands in it\n"),
        ("sub/.dshpc-join-" + "0" * 16, "a" * 32),
        ("known", "a" * 32),
    ],
)
def test_a_controller_names_no_file_of_this_machine(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "known").write_text(text)
    (tmp_path / (".dshpc-join-" + "0" * 16)).write_text(text)
    found = share.look(str(tmp_path), Probe(name, text, os.getuid(), os.getgid()))
    assert not found.is_same


def test_a_controller_sets_what_the_cluster_shares_and_nothing_of_this_machine(
    tmp_path: Path,
) -> None:
    hostile = replace(
        FACTS, settings={"partition": "gpu", "mounts": "/:/host", "work": "/etc", "home": "host"}
    )
    asking = Asking(Token("10.0.0.1", 1, "0" * 64, "0" * 12, "0" * 32), "gpu2")
    join = client.Join(Project(tmp_path), asking, hostile, "10.0.0.2", "")
    assert join.flags["partition"] == "gpu"
    assert set(join.flags) == {"prefix", "partition", "slurm_ports", "srun_ports", "listen"}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"srun_ports": [1, 1 << 40]},
        {"settings": []},
        {"probe": "x"},
        {"clock": "now"},
        *({"environment": {name: ""}} for name in ("../x", ".bashrc", "x", "", "pixi.toml\n")),
    ],
)
def test_an_answer_of_wrong_types_is_told_in_words(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(Token("10.0.0.1", 1, "0" * 64, "0" * 12, "0" * 32), "gpu2")
    told = codec.to_json(FACTS, "") | wrong if wrong else {}
    monkeypatch.setattr(Asking, "ask", lambda *_: told)
    with pytest.raises(DshpcError, match="no join service of this version"):
        asking.asked(Facts, "facts")


def test_an_answer_without_the_key_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(Token("10.0.0.1", 1, "0" * 64, "0" * 12, "0" * 32), "gpu2")
    monkeypatch.setattr(Asking, "ask", lambda *_: {})
    monkeypatch.setattr(cluster_facts, "about", lambda *_: Take("24.11.5", 64030))
    nowhere: Any = object()
    with pytest.raises(DshpcError, match="no join service of this version"):
        client.Join(Project(tmp_path), asking, FACTS, "10.0.0.2", "").connect(nowhere, "lab-slurm")


@pytest.mark.parametrize("answer", ["ok", "changed"])
def test_a_node_that_could_not_take_the_key_as_it_runs_starts_with_the_address_of_now(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(Token("10.0.0.1", 1, "0" * 64, "0" * 12, "0" * 32), "gpu2")
    monkeypatch.setattr(Asking, "ask", lambda *_: {"given": "the key"})
    monkeypatch.setattr(cluster_facts, "about", lambda *_: Take("24.11.5", 64030))
    done = CommandResult((), "present", 0, f"{answer}\n", "", 0)
    restarted: list[dict[str, Any]] = []
    (tmp_path / "config").mkdir()
    project, machine = Project(tmp_path), cast(Any, object())
    project.write_json(LIVE, {"DSHPC_PARTITIONS": "a", "DSHPC_CONTROLLER": "10.0.0.9"})
    monkeypatch.setattr("dshpc_setup.engine.containers.exec_in", lambda *_, **__: done)
    monkeypatch.setattr(
        "dshpc_setup.engine.containers.restart",
        lambda *_: restarted.append(project.read_note(LIVE)),
    )
    client.Join(project, asking, FACTS, "10.0.0.2", "").connect(machine, "lab-slurm")
    live = {"DSHPC_PARTITIONS": "a", "DSHPC_CONTROLLER": FACTS.address}
    assert restarted == ([live] if answer == "changed" else [])
