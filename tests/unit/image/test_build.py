from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dshpc_setup.engine.site import SiteFiles
from dshpc_setup.errors import DshpcError
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.build import (
    LABEL,
    build,
    build_args,
    build_digest,
    choose_builder,
    command,
    compose_build,
)
from dshpc_setup.image.context import Context
from dshpc_setup.machine import CommandResult
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Silent
from tests.unit.image.fakes import FACTS, TIMEOUT, FakeMachine, ended

BASE = BaseImage("dshpc-base:trixie-amd64", "sha256:base", "local")
SITE = SiteFiles("CA", "APT", {"HTTP_PROXY": "http://me:pa55@proxy:3128"})
CONTEXT = Context(Path("/p/.dshpc/build"), "c0ffee", buildkit=True, site=SITE)
INSPECT = "/usr/bin/docker image inspect"
BUILD = "/usr/bin/docker build"
NOT_THERE = ended(code=1, stderr="Error: No such image: x")
ARGS = build_args(FakeMachine(), FACTS, Settings(), BASE, "nvidia")
DIGEST = build_digest(CONTEXT, BASE, ARGS)


def image(digest: str) -> str:
    config = {"Labels": {LABEL: digest}}
    return json.dumps({"Id": "sha256:9", "Architecture": "amd64", "Size": 7, "Config": config})


@pytest.mark.parametrize(
    ("buildx", "version", "expected"),
    [
        ("0.13.1", "Docker version 26.1.5, build x", "buildx"),
        (None, "Docker version 20.10.24, build x", "buildkit"),
        (None, "Docker version 28.2.2, build x", "classic"),
        (None, "Docker version 18.06.1", "classic"),
        (None, "podman version four", "classic"),
    ],
)
def test_builder(buildx: str | None, version: str, expected: str) -> None:
    machine = FakeMachine(replies={"/usr/bin/docker --version": [ended(version)]})
    facts = replace(FACTS, engine=replace(FACTS.engine, buildx=buildx))
    assert choose_builder(machine, facts) == expected
    podman = replace(facts, engine=replace(facts.engine, kind="podman"))
    assert choose_builder(machine, podman) == "classic"


def test_arguments() -> None:
    assert {"BASE_IMAGE": BASE.ref, "GPU_TYPE": "nvidia", "CUDA_RUNTIME": "no"} == ARGS
    machine = FakeMachine(
        files={"/etc/apt/sources.list": "deb http://m.example.org/debian bookworm main"}
    )
    pulled = BaseImage("debian:trixie-slim", "sha256:1", "pulled")
    found = build_args(machine, FACTS, Settings(), pulled, "none")
    assert found["APT_MIRROR"] == "http://m.example.org/debian"
    assert "APT_SECURITY" not in found
    machine.files["/etc/apt/sources.list"] += (
        "\ndeb http://m.example.org/security bookworm-security main"
    )
    found = build_args(machine, FACTS, Settings(), pulled, "none")
    assert found["APT_SECURITY"] == "http://m.example.org/security"
    own = Settings(apt_mirror="http://own.example.org/debian")
    assert build_args(machine, FACTS, own, BASE, "none")["APT_MIRROR"] == own.apt_mirror


def test_packages_of_another_day_are_another_image() -> None:
    renewed = build_args(
        FakeMachine(), FACTS, Settings(), BASE, "nvidia", "2026-11-23T12:00:00+00:00"
    )
    assert renewed == {**ARGS, "RENEWED": "2026-11-23T12:00:00+00:00"}
    assert build_digest(CONTEXT, BASE, renewed) != DIGEST


def test_every_input_counts_and_the_site_does_not() -> None:
    assert build_digest(replace(CONTEXT, site=SiteFiles()), BASE, ARGS) == DIGEST
    assert build_digest(replace(CONTEXT, digest="other"), BASE, ARGS) != DIGEST
    assert build_digest(CONTEXT, replace(BASE, image_id="sha256:2"), ARGS) != DIGEST
    assert build_digest(CONTEXT, BASE, {**ARGS, "GPU_TYPE": "amd"}) != DIGEST


@pytest.mark.parametrize("builder", ["buildx", "buildkit", "classic"])
def test_command(builder: str) -> None:
    machine = FakeMachine(replies={"/usr/bin/docker context show": [ended("lab\n")]})
    context = replace(CONTEXT, buildkit=builder != "classic")
    argv, env = command(machine, builder, context, "t:1", ARGS)  # type: ignore[arg-type]
    line = " ".join(argv)
    assert "pa55" not in line
    assert env["http_proxy"] == env["HTTP_PROXY"] == "http://me:pa55@proxy:3128"
    assert "--build-arg HTTP_PROXY --build-arg http_proxy" in line
    assert argv[-3:] == ["--tag", "t:1", "/p/.dshpc/build"]
    assert ("id=ca,src=/p/.dshpc/build-secrets/ca.pem" in argv) is (builder != "classic")
    assert ("buildx build --builder lab --load" in line) is (builder == "buildx")
    assert env.get("DOCKER_BUILDKIT") == {"buildkit": "1", "classic": "0"}.get(builder)
    assert "--network" not in argv


