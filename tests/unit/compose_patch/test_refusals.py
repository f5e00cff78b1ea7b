"""What cannot be done safely is refused, with its place, and the near miss beside it is not."""

from __future__ import annotations

from typing import Any

import pytest

from dshpc_setup.compose_patch import splice
from dshpc_setup.compose_patch.patch import patched, unpatched
from dshpc_setup.errors import Exit
from dshpc_setup.passthrough.handover import GpuStanza
from tests.unit.compose_patch.expected import refused, said, with_stanza
from tests.unit.compose_patch.texts import STANZAS, TRAINING

WEB = "services:\n  web:\n    image: x\n"
BASE = "x-base: &base\n  image: x\n"

# stanza, text, place, a part of what is said
REFUSED: dict[str, tuple[str, str, str, str]] = {
    "invalid": ("gpus", "services:\n  web: [\n", "c.yml:2:9", "not valid YAML"),
    "a tab": ("gpus", "services:\n  web:\n\timage: x\n", "c.yml:3:1", "not valid YAML"),
    "nothing": ("gpus", "", "c.yml:1:1", "holds no services"),
    "only comments": ("gpus", "# nothing\n", "c.yml:1:1", "holds no services"),
    "a list": ("gpus", "- a\n", "c.yml:1:1", "no `services`"),
    "the first format": ("gpus", "web:\n  image: x\n", "c.yml:1:1", "no `services`"),
    "no service": ("gpus", "services:\n", "c.yml:1:1", "no service under"),
    "services of a list": ("gpus", "services:\n- web\n", "c.yml:1:1", "no service under"),
    "two documents": ("gpus", f"{WEB}---\na: 1\n", "c.yml:5:1", "second YAML document"),
    "a key twice": ("gpus", f"{WEB}    image: y\n", "c.yml:4:5", "'image' stands here twice"),
    "a service twice": ("gpus", f"{WEB}  web:\n    image: y\n", "c.yml:4:3", "'web' stands here"),
    "an alias": ("gpus", f"{BASE}services:\n  web: *base\n", "c.yml:4:3", "only a name (*base)"),
    "an anchor in use": (
        "gpus",
        "services:\n  web: &web\n    image: x\n  eval:\n    <<: *web\n",
        "c.yml:2:3",
        "*web elsewhere would change too",
    ),
    "all services in use": (
        "gpus", "services: &all\n  web:\n    image: x\nx-all: *all\n", "c.yml:1:1", "&all",
    ),
    "a service in braces": ("gpus", "services:\n  web: {image: x}\n", "c.yml:2:3", "in braces"),
    "services in braces": ("gpus", "services: {web: {image: x}}\n", "c.yml:1:12", "in braces"),
    "an empty service": ("gpus", "services:\n  web:\n", "c.yml:2:3", "`web` is empty"),
    "a service of text": ("gpus", "services:\n  web: x\n", "c.yml:2:3", "not keys with values"),
    "deploy in braces": ("request", f"{WEB}    deploy: {{replicas: 1}}\n", "c.yml:4:5", "in braces"),
    "devices in brackets": ("amd", f"{WEB}    devices: [/dev/fuse]\n", "c.yml:4:5", "in brackets"),
    "variables in braces": ("runtime", f"{WEB}    environment: {{A: 1}}\n", "c.yml:4:5", "in braces"),
    "variables of nothing": ("runtime", f"{WEB}    environment:\n", "c.yml:4:5", "is empty"),
    "devices of keys": ("amd", f"{WEB}    devices:\n      a: b\n", "c.yml:4:5", "not a list"),
    "variables of null": ("runtime", f"{WEB}    environment: ~\n", "c.yml:4:5", "is empty"),
    "variables by an alias": (
        "runtime",
        f"x-e: &e\n  A: b\n{WEB}    environment: *e\n",
        "c.yml:6:5",
        "`environment` is only a name (*e)",
    ),
    "too few capabilities by a merge key": (
        "gpus",
        f"x-e: &e\n  NVIDIA_DRIVER_CAPABILITIES: video\n{WEB}    environment:\n      <<: *e\n",
        "c.yml:2:3",
        "NVIDIA_DRIVER_CAPABILITIES has another value",
    ),
    "the variable by a merge key": (
        "cdi",
        f"x-e: &e\n  NVIDIA_VISIBLE_DEVICES: all\n{WEB}    environment:\n      <<: *e\n      A: b\n",
        "c.yml:2:3",
        "the variable NVIDIA_VISIBLE_DEVICES",
    ),
    "the variable of other GPUs": (
        "request",
        f"{WEB}    environment:\n      NVIDIA_VISIBLE_DEVICES: '1'\n",
        "c.yml:5:7",
        "the variable NVIDIA_VISIBLE_DEVICES",
    ),
    "deploy by an alias": (
        "request",
        f"x-d: &d\n  replicas: 1\n{WEB}    deploy: *d\n",
        "c.yml:6:5",
        "`deploy` is only a name (*d)",
    ),
    "deploy with an anchor in use": (
        "request",
        f"{WEB}    deploy: &d\n      replicas: 1\n  other:\n    deploy: *d\n",
        "c.yml:4:5",
        "*d elsewhere would change too",
    ),
    "variables by a merge key": (
        "runtime",
        "x-b: &b\n  environment:\n    A: 1\nservices:\n  web:\n    <<: *b\n",
        "c.yml:2:3",
        "by a merge key",
    ),
    "variables by two merge keys": (
        "runtime",
        "x-a: &a\n  environment: [A]\nx-b: &b\n  <<: *a\nservices:\n  web:\n    <<: [*b]\n    image: x\n",
        "c.yml:2:3",
        "by a merge key",
    ),
    "extends": ("gpus", f"{WEB}    extends: {{service: a}}\n", "c.yml:4:5", "extends another"),
    "extends by a merge key": (
        "gpus",
        "x-b: &b\n  extends: a\nservices:\n  web:\n    <<: *b\n    image: x\n",
        "c.yml:2:3",
        "extends another",
    ),
    "a tag": ("amd", f"{WEB}    devices: !reset []\n", "c.yml:4:5", "the tag !reset"),
    "a tagged list": ("amd", f"{WEB}    devices: !override\n    - /dev/fuse\n", "c.yml:4:5", "!override"),
    "a tagged service": ("gpus", "services:\n  web: !reset\n    image: x\n", "c.yml:2:3", "!reset"),
    "another runtime": ("runtime", f"{WEB}    runtime: sysbox-runc\n", "c.yml:4:5", "another value"),
    "a runtime by variable": ("gpus", f"{WEB}    runtime: ${{R}}\n", "c.yml:4:14", "a variable is in"),
    "a device by variable": ("gpus", f"{WEB}    devices:\n    - ${{D}}\n", "c.yml:5:7", "a variable"),
    "another variable's value": (
        "wsl",
        f"{WEB}    environment:\n      LD_LIBRARY_PATH: /opt\n",
        "c.yml:5:7",
        "LD_LIBRARY_PATH has another value",
    ),
    "too few capabilities": (
        "gpus",
        f"{WEB}    environment:\n    - NVIDIA_DRIVER_CAPABILITIES=utility\n",
        "c.yml:5:7",
        "NVIDIA_DRIVER_CAPABILITIES has another value",
    ),
    "gpus": ("cdi", f"{WEB}    gpus: all\n", "c.yml:4:5", "a GPU stanza of its own: the key gpus"),
    "gpus of another number": ("gpus", f"{WEB}    gpus:\n    - count: 1\n", "c.yml:4:5", "the key gpus"),
    "the runtime": ("request", f"{WEB}    runtime: nvidia\n", "c.yml:4:5", "the runtime nvidia"),
    "a CDI name": ("request", f"{WEB}    devices:\n    - nvidia.com/gpu=0\n", "c.yml:5:7", "gpu=0"),
    "a node": ("request", f"{WEB}    devices:\n    - /dev/nvidia0\n", "c.yml:5:7", "/dev/nvidia0"),
    "a node in the long form": (
        "amd",
        f"{WEB}    devices:\n    - source: /dev/dri\n      target: /dev/dri\n",
        "c.yml:5:7",
        "/dev/dri",
    ),
    "the variable": (
        "cdi",
        f"{WEB}    environment:\n      NVIDIA_VISIBLE_DEVICES: all\n",
        "c.yml:5:7",
        "the variable NVIDIA_VISIBLE_DEVICES",
    ),
    "a stanza by a merge key": (
        "cdi",
        "x-g: &g\n  runtime: nvidia\nservices:\n  web:\n    <<: *g\n    image: x\n",
        "c.yml:2:3",
        "the runtime nvidia",
    ),
    "a reservation that a merge key makes one of GPUs": (
        "cdi",
        f"x-g: &g\n  driver: nvidia\n  capabilities: [gpu]\n{WEB}    deploy:\n      resources:\n"
        "        reservations:\n          devices:\n            - <<: *g\n              count: 1\n",
        "c.yml:11:15",
        "a reservation of GPUs",
    ),
    "an odd line end": ("gpus", f"{WEB}    # a\u2028b: c\n", "c.yml:4:8", "U+2028"),
    "an old line end": ("gpus", f"{WEB}    # a\rb: c\n", "c.yml:4:8", "U+000D"),
    "an inline mapping": ("gpus", "services:\n  ? web\n  : image: x\n", "c.yml:3:5", "begins with something"),
    "an anchor in itself": ("gpus", f"x-a: &a\n  b: *a\n{WEB}", "c.yml:1:6", "*a is in it"),
    "a merge key in itself": ("gpus", "services:\n  web: &w\n    <<: *w\n", "c.yml:2:8", "*w is in it"),
    "too much": (
        "gpus",
        "x-0: &a0 [a, a]\n"
        + "".join(f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
        + f"{WEB}    devices: *a8\n",
        "c.yml:1:1",
        "stand for too much",
    ),
    "too deep by aliases": (
        "gpus",
        "x-0: &a0 a\n"
        + "".join(f"x-{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 200))
        + f"{WEB}    devices: *a199\n",
        "c.yml:1:1",
        "too deeply",
    ),
    "too deep": ("gpus", f"{WEB}    x-a: {'[' * 500}{']' * 500}\n", "c.yml:1:1", "too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_its_place(name: str) -> None:
    stanza, text, place, words = REFUSED[name]
    error = refused(patched, text, "web", STANZAS[stanza], "c.yml")
    assert error.exit_code == Exit.ERROR
    assert words in error.brief
    assert error.brief.startswith(f"{place}: ")
    assert error.resolution


# Nearly the same, and it can be done
NEAR: dict[str, tuple[str, str]] = {
    "an anchor that nobody uses": ("gpus", "services:\n  web: &web\n    image: x\n"),
    "a merge key without our keys": ("gpus", f"{BASE}services:\n  web:\n    <<: *base\n    tty: true\n"),
    "only a merge key": ("gpus", f"{BASE}services:\n  web:\n    <<: *base\n"),
    "variables merged inside": (
        "gpus", f"x-e: &e\n  A: '1'\n{WEB}    environment:\n      <<: *e\n      B: '2'\n",
    ),
    "an anchor that others use beside": (
        "gpus", f"{WEB}    logging: &l\n      driver: none\n  other:\n    logging: *l\n",
    ),
    "another service in braces": ("gpus", f"{WEB}  other: {{image: y}}\n"),
    "a tag elsewhere": ("gpus", f"{WEB}  other:\n    image: !!str y\n"),
    "another runtime and no runtime of ours": ("gpus", f"{WEB}    runtime: sysbox-runc\n"),
    "the runtime of ours": ("runtime", f"{WEB}    runtime: nvidia\n"),
    "brackets where nothing is added": ("gpus", f"{WEB}    devices: [/dev/fuse]\n"),
    "a variable elsewhere": ("gpus", f"{WEB}    user: ${{U}}\n    volumes:\n    - ${{D}}:/d\n"),
    "a dollar that is none": ("gpus", f"{WEB}    devices:\n    - /dev/a$$b\n"),
    "another's reservation": (
        "gpus",
        f"{WEB}    deploy:\n      resources:\n        reservations:\n          devices:\n"
        "          - {driver: x, capabilities: [tpu]}\n",
    ),
    "other variables of a merge key": (
        "wsl",
        f"x-e: &e\n  A: '1'\n{WEB}    environment:\n      <<: *e\n      LD_LIBRARY_PATH: /usr/lib/wsl/lib\n",
    ),
    "an alias in two places": ("gpus", f"x-a: &a\n- b\nx-c: [*a, *a]\n{WEB}    dns: *a\n    cap_drop: *a\n"),
    "one document with its marks": ("gpus", f"---\n{WEB}...\n"),
    "the same key in two services": ("gpus", f"{WEB}  other:\n    image: x\n"),
    "include": ("gpus", f"include:\n- other.yml\n{WEB}"),
    "tabs in texts": ("gpus", "services:\n  web:\n    image: x # a\tb\n    x-a: 'b\tc'\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_the_near_miss_is_patched(name: str) -> None:
    stanza, text = NEAR[name]
    new = patched(text, "web", STANZAS[stanza], "c.yml").text
    assert new != text
    if "!!" not in text:
        assert said(new) == with_stanza(said(text), "web", STANZAS[stanza])
    assert unpatched(new, "web").text == text


def test_a_refusal_shows_the_line_and_what_to_write_by_hand() -> None:
    text = f"{WEB}    deploy: {{replicas: 1}}\n"
    error = refused(patched, text, "web", STANZAS["some"], "c.yml")
    assert (
        error.details
        == """\
It says: deploy: {replicas: 1}
What is to be added to the service:
    environment:
      NVIDIA_DRIVER_CAPABILITIES: "compute,utility"
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: ["0", "2"]
              capabilities: [gpu]"""
    )


def test_a_stanza_of_the_users_own_names_the_lines_to_take_out() -> None:
    text = (
        f"{WEB}    deploy:\n      resources:\n        reservations:\n          devices:\n"
        "            - driver: nvidia\n              count: 1\n              capabilities:\n"
        "                - gpu\n    tty: true\n"
    )
    error = refused(patched, text, "web", STANZAS["request"], "c.yml")
    assert "a reservation of GPUs" in error.brief
    assert error.resolution[0].startswith("Take out lines 8 to 11,")
    assert "GPUs by a device request (--gpus): all." in error.details


# Our part, damaged


def test_lines_of_others_in_our_part_are_not_taken_out() -> None:
    new = patched(TRAINING, "train", STANZAS["wsl"]).text
    mine = new.replace('      - "LD_LIBRARY_PATH', '      - MINE=1\n      - "LD_LIBRARY_PATH')
    assert mine != new
    for call in (lambda: unpatched(mine, "train"), lambda: patched(mine, "train", STANZAS["cdi"])):
        assert "it was changed by hand" in refused(call).brief


@pytest.mark.parametrize(("gone", "words"), [("begin", "begins it"), ("end", "ends it")])
def test_a_marker_that_is_gone(gone: str, words: str) -> None:
    new = patched(TRAINING, "train", STANZAS["gpus"]).text
    lines = new.splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if f"# dshpc gpu {gone}" in line)
    error = refused(unpatched, "".join(lines[:at] + lines[at + 1 :]), "train")
    assert words in error.brief
    assert error.exit_code == Exit.ERROR


def test_what_hangs_on_our_part_is_not_lost() -> None:
    new = patched(WEB, "web", STANZAS["wsl"]).text
    text = f"{new}      - ./mine:/mine\n"
    assert "./mine:/mine" in said(text)["services"]["web"]["volumes"]
    assert "cannot be taken out alone" in refused(unpatched, text, "web").brief


def test_our_part_moved_elsewhere_is_put_right() -> None:
    text = f"{WEB}    devices:\n    - /dev/fuse\n    volumes:\n    - a:/a\n"
    stanza = GpuStanza(devices=("nvidia.com/gpu=all",))
    new = patched(text, "web", stanza).text
    lines = new.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "nvidia.com" in line)
    part = lines[at - 1 : at + 2]
    assert "begin" in part[0]
    assert "end" in part[-1]
    moved = "".join(line for line in lines if line not in part) + "".join(part)
    assert "nvidia.com/gpu=all" in said(moved)["services"]["web"]["volumes"]
    assert patched(moved, "web", stanza).text == new


# What is spliced is proven before it is handed out: whatever goes wrong there is refused


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    image: x\n", "    image: y\n"),  # a value
        ("# mine\n", ""),  # a comment
        ("  other:\n    image: x\n", ""),  # a service
        ("gpus:\n", "gpus:\n      - driver: amd\n"),  # more than the stanza
        ("count: all", "count: 1"),  # another stanza
        (
            "    gpus:\n      - driver",
            "    tty: true\n    gpus:\n      - driver",
        ),  # a key beside it
        ("    gpus:\n", "  gpus:\n"),  # in another place
        ("    gpus:\n", "    gpus: [\n"),  # no YAML
        ("# dshpc gpu end", "# dshpc gpu"),  # no end
    ],
)
def test_a_wrong_splice_is_refused(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"# mine\n{WEB}  other:\n    image: x\n"
    right = splice.put_in
    assert patched(text, "web", STANZAS["gpus"]).text != text

    def wrong(*arguments: Any) -> str:
        made = right(*arguments)
        assert old in made
        return made.replace(old, new, 1)

    monkeypatch.setattr(splice, "put_in", wrong)
    error = refused(patched, text, "web", STANZAS["gpus"], "c.yml")
    assert error.exit_code == Exit.ERROR
    assert error.brief.startswith("c.yml:3:3: this service is written in a way")
    assert "count: all" in error.details
