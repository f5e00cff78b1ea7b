from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.errors import DshpcError, Exit
from dshpc_setup.settings import load
from dshpc_setup.settings_file import changed

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
