"""What the look from inside says, read back. The script itself runs in tests/integration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.passthrough.look import SeenLibrary, SeenNode, parse

WORDS = ("user", "musl", "visible", "absent", "open", "closed", "loaded", "unloaded", "listing", "says",
         "end", "", "other")  # fmt: skip


def test_every_kind_of_line() -> None:
    seen = parse(
        "user 1000 1000 993\n"
        "musl /lib/ld-musl-x86_64.so.1\n"
        "visible /dev/nvidia0\n"
        "open /dev/dri/renderD128 226:128 0000:05:00.0\n"
        "open /dev/nvidia1 -\n"
        "closed /dev/kfd 235:0 sh: 14: cannot open /dev/kfd: Permission denied\n"
        "closed /dev/nvidia2 195:2 sh: /dev/nvidia2: Operation not permitted\n"
        "closed /dev/nvidia3 - sh: can't open /dev/nvidia3: No such device or address\n"
        "absent /dev/nvidia4\n"
        "loaded libcuda.so.1 /usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01\n"
        "unloaded libnvidia-ml.so.1 ERROR: ld.so: object cannot be preloaded\n"
        "listing 14\n"
        "says WARNING: infoROM is corrupted\n"
        "says GPU 0: NVIDIA H100 (UUID: GPU-1)\n"
        "says   MIG 1g.10gb     Device  0: (UUID: MIG-1)\n"
        "end\n"
    )
    assert seen.user == "1000 1000 993"
    assert seen.musl
    assert seen.visible == ("/dev/nvidia0",)
    assert seen.nodes == {
        "/dev/dri/renderD128": SeenNode("open", "226:128", "0000:05:00.0"),
        "/dev/nvidia1": SeenNode("open"),
        "/dev/kfd": SeenNode("denied", "235:0", words="Permission denied"),
        "/dev/nvidia2": SeenNode("denied", "195:2", words="Operation not permitted"),
        "/dev/nvidia3": SeenNode("error", words="No such device or address"),
        "/dev/nvidia4": SeenNode("absent"),
    }
    assert seen.libraries["libcuda.so.1"].version == "550.163.01"
    assert not seen.libraries["libnvidia-ml.so.1"].loads
    assert (seen.uuids, seen.listing_code) == (("GPU-1", "MIG-1"), 14)
    assert seen.ended


def test_nothing_said_is_no_look() -> None:
    seen = parse("")
    assert (seen.ended, seen.listing, seen.listing_code, dict(seen.nodes)) == (
        False,
        None,
        None,
        {},
    )


def test_a_tool_that_lists_nothing_is_not_the_same_as_no_tool() -> None:
    assert parse("listing 6\nsays No devices found.\nend\n").listing == "No devices found."
    assert parse("end\n").listing is None


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/libcuda.so.550.163.01", "550.163.01"),
        ("/usr/lib/libcuda.so.535.54", "535.54"),
        ("/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1", None),  # Jetson, WSL
        ("/usr/lib/libcuda.so.1", None),
        ("/usr/lib/libcuda.so.550.163.01.bak", None),
        (None, None),
    ],
)
def test_the_version_is_that_of_the_file(path: str | None, version: str | None) -> None:
    assert SeenLibrary(True, path).version == version


@pytest.mark.parametrize("rest", ["device", "0000:05:00", "../../x", "0000:05:00.0 x", ""])
def test_what_is_no_address_is_none(rest: str) -> None:
    assert (
        parse(f"open /dev/dri/renderD128 226:128 {rest}\n").nodes["/dev/dri/renderD128"].pci is None
    )


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse(text)


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.text(max_size=40))))
def test_any_line_is_read(lines: list[tuple[str, str]]) -> None:
    seen = parse("\n".join(f"{word} {rest}" for word, rest in lines))
    assert all(node.state in ("open", "denied", "absent", "error") for node in seen.nodes.values())
    assert seen.listing is None or seen.listing_code is not None


@given(
    st.text(st.characters(exclude_characters="\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"), max_size=80)
)
def test_what_a_tool_says_is_never_taken_for_a_node(words: str) -> None:
    seen = parse(f"listing 0\nsays {words}\nend\n")
    assert (seen.nodes, seen.listing, seen.ended) == ({}, words, True)
