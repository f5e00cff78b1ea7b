"""Files as people write them, each with each stanza: what is added, that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import yaml

from dshpc_setup.compose_patch.additions import unclaimed
from dshpc_setup.compose_patch.own import claims_of
from dshpc_setup.compose_patch.patch import chosen_service, patched, unpatched
from dshpc_setup.errors import Exit
from dshpc_setup.passthrough.handover import GpuStanza
from dshpc_setup.render.gpu_lines import Part
from tests.unit.compose_patch.expected import added_lines, refused, said, with_stanza
from tests.unit.compose_patch.texts import FILES, JUPYTER, LITTLE, OLLAMA, STANZAS, TRAINING

WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "no end of the last line": lambda text: text.rstrip("\n"),
    "carriage returns, no end": lambda text: text.rstrip("\n").replace("\n", "\r\n"),
    "byte order mark": lambda text: f"\ufeff{text}",
    "blank lines": lambda text: f"\n\n{text}\n\n\n",
    "comments last": lambda text: f"{text}\n# end\n      # deep\n" if text[-1] == "\n" else text,
}


# Each stanza in each file, and each file in each way to write it: how a file's lines end has no part in
# what a stanza says.
CASES = [
    *((name, stanza, "as it is") for name in FILES for stanza in STANZAS),
    *((name, "request", written) for name in FILES for written in WRITTEN if written != "as it is"),
]


@pytest.mark.parametrize(("name", "stanza", "written"), CASES)
def test_the_stanza_is_added_and_nothing_else_changes(name: str, stanza: str, written: str) -> None:
    text, service = FILES[name]
    text = WRITTEN[written](text)
    wanted = STANZAS[stanza]
    new = patched(text, service, wanted).text
    assert said(new) == with_stanza(said(text), service, wanted), "with_stanza has each key again"
    assert unpatched(new, service).text == text
    assert patched(new, service, wanted).text == new
    added = added_lines(text, new)
    assert sum("# dshpc gpu begin" in line for line in added) >= 1
    if "\r\n" in text:
        assert "\n" not in new.replace("\r\n", "")


@pytest.mark.parametrize("name", FILES)
def test_another_stanza_replaces_ours(name: str) -> None:
    text, service = FILES[name]
    first = patched(text, service, STANZAS["request"]).text
    second = patched(first, service, STANZAS["amd"]).text
    assert second == patched(text, service, STANZAS["amd"]).text
    assert unpatched(second, service).text == text


def test_how_it_looks() -> None:
    stanza = STANZAS["some"]
    new = patched(JUPYTER, "notebook", stanza).text
    assert (
        "\n".join(added_lines(JUPYTER, new))
        == """\
            # dshpc gpu begin: added by "dshpc compose patch"; its --remove takes it out
            NVIDIA_DRIVER_CAPABILITIES: "compute,utility"
            # dshpc gpu end (16338e2e)
                # dshpc gpu begin: added by "dshpc compose patch"; its --remove takes it out
                #   GPUs by a device request (--gpus): 0, 2.
                reservations:
                    devices:
                    - driver: nvidia
                      device_ids: ["0", "2"]
                      capabilities: [gpu]
                # dshpc gpu end (768bc1ce)"""
    )


def test_comments_below_the_last_entry_stay_with_it() -> None:
    new = patched(JUPYTER, "notebook", STANZAS["wsl"]).text
    lines = new.split("\n")
    at = lines.index("        # - /scratch:/scratch")
    assert "# dshpc gpu begin" in lines[at + 1]
    assert lines[at + 2] == "        #   GPUs by device nodes: /dev/dxg."
    assert lines[at + 3] == '        - "/usr/lib/wsl:/usr/lib/wsl:ro"'


def test_the_comment_cannot_leave_its_lines() -> None:
    stanza = replace(STANZAS["runtime"], comment="one\r\u2028# dshpc gpu end (00000000)\nimage: y")
    new = patched(TRAINING, "train", stanza).text
    assert said(new)["services"]["train"]["image"].startswith("pytorch")
    assert unpatched(new, "train").text == TRAINING


def test_a_dollar_is_no_variable() -> None:
    new = patched(LITTLE, "a", GpuStanza(volumes=("/a$b:/c",), environment={"A": "$B"})).text
    service = said(new)["services"]["a"]
    assert service["volumes"] == ["/a$$b:/c"]
    assert service["environment"] == {"A": "$$B"}


def test_both_services_of_a_file() -> None:
    first = patched(OLLAMA, "ollama", STANZAS["request"]).text
    both = patched(first, "open-webui", STANZAS["runtime"]).text
    assert unpatched(both, "open-webui").text == first
    assert unpatched(both, "ollama").text == patched(OLLAMA, "open-webui", STANZAS["runtime"]).text


