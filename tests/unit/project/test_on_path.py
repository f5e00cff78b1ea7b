"""Programs of ours in a folder of the PATH: what they say, and that nothing of others is touched."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from dshpc_setup.project import on_path


def test_a_wrapper_knows_its_cluster_unless_the_caller_names_one() -> None:
    text = on_path.wrapper("/r/dshpc", "sbatch", "DSHPC_DEFAULT_DIR", "/a b/it's")
    lines = text.splitlines()
    assert lines[0] == "#!/bin/sh"
    assert on_path.MARK in lines[1]
    assert lines[2].startswith("case ")
    words = shlex.split(lines[3])
    assert words[-1] == "DSHPC_DEFAULT_DIR=/a b/it's"
    assert words[:5] == ["[", "-n", "${DSHPC_DEFAULT_DIR:-}", "]", "||"]
    assert lines[4:] == ["export DSHPC_DEFAULT_DIR", 'exec /r/dshpc sbatch "$@"']


def test_without_a_cluster_nothing_is_said_of_one() -> None:
    assert "DIR" not in on_path.wrapper("/r/dshpc", "dshpc", "DSHPC_DEFAULT_DIR", None)


@pytest.mark.parametrize("kind", ["text", "link", "dangling", "folder"])
def test_what_others_have_made_stays(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "srun"
    ours = tmp_path / "elsewhere"
    ours.write_text(f"#!/bin/sh\n# {on_path.MARK}\n")
    if kind == "text":
        place.write_text("#!/bin/sh\nexec /opt/slurm/bin/srun\n")
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(ours if kind == "link" else "nowhere")
    before = place.read_text() if kind == "text" else None
    assert on_path.put({place: f"# {on_path.MARK}\n"}).foreign == [place]
    assert on_path.take_away([place]).foreign == [place]
    assert place.is_symlink() or place.exists()
    assert before is None or place.read_text() == before


def test_put_again_and_taken_away(tmp_path: Path) -> None:
    place = tmp_path / "new/bin/dshpc"
    first = {place: f"#!/bin/sh\n# {on_path.MARK}\nold\n"}
    assert on_path.put(first, mode=0o755).written == [place]
    assert place.stat().st_mode & 0o777 == 0o755
    on_path.put({place: first[place].replace("old", "new")}, mode=0o755)
    assert "new" in place.read_text()
    assert on_path.take_away([place, tmp_path / "none"]).removed == [place]
    assert not place.exists()


def test_a_slurm_of_the_machine_is_found_and_which_comes_first(tmp_path: Path) -> None:
    own, ours = tmp_path / "own", tmp_path / "ours"
    for folder in (own, ours):
        folder.mkdir()
        (folder / "srun").write_text("#!/bin/sh\n")
        (folder / "srun").chmod(0o755)
    (ours / "sbatch").write_text(f"#!/bin/sh\n# {on_path.MARK}\n")
    (ours / "sbatch").chmod(0o755)
    before, after = {"PATH": f"{ours}:{own}"}, {"PATH": f"{own}:{ours}"}
    assert on_path.elsewhere("srun", before, ours) == own / "srun"
    assert on_path.elsewhere("sbatch", before, tmp_path) is None
    assert on_path.comes_first(ours, own / "srun", before)
    assert not on_path.comes_first(ours, own / "srun", after)
    assert not on_path.comes_first(ours, own / "srun", {"PATH": str(own)})
    assert on_path.is_on_path(ours, before)
    assert not on_path.is_on_path(tmp_path, before)
