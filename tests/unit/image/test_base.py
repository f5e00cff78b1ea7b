from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import Engine, Platform
from dshpc_setup.image import debootstrap, own_base
from dshpc_setup.image.base import ensure_base, find_base, local_tag, replaceable
from dshpc_setup.image.mirror import Mirror
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.unit.image.fakes import FACTS, TIMEOUT, FakeMachine, ended

NOT_THERE = ended(code=1, stderr="Error: No such image: x")
INSPECT = "/usr/bin/docker image inspect --format {{json .}}"
PULL = "/usr/bin/docker pull --platform linux/amd64"


def image(arch: str = "amd64") -> str:
    return json.dumps(
        {"Id": "sha256:1", "Architecture": arch, "Size": 5, "Config": {"Labels": None}}
    )


def test_what_is_there_wins() -> None:
    machine = FakeMachine(replies={f"{INSPECT} debian:trixie-slim": [ended(image())]})
    base = ensure_base(machine, FACTS, Settings(), Silent())
    assert (base.ref, base.image_id, base.origin) == ("debian:trixie-slim", "sha256:1", "local")


def test_our_own_base_is_found_without_asking_a_registry() -> None:
    machine = FakeMachine(
        replies={
            f"{INSPECT} debian:trixie-slim": [NOT_THERE],
            f"{INSPECT} dshpc-base:trixie-amd64": [ended(image())],
        }
    )
    base = ensure_base(machine, FACTS, Settings(), Silent())
    assert (base.ref, base.origin) == ("dshpc-base:trixie-amd64", "local")
    assert not any("pull" in argv for argv in machine.ran)


def test_pulled_where_the_local_one_is_of_another_processor() -> None:
    machine = FakeMachine(
        replies={
            f"{INSPECT} debian:trixie-slim": [ended(image("arm64")), ended(image())],
            f"{INSPECT} dshpc-base": [NOT_THERE],
            PULL: [ended("trixie-slim: Pulling from library/debian")],
        }
    )
    assert ensure_base(machine, FACTS, Settings(), Silent()).origin == "pulled"


def test_a_slow_registry_gets_time_and_a_silent_one_does_not() -> None:
    slow = FakeMachine(
        replies={
            f"{INSPECT} mine:1": [NOT_THERE, ended(image())],
            PULL: [replace(TIMEOUT, stdout="1: Pulling from mine"), ended("Digest: x")],
        }
    )
    settings = Settings(base_image="mine:1")
    assert ensure_base(slow, FACTS, settings, Silent()).origin == "pulled"
    silent = FakeMachine(replies={f"{INSPECT} mine:1": [NOT_THERE], PULL: [TIMEOUT]})
    with pytest.raises(DshpcError) as caught:
        ensure_base(silent, FACTS, settings, Silent())
    assert sum("pull" in argv for argv in silent.ran) == 1
    assert "did not answer" in caught.value.details
    assert "--base-image" in " ".join(caught.value.resolution)


def test_an_engine_that_does_not_answer_is_no_missing_image() -> None:
    machine = FakeMachine(
        replies={INSPECT: [ended(code=1, stderr="Cannot connect to the Docker daemon")]}
    )
    with pytest.raises(DshpcError) as caught:
        find_base(machine, FACTS, Settings())
    assert "Cannot connect" in caught.value.details


def test_a_refusal_to_install_debootstrap_says_what_else_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The made-up machine asks in this process, which would be in the trial's namespaces from then on
    monkeypatch.setattr(own_base, "find_ids", lambda *_: None)
    machine = FakeMachine(
        replies={
            INSPECT: [NOT_THERE],
            PULL: [ended(code=1, stderr="dial tcp: lookup registry: no such host")],
            "apt-config": [ended()],
        },
        missing=("debootstrap",),
    )
    with pytest.raises(DshpcError) as caught:
        ensure_base(machine, FACTS, Settings(), Silent(answer=False))
    assert "debootstrap and debian-archive-keyring" in caught.value.details
    assert any("docker load" in step for step in caught.value.resolution)


@pytest.mark.parametrize(
    ("system", "platform_arch", "engine_arch"),
    [
        (("Darwin", "24", "arm64"), "arm64", "aarch64"),  # a Mac
        (("Linux", "6", "x86_64"), "x86_64", "aarch64"),  # an engine elsewhere
    ],
)
def test_where_debootstrap_cannot_work(
    system: tuple[str, str, str], platform_arch: str, engine_arch: str
) -> None:
    facts = replace(
        FACTS,
        platform=Platform("linux", arch=platform_arch),
        engine=Engine("present", arch=engine_arch),
    )
    with pytest.raises(DshpcError) as caught:
        debootstrap.recipe(
            FakeMachine(system=system), facts, None, SiteFiles(), Silent(), interactive=False
        )
    assert "debootstrap needs Linux on arm64" in caught.value.details


def test_an_unknown_processor() -> None:
    facts = replace(FACTS, engine=Engine("present", arch="riscv64"))
    with pytest.raises(DshpcError, match="riscv64"):
        find_base(FakeMachine(), facts, Settings())


def test_the_signature_is_always_checked() -> None:
    for mirror, script in ((None, ""), (Mirror("http://m/debian"), ""), (None, "/s/sid")):
        plan = debootstrap.Recipe("arm64", "/k.gpg", mirror, SiteFiles(), script)
        arguments = plan.arguments("/w/root")
        assert "--force-check-gpg" in arguments
        assert "--keyring=/k.gpg" in arguments
        assert "--arch=arm64" in arguments
        positional = [item for item in arguments if not item.startswith("--")]
        main = [mirror.main if mirror else ""] if mirror or script else []
        assert positional == ["trixie", "/w/root", *main, *([script] if script else [])]


def test_names() -> None:
    assert local_tag("arm64") == "dshpc-base:trixie-arm64"
    for name in ("debian:trixie-slim", "debian:13", "docker.io/library/debian:13.1-slim"):
        assert replaceable(name)
    for name in ("debian:bookworm-slim", "ubuntu:24.04", "corp/debian:trixie", "debian"):
        assert not replaceable(name)


FULL = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 9 9 {} 1% /tmp\n"


def test_no_room_says_where_was_looked() -> None:
    machine = FakeMachine(
        replies={
            "df -Pk /scratch": [ended(FULL.format(1024 * 100))],
            "df -Pk /var/tmp": [ended(code=1, stderr="df: /var/tmp: No such file or directory")],
            "df -Pk /tmp": [ended(FULL.format(1024 * 9000))],
            "findmnt -no OPTIONS -T /tmp": [ended("rw,nosuid,nodev,noexec\n")],
        },
        env={"TMPDIR": "/scratch"},
    )
    plan = debootstrap.Recipe("amd64", "/k", None, SiteFiles())
    with (
        pytest.raises(DshpcError) as caught,
        debootstrap.archive(machine, plan, Silent(), interactive=False),
    ):
        pass
    assert caught.value.details.splitlines() == [
        "/scratch: only 100 MiB are free",
        "/var/tmp: df: /var/tmp: No such file or directory",
        "/tmp: mounted with nodev and noexec",
    ]
