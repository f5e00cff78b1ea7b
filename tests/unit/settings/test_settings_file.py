from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.settings import load
from dshpc_setup.settings.edited import as_text, changed, item_text, joined, without

WRITTEN = """\
# our lab
prefix: 'lab'   # agreed with IT

gpu: nvidia
"""


def test_comments_order_and_quoting_stay() -> None:
    assert changed(WRITTEN, "gpu", "amd") == WRITTEN.replace("nvidia", "amd")
    assert changed(WRITTEN, "work", "/data") == WRITTEN + "work: /data\n"


def test_lists_and_a_new_file() -> None:
    text = changed(None, "devices", "0,2")
    assert load(yaml_text=text).devices == ("0", "2")
    assert changed("# only a comment\n", "gpu", "amd") == "# only a comment\ngpu: amd\n"


@pytest.mark.parametrize("text", ["# my file", "# my file\n", "\n# a\n\n# b", ""])
def test_a_file_of_comments_alone(text: str) -> None:
    new = changed(text, "partition", "gpu")
    assert new.startswith(text)
    assert "partition: gpu" in new.splitlines()


def test_only_a_list_setting_becomes_a_list() -> None:
    text = changed(None, "work", "/data/a,b")
    assert text == "work: /data/a,b\n"
    assert load(yaml_text=text).work == "/data/a,b"


@pytest.mark.parametrize("text", ["# only this\n---\n...\n", "gpu: amd\n...\n"])
def test_what_would_be_read_as_something_else_is_not_written(text: str) -> None:
    try:
        new = changed(text, "partition", "mine")
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
    else:
        assert load(yaml_text=new).partition == "mine"


@pytest.mark.parametrize(
    ("text", "name", "value", "word"),
    [
        (None, "gpuu", "amd", "Did you mean 'gpu'?"),
        (None, "gpu", "voodoo", "is none of"),
        ("gpu: [", "gpu", "amd", "dshpc.yaml:1:7"),
    ],
)
def test_what_is_refused(text: str | None, name: str, value: str, word: str) -> None:
    with pytest.raises(DshpcError) as caught:
        changed(text, name, value)
    assert caught.value.exit_code == Exit.USAGE
    assert word in caught.value.brief + caught.value.details


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True))
def test_what_was_set_is_what_is_read(prefix: str) -> None:
    assert load(yaml_text=changed(WRITTEN, "prefix", prefix)).prefix == prefix


TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs")))


@given(TEXTS)
def test_any_plain_value_holds(value: str) -> None:
    try:
        text = changed(WRITTEN, "work", value)
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
    else:
        assert load(yaml_text=text).work == value
        assert "# agreed with IT" in text


def test_partitions_become_a_list() -> None:
    text = changed(None, "partitions", "short=1:00:00, long=7-0")
    assert text == "partitions:\n- short=1:00:00\n- long=7-0\n"
    assert load(yaml_text=text).partitions == (("short", "1:00:00"), ("long", "7-0"))


def test_lines_stand_one_below_the_other() -> None:
    text = changed("gpu: amd # ours\n", "slurm_conf_extra", "MaxJobCount=20\n# why\nMaxTime=1:0")
    assert text == (
        "gpu: amd # ours\nslurm_conf_extra: |-\n  MaxJobCount=20\n  # why\n  MaxTime=1:0\n"
    )
    assert load(yaml_text=text).slurm_conf_extra.splitlines()[1] == "# why"
    of_a_list = "slurm_conf_extra:\n- A=1\n- B=2\n"
    assert load(yaml_text=changed(of_a_list, "slurm_conf_extra", "C=3")).slurm_conf_extra == "C=3"


def test_values_one_by_one() -> None:
    assert joined("devices", ["0", "2"]) == "0,2"
    assert joined("slurm_conf_extra", ["A=1", "B=2"]) == "A=1\nB=2"
    assert joined("work", ["/data"]) == "/data"
    for name, values in (("work", ["/data", "a"]), ("gpuu", ["amd"])):
        with pytest.raises(DshpcError) as caught:
            joined(name, values)
        assert caught.value.exit_code == Exit.USAGE


LINES = st.lists(st.text(st.characters(exclude_categories=("Cc", "Cs"))), min_size=1, max_size=4)


@given(LINES)
def test_any_lines_hold(values: list[str]) -> None:
    value = joined("slurm_conf_extra", values)
    try:
        text = changed(WRITTEN, "slurm_conf_extra", value)
    except DshpcError as error:
        assert error.exit_code == Exit.USAGE
    else:
        assert load(yaml_text=text).slurm_conf_extra == value.strip("\n")


def test_values_as_a_flag_takes_them() -> None:
    flags = {"devices": "0,2", "partitions": "short=1:00:00,long", "reserve_mib": "512"}
    settings = load(flags=flags)
    assert {name: as_text(getattr(settings, name)) for name in flags} == flags
    assert as_text(load().reserve_mib) == ""
    assert item_text(("long", "INFINITE")) == "long"


@pytest.mark.parametrize(
    ("text", "name", "left"),
    [
        ("gpu: amd\n", "gpu", ""),
        ("# a\ngpu: amd  # b\n\n# c\nwork: x", "gpu", "# a\n\n# c\nwork: x"),
        ("work: x\ngpu: amd", "gpu", "work: x\n"),
        ("devices:\n  - 0\n  - 2\n# c\nwork: x\n", "devices", "# c\nwork: x\n"),
        ("devices: [0,\n  2]\nwork: x\n", "devices", "work: x\n"),
        ("slurm_conf_extra: |\n  A=1\n  B=2\n\nwork: x\n", "slurm_conf_extra", "\nwork: x\n"),
        ("work: x\nslurm_conf_extra: |\n  A=1\n  B=2\n", "slurm_conf_extra", "work: x\n"),
        ("gpu: amd\n", "work", "gpu: amd\n"),
    ],
)
def test_one_setting_is_taken_out(text: str, name: str, left: str) -> None:
    assert without(text, name) == left


def test_one_that_stands_in_a_line_with_others_is_left() -> None:
    with pytest.raises(DshpcError, match="could not be taken out"):
        without("{gpu: amd, work: x}\n", "gpu")


@given(st.sampled_from(["gpu", "work", "devices"]), st.text("# ab\n", max_size=20))
def test_what_was_set_can_be_taken_out(name: str, comment: str) -> None:
    before = "".join(f"#{line}\n" for line in comment.splitlines()) + "reserve_mib: 512\n"
    value = {"gpu": "amd", "work": "x", "devices": "0,2"}[name]
    assert without(changed(before, name, value), name) == before
