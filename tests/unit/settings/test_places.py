"""Which folders of the machine may be seen in the container under their own paths."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings import load, places
from dshpc_setup.settings.edited import as_text

parts = st.text(
    st.characters(exclude_characters="/:,", exclude_categories=("Cc", "Cs")), min_size=1, max_size=9
).filter(lambda text: text.strip() == text and text not in (".", ".."))


def refused(text: str) -> str:
    with pytest.raises(DshpcError) as caught:
        load(flags={"mounts": text})
    return caught.value.brief


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/etc", "hide the system"),
        ("/", "hide the system"),
        ("//", "hide the system"),
        ("/etc/", "hide the system"),
        ("/./etc", "hide the system"),
        ("/usr/share/data:ro", "hide the system"),
        ("/lib64", "hide the system"),
        ("/var/run/docker.sock", "hide the system"),
        ("/run", "hide the system"),
        ("/var/lib/dshpc/state", "hide the system"),
        ("/proc/1/root", "hide the system"),
        ("/var/lib/docker/volumes", "an engine keeps"),
        ("/home", "home: host"),
        ("/a/../etc", "'..'"),
        ("/..", "'..'"),
        ("data", "no absolute path"),
        ("~/data", "no absolute path"),
        (":ro", "no absolute path"),
        ("/data:/etc", "':'"),
        ("/data:rw", "':'"),
        ("/data:ro:ro", "':'"),
        ("/a\nb", "control character"),
        ("/data,/data/:ro", "so is item 1"),
        ("/data,etc", "item 2"),
    ],
)
def test_what_cannot_be_a_mount(text: str, why: str) -> None:
    assert why in refused(text)


def test_those_that_can() -> None:
    found = load(flags={"mounts": "/data, /scratch//x/:ro,/my data,/home/shared,/data/inner:ro"})
    assert found.mounts == ("/data", "/scratch/x:ro", "/my data", "/home/shared", "/data/inner:ro")
    yaml = load(yaml_text="mounts: [/data, /scratch:ro]\nhome: host\n")
    assert (yaml.mounts, yaml.home) == (("/data", "/scratch:ro"), "host")
    assert load().mounts == ()
    with pytest.raises(DshpcError, match="home"):
        load(flags={"home": "elsewhere"})


def test_what_the_page_shows() -> None:
    text = (Path(__file__).parents[3] / "docs/how-to/homes.md").read_text()
    blocks = [load(yaml_text=block) for block in re.findall(r"```yaml\n(.*?)```", text, re.S)]
    assert [each.home for each in blocks] == ["host", "kept", "", "", ""]
    assert blocks[2].mounts == ("/data", "/scratch:ro")
    assert [each.toolkit for each in blocks[3:]] == ["host", "host"]
    assert blocks[4].cuda_paths == ("/sw/cuda-12.4",)


@given(st.lists(parts, min_size=1, max_size=4), st.booleans())
def test_a_mount_is_a_plain_path_or_refused(names: list[str], read_only: bool) -> None:
    """Whatever is taken says one folder, hides nothing, and is read again as it was written."""
    text = "/" + "/".join(names) + (":ro" if read_only else "")
    try:
        (mount,) = load(flags={"mounts": text}).mounts
    except DshpcError:
        return
    folder = places.folder_of(mount)
    assert folder.startswith("/")
    assert not {":", ".."} & {*folder, *folder.split("/")}
    assert not places.hides_the_system(folder)
    assert mount.endswith(":ro") == read_only
    assert load(flags={"mounts": as_text((mount,))}).mounts == (mount,)


def test_a_folder_lies_in_itself_and_in_no_namesake() -> None:
    assert places.lies_in("/data", "/data")
    assert places.lies_in("/data/x", "/data/")
    assert not places.lies_in("/data2", "/data")
