"""Compose files of every layout, and texts that are none: added to and cleared, or refused."""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dshpc_setup.compose_patch.patch import patched, unpatched
from dshpc_setup.errors import DshpcError
from dshpc_setup.passthrough.handover import DeviceRequest, GpuStanza
from dshpc_setup.render.gpu_lines import lines, quoted
from tests.unit.compose_patch.expected import added_lines, said, with_stanza
from tests.unit.compose_patch.texts import STANZAS, TRAINING

NAMES = st.sampled_from(["web", "gpu-box", "a.b", "x_1", "train"])
LETTERS = string.ascii_letters + string.digits
WORDS = st.text(LETTERS + "/:._-$ #'\"{}[]&*!|>%@`,é\U0001f600", min_size=1, max_size=12)
STANZA = st.sampled_from(sorted(STANZAS)).map(STANZAS.__getitem__)


@dataclass(frozen=True)
class Style:
    """How a made-up person writes YAML."""

    step: int
    dash: int
    end: str


STYLES = st.builds(
    Style, st.integers(1, 5), st.sampled_from([0, 0, 2, 3]), st.sampled_from(["\n", "\r\n"])
)


@st.composite
def scalars(draw: st.DrawFn) -> str:
    """One value on one line, quoted in one of three ways."""
    word = draw(WORDS)
    how = draw(st.sampled_from(["plain", "single", "double"]))
    if how == "plain":
        return draw(st.sampled_from(["x", "1", "true", "3.8", "a b", "/a:/b", "null", "0o7", "~"]))
    return "'" + word.replace("'", "''") + "'" if how == "single" else quoted(word, always=True)


@st.composite
def noise(draw: st.DrawFn, column: int) -> list[str]:
    """Blank lines and comments, at odd places."""
    here = " " * column
    one = st.sampled_from(["", "", "   ", "# a comment", f"{here}# here", f"{here}    # deep: 1"])
    return draw(st.lists(one, max_size=2)) if draw(st.booleans()) else []


@st.composite
def block_scalar(draw: st.DrawFn, column: int, step: int) -> list[str]:
    head = draw(st.sampled_from(["|", "|-", "|+", ">", ">-", ">+"]))
    inside = " " * (column + step)
    line = st.sampled_from(["echo a", "# no comment", "b: c", "- d", ""])
    body = draw(st.lists(line, min_size=1, max_size=4))
    return [head, *(f"{inside}{line}" if line else "" for line in ["first", *body])]


@st.composite
def entries(draw: st.DrawFn, style: Style, column: int, key: str, items: list[str]) -> list[str]:
    """`key:` and a list below it."""
    out = [f"{' ' * column}{key}:"]
    for item in items:
        out += [f"{' ' * (column + style.dash)}- {item}"]
        out += draw(noise(column + style.dash))
    return out


@st.composite
def service_lines(draw: st.DrawFn, style: Style) -> list[str]:
    """The keys of a service, in any order, among them those that a stanza goes into."""
    column = 2 * style.step
    pad = " " * column
    keys: dict[str, list[str]] = {"image": [f"{pad}image: {draw(scalars())}"]}
    if draw(st.booleans()):
        keys["x-script"] = [f"{pad}x-script: ", *draw(block_scalar(column, style.step))]
        keys["x-script"][0:2] = [keys["x-script"][0] + keys["x-script"][1]]
    if draw(st.booleans()):
        keys["devices"] = draw(entries(style, column, "devices", ["/dev/fuse", '"/dev/a:/dev/b"']))
    if draw(st.booleans()):
        keys["volumes"] = draw(entries(style, column, "volumes", ["a:/a", "${B}:/b"]))
    if draw(st.booleans()):
        keys["group_add"] = draw(entries(style, column, "group_add", ["staff"]))
    kind = draw(st.sampled_from(["none", "list", "mapping"]))
    if kind == "list":
        keys["environment"] = draw(entries(style, column, "environment", ["A=1", "B"]))
    elif kind == "mapping":
        keys["environment"] = [f"{pad}environment:  # those", *draw(noise(column)),
                               f"{pad}{' ' * style.step}A: {draw(scalars())}"]  # fmt: skip
        if draw(st.booleans()):
            keys["environment"] += [f"{pad}{' ' * style.step}<<: *vars"]
    depth = draw(st.integers(0, 4))
    if depth:
        keys["deploy"] = draw(deploy_lines(style, column, depth))
    if draw(st.booleans()):
        keys["<<"] = [f"{pad}<<: *common"]
    out = []
    for key in draw(st.permutations(sorted(keys))):
        out += [*draw(noise(column)), *keys[key]]
    return out


@st.composite
def deploy_lines(draw: st.DrawFn, style: Style, column: int, depth: int) -> list[str]:
    """`deploy` down to `depth` of the keys on the way to the reservations."""
    out, step = [], " " * style.step
    for level, key in enumerate(["deploy", "resources", "reservations"][:depth]):
        pad = " " * column + step * level
        out += [f"{pad}{key}:", *draw(noise(column)), f"{pad}{step}x-{level}: {draw(scalars())}"]
    if depth == 4:
        at = column + 3 * style.step
        out += draw(entries(style, at, "devices", ["{driver: x, capabilities: [tpu]}"]))
    return out