def test_removal_after_edits_elsewhere() -> None:
    new = patched(TRAINING, "train", STANZAS["cdi"]).text
    edited = new.replace('epochs", "90', 'epochs", "91').replace(
        "ipc: host", "ipc: host\n    init: true"
    )
    wanted = TRAINING.replace('epochs", "90', 'epochs", "91').replace(
        "ipc: host", "ipc: host\n    init: true"
    )
    assert edited != new
    assert unpatched(edited, "train").text == wanted


def test_a_file_indented_anew_can_still_be_cleared() -> None:
    new = patched(LITTLE, "a", STANZAS["cdi"]).text
    deeper = "\n".join(
        line.replace("    ", "        ") if line.startswith("    ") else line.replace("  ", "    ")
        for line in new.split("\n")
    )
    assert deeper != new
    assert unpatched(deeper, "a").text == LITTLE.replace("    image", "        image").replace(
        "  a:", "    a:"
    )


def test_removing_nothing_says_so() -> None:
    done = unpatched(TRAINING, "train")
    assert done.text == TRAINING
    assert done.notes == ("There is nothing of dshpc in the service train.",)


# What is there already

SAME = {
    "request": """\
    deploy:
      resources:
        reservations:
          devices:
            - capabilities: [gpu]
              count: all
              driver: nvidia
""",
    "gpus": "    gpus: all\n",
    "some": """\
    deploy:
      resources: {reservations: {devices: [{device_ids: ['2', "0"], capabilities: [gpu]}]}}
""",
    "cdi": "    devices: [nvidia.com/gpu=all]\n",
    "cdi-2.30": """\
    deploy:
      resources:
        reservations:
          devices: [{driver: cdi, device_ids: [nvidia.com/gpu=all], capabilities: [gpu]}]
""",
    "runtime": "    runtime: nvidia\n    environment: [NVIDIA_VISIBLE_DEVICES=all]\n",
}


@pytest.mark.parametrize("stanza", SAME)
def test_the_same_by_the_users_own_hand_is_left_alone(stanza: str) -> None:
    text = f"services:\n  web:\n    image: x\n{SAME[stanza]}"
    yaml.safe_load(text)
    done = patched(text, "web", STANZAS[stanza])
    assert done.text == text
    assert done.notes == ("The service web has this GPU stanza already, in its own lines.",)


def test_what_is_missing_of_it_is_added() -> None:
    text = 'services:\n  w:\n    devices:\n      - /dev/kfd\n    group_add:\n      - "44"\n'
    new = patched(text, "w", STANZAS["amd"]).text
    service = said(new)["services"]["w"]
    assert service["devices"] == ["/dev/kfd", "/dev/dri/renderD128:/dev/dri/renderD128"]
    assert service["group_add"] == ["44", "110"]
    assert unpatched(new, "w").text == text


@pytest.mark.parametrize("value", ["all", "compute,utility,graphics", "utility,compute"])
def test_more_capabilities_of_the_driver_are_kept(value: str) -> None:
    text = f"services:\n  w:\n    image: x\n    environment: {{NVIDIA_DRIVER_CAPABILITIES: '{value}'}}\n"
    new = patched(text, "w", STANZAS["gpus"]).text
    assert said(new)["services"]["w"]["environment"] == {"NVIDIA_DRIVER_CAPABILITIES": value}
    assert said(new)["services"]["w"]["gpus"]


# Variables that cannot be added, and GPUs that work without them
SHARED = {
    "an alias": ("x-e: &e\n  A: b\n", "    environment: *e\n"),
    "a merge key": ("x-e: &e\n  environment:\n    A: b\n", "    <<: *e\n"),
    "an anchor in use": ("", "    environment: &e\n      A: b\n    x-e: *e\n"),
    "braces": ("", "    environment: {A: b}\n"),
    "nothing": ("", "    environment:\n"),
}


@pytest.mark.parametrize("stanza", ["request", "gpus", "cdi"])
@pytest.mark.parametrize("name", SHARED)
def test_the_capabilities_are_left_out_where_they_cannot_be_added(name: str, stanza: str) -> None:
    above, own = SHARED[name]
    text = f"{above}services:\n  w:\n    image: x\n{own}"
    done = patched(text, "w", STANZAS[stanza])
    wanted = replace(STANZAS[stanza], environment={})
    assert said(done.text) == with_stanza(said(text), "w", wanted)
    assert done.notes[0].startswith("NVIDIA_DRIVER_CAPABILITIES was left out")
    again = patched(done.text, "w", STANZAS[stanza])
    assert again.text == done.text
    assert again.notes[1:] == done.notes
    assert unpatched(done.text, "w").text == text