@given(st.dictionaries(st.text("ABC_", min_size=1), st.text()), st.text(min_size=1))
def test_no_value_becomes_an_option(args: dict[str, str], tag: str) -> None:
    argv, _ = command(FakeMachine(), "classic", replace(CONTEXT, site=SiteFiles()), tag, args)
    assert argv[:3] == ["/usr/bin/docker", "build", "--force-rm"]
    rest = argv[3:-3]
    assert rest[::2] == ["--build-arg"] * len(args)
    assert rest[1::2] == [f"{key}={value}" for key, value in args.items()]


def test_a_proxy_of_the_host_itself_needs_its_network() -> None:
    site = SiteFiles(proxies={"HTTP_PROXY": "http://127.0.0.1:3128"})
    context = replace(CONTEXT, site=site)
    argv, _ = command(FakeMachine(), "classic", context, "t:1", {})
    assert argv[argv.index("--network") + 1] == "host"
    assert compose_build(context, BASE, ARGS, Path("/p"))["build"]["network"] == "host"


def run(machine: FakeMachine, context: Context = CONTEXT) -> tuple[bool, str]:
    machine.replies["/usr/bin/docker --version"] = [ended("Docker version 20.10.24")]
    result = build(machine, FACTS, Settings(), BASE, context, "dshpc:nvidia", "nvidia", Silent())
    return result.built, result.id


def test_skipped_where_the_label_says_so() -> None:
    machine = FakeMachine(replies={INSPECT: [ended(image(DIGEST))]})
    assert run(machine) == (False, "sha256:9")
    assert len(machine.ran) == 1


@pytest.mark.parametrize("before", [NOT_THERE, ended(image("older"))])
def test_built(before: CommandResult) -> None:
    machine = FakeMachine(
        replies={INSPECT: [before, ended(image(DIGEST))], BUILD: [ended("Step 1/2 :")]}
    )
    assert run(machine) == (True, "sha256:9")
    assert f"DSHPC_BUILD={DIGEST}" in machine.ran[-2]


def test_a_failure_is_told_without_the_password() -> None:
    output = "Err:1 http://me:pa55@proxy:3128 x\nE: Unable to locate package slurmd\n"
    machine = FakeMachine(
        replies={INSPECT: [ended(image("older"))], BUILD: [ended(output, code=1)]}
    )
    with pytest.raises(DshpcError) as caught:
        run(machine)
    assert caught.value.exit_code == 2
    assert "lacks a package" in caught.value.brief
    assert "pa55" not in caught.value.details
    assert "slurmd" in caught.value.details
    assert "still there" in caught.value.resolution[-1]


def test_an_image_that_another_build_removed_meanwhile_is_made_once_more() -> None:
    lost = ended('Step 2/9 : RUN x\nunable to find image "sha256:0c1f"\n', code=1)
    seen = [NOT_THERE, ended(image(DIGEST))]
    assert run(FakeMachine(replies={INSPECT: [*seen], BUILD: [lost, ended()]})) == (
        True,
        "sha256:9",
    )
    machine = FakeMachine(replies={INSPECT: [NOT_THERE], BUILD: [lost, lost, ended()]})
    with pytest.raises(DshpcError, match="removed meanwhile"):
        run(machine)
    assert sum("build" in argv for argv in machine.ran) == 2


def test_a_deadline_and_a_lying_builder() -> None:
    with pytest.raises(DshpcError, match="not done within"):
        run(FakeMachine(replies={INSPECT: [NOT_THERE], BUILD: [TIMEOUT]}))
    with pytest.raises(DshpcError, match="not the image"):
        run(FakeMachine(replies={INSPECT: [NOT_THERE, ended(image("x"))], BUILD: [ended()]}))


def test_compose() -> None:
    found = compose_build(CONTEXT, BASE, ARGS, Path("/p"))
    assert found == {
        "build": {
            "context": "./.dshpc/build",
            "args": {**ARGS, "DSHPC_BUILD": DIGEST, "HTTP_PROXY": None, "http_proxy": None},
            "secrets": ["ca", "apt"],
        },
        "secrets": {
            "ca": {"file": "./.dshpc/build-secrets/ca.pem"},
            "apt": {"file": "./.dshpc/build-secrets/apt.conf"},
        },
    }
    assert "pa55" not in json.dumps(found)
    classic = compose_build(replace(CONTEXT, buildkit=False), BASE, ARGS, Path("/p"))
    assert "secrets" not in classic["build"]
    assert not classic["secrets"]  # what compose 1 would refuse