@st.composite
def files(draw: st.DrawFn) -> tuple[str, str]:
    """The text of a compose file, and the service to patch."""
    style = draw(STYLES)
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    out = ["x-common: &common", f"{' ' * style.step}tty: true", *draw(noise(0))]
    out += ["x-vars: &vars", f"{' ' * style.step}V: w", *draw(noise(0))]
    out += [f"services:{draw(st.sampled_from(['', ' ', '  # all']))}"]
    for name in names:
        out += [*draw(noise(style.step)), f"{' ' * style.step}{name}:", *draw(service_lines(style))]
    out += draw(noise(0))
    if draw(st.booleans()):
        out += ["volumes:", f"{' ' * style.step}a: {{}}", *draw(noise(0))]
    text = style.end.join(out) + draw(st.sampled_from(["", style.end, style.end * 3]))
    mark = "\ufeff" if draw(st.integers(0, 9)) == 0 else ""
    return mark + text, draw(st.sampled_from(names))


@given(files(), STANZA)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_layout(file: tuple[str, str], stanza: GpuStanza) -> None:
    text, service = file
    before = said(text)
    new = patched(text, service, stanza).text
    assert said(new) == with_stanza(_own(before, service, stanza), service, stanza)
    assert patched(new, service, stanza).text == new
    assert unpatched(new, service).text == text
    for line in added_lines(text, new):
        assert not line.strip() or line.startswith(" ")


def _own(data: Any, service: str, stanza: GpuStanza) -> Any:
    """The stanza's items are never there before in these files: nothing to leave out."""
    assert "gpus" not in data["services"][service]
    return data


@given(files(), STANZA, STANZA, st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_edits_elsewhere_outlive_replacing_and_removal(
    file: tuple[str, str], first: GpuStanza, second: GpuStanza, data: st.DataObject
) -> None:
    text, service = file
    new = patched(text, service, first).text
    end = "\r\n" if "\r\n" in text else "\n"
    at = data.draw(st.sampled_from([f"services:{rest}{end}" for rest in ("", " ", "  # all")]))
    if at not in text:
        return
    edit = f"x-mine: [1]{end}# mine{end}{at}"
    edited = new.replace(at, edit, 1)
    assert unpatched(edited, service).text == text.replace(at, edit, 1)
    replaced = patched(edited, service, second).text
    assert replaced == patched(text.replace(at, edit, 1), service, second).text


# Texts that are no compose files

PIECES = st.sampled_from(
    ["services:", "\n", "\n", "\n  ", "\n    ", "web:", "image: x", "- ", "# c", "|", "|+", ">-", "'", '"',
     "{", "}", "[", "]", ",", "&a ", "*a", "<<: *a", "---", "...", "\t", "!!map ", "!reset ", "? ", ": ",
     "deploy:", "environment:", "A=1", "A: 1", "devices:", "resources:", "\r\n", "%YAML 1.1", "\x00",
     "\ufeff", "\x85", "\u2028", "gpus: all", "runtime: nvidia", "\\", "group_add:", "# dshpc gpu begin",
     "# dshpc gpu end (12345678)", "0o7", "~", "\ud800"]
)  # fmt: skip


@given(
    st.one_of(
        st.text(max_size=80),
        st.lists(PIECES, max_size=30).map("".join),
        st.lists(PIECES, max_size=20).map(
            lambda some: "services:\n  web:\n    image: x\n" + "".join(some)
        ),
    ),
    STANZA,
)
def test_any_text_is_patched_or_refused(text: str, stanza: GpuStanza) -> None:
    try:
        new = patched(text, "web", stanza).text
    except DshpcError as error:
        assert error.brief
        assert error.resolution or "Did you mean" in error.details or "There are" in error.details
        return
    assert patched(new, "web", stanza).text == new
    if "# dshpc gpu" not in text:
        assert unpatched(new, "web").text == text


@given(st.data(), STANZA)
def test_a_damaged_file_is_patched_or_refused(data: st.DataObject, stanza: GpuStanza) -> None:
    at = data.draw(st.integers(0, len(TRAINING)))
    upto = data.draw(st.integers(at, min(len(TRAINING), at + 40)))
    text = TRAINING[:at] + data.draw(PIECES) + TRAINING[upto:]
    try:
        new = patched(text, "train", stanza).text
    except DshpcError:
        return
    assert unpatched(new, "train").text == text


# What is written


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_quoted(text: str) -> None:
    assert said(f"a: {quoted(text)}\n") == {"a": text}
    assert said(f"a: {quoted(text, always=True)}\n") == {"a": text}


@pytest.mark.parametrize("text", ["yes", "No", "null", "on", "0", "1.0", "", "a b", "-", "n"])
def test_what_another_reader_takes_for_a_value_is_quoted(text: str) -> None:
    assert quoted(text).startswith('"')
    assert quoted("nvidia") == "nvidia"


VALUES = st.text(string.ascii_letters + string.digits + '/:._=-$" \\', min_size=1, max_size=10)
REQUESTS = st.builds(DeviceRequest, VALUES, st.lists(VALUES, max_size=2).map(tuple))


@given(
    st.builds(
        GpuStanza,
        runtime=st.none() | VALUES,
        gpus=st.lists(REQUESTS, max_size=1).map(tuple),
        devices=st.lists(VALUES, max_size=2, unique=True).map(tuple),
        group_add=st.lists(st.integers(1, 99999), max_size=2, unique=True).map(tuple),
        volumes=st.lists(VALUES, max_size=2, unique=True).map(tuple),
        environment=st.dictionaries(st.sampled_from(["A", "B_1"]), VALUES),
    )
)
def test_the_lines_for_writing_by_hand_say_the_stanza(stanza: GpuStanza) -> None:
    text = "services:\n  a:\n    image: x\n" + "".join(f"    {line}\n" for line in lines(stanza))
    found = said(text)["services"]["a"]
    plain = with_stanza({"services": {"a": {"image": "x"}}}, "a", stanza)["services"]["a"]
    assert _undoubled(found) == plain


def _undoubled(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$$", "$")
    if isinstance(value, list):
        return [_undoubled(item) for item in value]
    return {key: _undoubled(item) for key, item in value.items()}
