"""Whose file counts, and the swap of /etc/slurm."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dshpc_setup.container import config
from dshpc_setup.errors import DshpcError
from dshpc_setup.files.ownership import digest
from dshpc_setup.slurm.paths import Paths

OURS = {"slurm.conf": "new\n", "gres.conf": "new\n", "cgroup.conf": "new\n", "job_submit.lua": "l"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for folder in ("config", "etc", "run/dshpc", "var/lib/dshpc/state"):
        (tmp_path / folder).mkdir(parents=True)
    return Paths(str(tmp_path))


def recorded(tmp_path: Path, **files: str) -> None:
    found = {f"config/{name.replace('_', '.')}": digest(text) for name, text in files.items()}
    manifest = {"schema": "dshpc.manifest/1", "files": found}
    (tmp_path / "config/manifest.json").write_text(json.dumps(manifest))


def test_without_a_mounted_folder_all_is_ours(paths: Paths) -> None:
    assert config.choose(paths, OURS) == config.Candidate(OURS, {}, {}, OURS)


def test_our_own_older_file_is_rendered_anew(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "config/slurm.conf").write_text("old\n")
    recorded(tmp_path, slurm_conf="old\n")
    found = config.choose(paths, OURS)
    assert found.texts == OURS
    assert found.customized == {}
    assert found.sha256 == {"slurm.conf": digest("old\n")}


def test_marked_and_edited_files_are_used(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "config/slurm.conf").write_text("# USER_CUSTOMIZED=true\nmine\n")
    (tmp_path / "config/gres.conf").write_text("by hand\n")
    recorded(tmp_path, slurm_conf="old\n", gres_conf="old\n")
    found = config.choose(paths, OURS)
    assert found.customized == {"slurm.conf": "custom", "gres.conf": "edited"}
    assert found.texts["gres.conf"] == "by hand\n"
    assert found.texts["cgroup.conf"] == "new\n"
    assert found.where("gres.conf") == "config/gres.conf"
    assert found.where("cgroup.conf") == "/etc/slurm/cgroup.conf (rendered)"


def test_scripts_are_never_taken_from_the_folder(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "config/job_submit.lua").write_text("-- USER_CUSTOMIZED=true\n")
    assert config.choose(paths, OURS).texts["job_submit.lua"] == "l"


def test_a_broken_manifest_is_an_error_and_no_guess(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "config/manifest.json").write_text("{")
    with pytest.raises(DshpcError, match=r"manifest\.json"):
        config.choose(paths, OURS)


@pytest.mark.parametrize("name", ["slurm.conf", "manifest.json"])
def test_what_cannot_be_read_is_an_error_with_words(
    paths: Paths, tmp_path: Path, name: str
) -> None:
    (tmp_path / "config" / name).mkdir()
    with pytest.raises(DshpcError) as caught:
        config.choose(paths, OURS)
    assert caught.value.brief == f"config/{name} cannot be read: Is a directory."
    assert any(f"config/{name}" in step for step in caught.value.resolution)


def test_all_files_are_swapped_in_one_step(paths: Paths, tmp_path: Path) -> None:
    for number in ("1", "2"):
        folder = f"{paths.run}/conf.{number}"
        config.write_set(folder, dict.fromkeys(OURS, number), paths.key)
        config.activate(paths, folder)
        seen = {path.name: path for path in (tmp_path / "etc/slurm").iterdir()}
        assert set(seen) == {*OURS, "slurm.key", "plugstack.conf", "oci.conf"}
        assert {seen[name].read_text() for name in OURS} == {number}
    assert (tmp_path / "etc/slurm").is_symlink()
    assert [path.name for path in (tmp_path / "etc").iterdir()] == ["slurm"]


@pytest.mark.parametrize(
    ("content", "name"),
    [(b"\x00" * 1024, "slurm.key"), (b'{\n "keys": [', "slurm.jwks"), (b'{"key": 1}', "slurm.key")],
)
def test_the_key_is_linked_under_the_name_of_what_it_is(
    paths: Paths, tmp_path: Path, content: bytes, name: str
) -> None:
    key = tmp_path / "key"
    key.write_bytes(content)
    folder = f"{paths.run}/conf.1"
    config.write_set(folder, OURS, str(key))
    assert {path.name for path in Path(folder).iterdir()} == {
        *OURS,
        name,
        "plugstack.conf",
        "oci.conf",
    }
    assert (Path(folder) / name).readlink() == key


def test_a_folder_mounted_there_is_not_replaced(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / "etc/slurm").mkdir()
    with pytest.raises(DshpcError, match="folder of its own"):
        config.activate(paths, f"{paths.run}/conf.1")


def test_the_last_good_configuration_is_kept(paths: Paths, tmp_path: Path) -> None:
    assert config.load_last_good(paths) is None
    config.save_last_good(paths, OURS)
    assert config.load_last_good(paths) == OURS
    (tmp_path / "var/lib/dshpc/state/last-good.json").write_text("{")
    assert config.load_last_good(paths) is None


def test_what_is_no_plain_file_of_some_size_is_no_configuration(
    paths: Paths, tmp_path: Path
) -> None:
    path = tmp_path / "config/slurm.conf"
    os.mkfifo(path)
    with pytest.raises(DshpcError, match="it is not a regular file"):
        config.choose(paths, OURS)
    path.unlink()
    with path.open("wb") as file:
        file.truncate((4 << 20) + 1)
    with pytest.raises(DshpcError, match="it is larger than 4 MiB"):
        config.choose(paths, OURS)
    path.write_bytes(b"#" * (4 << 20))
    assert config.choose(paths, OURS).customized == {"slurm.conf": "edited"}


@pytest.mark.parametrize("text", [b"NodeName=a\nNodeName=la\0b\n", "\nä".encode("utf-16-be")])
def test_a_nul_is_told_with_its_line(paths: Paths, tmp_path: Path, text: bytes) -> None:
    (tmp_path / "config/gres.conf").write_bytes(text)
    number = 2 if text.startswith(b"Node") else 1
    with pytest.raises(DshpcError) as caught:
        config.choose(paths, OURS)
    assert f"config/gres.conf, line {number}: it holds a NUL character" in caught.value.brief
    (tmp_path / "config/gres.conf").write_bytes(text.replace(b"\0", b"\\0"))
    assert config.choose(paths, OURS).customized == {"gres.conf": "edited"}


@pytest.mark.parametrize("line", [b"# USER_CUSTOMIZED=true", b"# by hand"])
def test_the_mark_of_a_windows_editor_is_not_handed_to_slurm(
    paths: Paths, tmp_path: Path, line: bytes
) -> None:
    """slurmd calls it a parse error; the host compares the file with the hash of all its bytes."""
    raw = b"\xef\xbb\xbf" + line + b"\r\nClusterName=a\r\n"
    (tmp_path / "config/slurm.conf").write_bytes(raw)
    found = config.choose(paths, OURS)
    assert found.texts["slurm.conf"].encode() == raw[3:]
    assert found.customized == {"slurm.conf": "custom" if b"CUSTOM" in line else "edited"}
    assert found.sha256 == {"slurm.conf": digest(raw.decode())}