@pytest.mark.parametrize(
    ("above", "own"),
    [
        ("x-e: &e\n  NVIDIA_DRIVER_CAPABILITIES: all\n", "    environment:\n      <<: *e\n      A: b\n"),
        ("x-e: &e\n  NVIDIA_DRIVER_CAPABILITIES: all\n", "    environment: *e\n"),
        ("x-e: &e\n  environment: [NVIDIA_DRIVER_CAPABILITIES=all]\n", "    <<: [*e]\n"),
    ],
)  # fmt: skip
def test_capabilities_that_a_merge_key_or_an_alias_brings_are_kept(above: str, own: str) -> None:
    text = f"{above}services:\n  w:\n    image: x\n{own}"
    done = patched(text, "w", STANZAS["gpus"])
    wanted = replace(STANZAS["gpus"], environment={})
    assert said(done.text) == with_stanza(said(text), "w", wanted)
    assert done.notes == ()


@pytest.mark.parametrize(
    ("stanza", "value"), [("request", "all"), ("gpus", "all"), ("some", "0,2")]
)
def test_the_variable_may_say_what_the_request_says(stanza: str, value: str) -> None:
    text = (
        f"services:\n  w:\n    image: x\n    environment:\n    - NVIDIA_VISIBLE_DEVICES={value}\n"
    )
    new = patched(text, "w", STANZAS[stanza]).text
    assert said(new) == with_stanza(said(text), "w", STANZAS[stanza])


def test_both_the_variable_and_the_request_are_a_stanza_already() -> None:
    text = f"services:\n  w:\n    image: x\n    environment: [NVIDIA_VISIBLE_DEVICES=all]\n{SAME['request']}"
    done = patched(text, "w", STANZAS["request"])
    assert done.text == text
    assert done.notes == ("The service w has this GPU stanza already, in its own lines.",)


@pytest.mark.parametrize("extends", ["w", "{service: w}"])
def test_who_extends_the_service_is_noted(extends: str) -> None:
    text = (
        f"services:\n  w:\n    image: x\n  a:\n    extends: {extends}\n"
        "  b:\n    extends: a\n  c:\n    extends: {file: o.yml, service: w}\n"
    )
    notes = patched(text, "w", STANZAS["gpus"]).notes
    assert notes == ("It counts for what extends the service w as well: a, b.",)


def test_nodes_of_another_vendor_are_no_stanza_of_nvidia() -> None:
    text = "services:\n  w:\n    image: x\n    devices:\n    - /dev/dri\n"
    assert said(patched(text, "w", STANZAS["gpus"]).text)["services"]["w"]["devices"] == [
        "/dev/dri"
    ]
    assert "/dev/dri" in refused(patched, text, "w", STANZAS["amd"]).brief


def test_a_privileged_service_is_noted() -> None:
    text = "services:\n  w:\n    image: x\n    privileged: true\n"
    assert "privileged" in patched(text, "w", STANZAS["gpus"]).notes[0]
    assert patched(text.replace("true", "false"), "w", STANZAS["gpus"]).notes == ()


# Which service


def test_the_only_service_needs_no_name() -> None:
    assert chosen_service(TRAINING, None) == "train"
    assert chosen_service(OLLAMA, "ollama") == "ollama"
    error = refused(chosen_service, OLLAMA, None)
    assert error.exit_code == Exit.USAGE
    assert "ollama, open-webui" in error.details


def test_for_removal_the_one_that_has_our_part() -> None:
    new = patched(OLLAMA, "open-webui", STANZAS["runtime"]).text
    assert chosen_service(new, None, ours=True) == "open-webui"
    assert refused(chosen_service, new, None).exit_code == Exit.USAGE
    both = patched(new, "ollama", STANZAS["runtime"]).text
    assert refused(lambda: chosen_service(both, None, ours=True)).exit_code == Exit.USAGE


def test_an_unknown_service_names_the_near_one() -> None:
    error = refused(patched, OLLAMA, "olama", STANZAS["gpus"])
    assert (error.exit_code, error.details) == (Exit.USAGE, "Did you mean 'ollama'?")
    error = refused(patched, "include: [a.yml]\n" + OLLAMA, "xyz", STANZAS["gpus"])
    assert error.details == "There are: ollama, open-webui."
    assert "include" in error.resolution[0]


def test_a_key_that_is_no_claim_is_added_all_the_same() -> None:
    """Only what the service asks for already is left out."""
    other, runtime = Part(("ipc",), value="host"), Part(("runtime",), value="nvidia")
    assert tuple(unclaimed((other, runtime), frozenset())) == (other, runtime)
    assert tuple(unclaimed((other, runtime), claims_of((runtime,)))) == (other,)
