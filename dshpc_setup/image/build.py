"""Building the image with whichever builder is there, and not building it where nothing changed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dshpc_setup.engine import build_failures
from dshpc_setup.engine.images import Image, client_version, context_name, docker, inspect
from dshpc_setup.engine.tools import refuse_silent
from dshpc_setup.errors import DshpcError
from dshpc_setup.facts import HostFacts
from dshpc_setup.image.base import BaseImage
from dshpc_setup.image.context import Context
from dshpc_setup.image.mirror import mirror_for
from dshpc_setup.machine import CommandResult, Machine
from dshpc_setup.settings import Settings
from dshpc_setup.terminal.reporter import Reporter

# buildx: the plugin; buildkit: in the client itself (18.09 to 22); classic: the old builder
Builder = Literal["buildx", "buildkit", "classic"]

LABEL = "org.dshpc.build"
_BUILD_S = 3600.0


@dataclass(frozen=True)
class ImageResult:
    """`built` is False where the image was there already; `size` in bytes; `replaced`: the id of the one
    that had its name before."""

    id: str
    built: bool
    size: int
    ms: float
    replaced: str | None = None


def choose_builder(machine: Machine, facts: HostFacts) -> Builder:
    """The best builder of this client; `write_context` wants to know whether it is BuildKit.

    Raises DshpcError (INCOMPLETE) where the client did not answer: another builder would have been
    tried for nothing, or would have made another image.
    """
    if facts.engine.kind == "podman":
        return "classic"  # its Docker API has no BuildKit session, which secrets need
    if facts.engine.buildx:
        return "buildx"
    refuse_silent(facts, "buildx")
    return "buildkit" if (18, 9) <= client_version(machine) < (23, 0) else "classic"


def build_args(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    base: BaseImage,
    gpu_type: str,
    renewed: str = "",
) -> dict[str, str]:
    """The build arguments that make the image what it is; none of them is a secret."""
    args = {
        "BASE_IMAGE": base.ref,
        "GPU_TYPE": gpu_type,
        "CUDA_RUNTIME": settings.cuda_runtime,
    }
    if renewed:
        args["RENEWED"] = renewed
    # A base of our own making knows its mirror.
    if not base.ref.startswith("dshpc-base:") or settings.apt_mirror:
        mirror = mirror_for(machine, facts.platform.os_id, settings.apt_mirror)
        if mirror is not None:
            args["APT_MIRROR"] = mirror.main
            if mirror.security is not None:
                args["APT_SECURITY"] = mirror.security
    return args


def build_digest(context: Context, base: BaseImage, args: Mapping[str, str]) -> str:
    """What the image is made of, as its label says it. The site's certificates and proxies do not
    count: they say how packages are fetched, nothing of them stays, and a hash of a short password
    could be guessed."""
    what = json.dumps([context.digest, base.image_id, sorted(args.items())])
    return hashlib.sha256(what.encode()).hexdigest()


def build(
    machine: Machine,
    facts: HostFacts,
    settings: Settings,
    base: BaseImage,
    context: Context,
    tag: str,
    gpu_type: str,
    reporter: Reporter,
) -> ImageResult:
    """The image under `tag`, built where its label does not say that it is this one already.

    The tag moves when the new image is whole, so that an earlier one stays in use until then.
    Raises DshpcError with what went wrong; Ctrl-C ends the builder.
    """
    started = machine.clock()
    args = build_args(machine, facts, settings, base, gpu_type, context.renewed)
    digest = build_digest(context, base, args)
    there = inspect(machine, tag)
    if there is not None and there.labels.get(LABEL) == digest:
        return _result(machine, there, started, built=False)
    builder = choose_builder(machine, facts) if context.buildkit else "classic"
    argv, env = command(machine, builder, context, tag, {**args, "DSHPC_BUILD": digest})
    result = _run(machine, argv, env, reporter)
    if not result.ok and build_failures.reason(result.text).name == build_failures.REMOVED:
        result = _run(machine, argv, env, reporter)
    if not result.ok:
        raise _failed(result, context, kept=there is not None)
    made = inspect(machine, tag)
    if made is None or made.labels.get(LABEL) != digest:
        raise DshpcError(
            f"The builder ended without an error, but {tag} is not the image it should be.",
            f"Its label {LABEL} is {made.labels.get(LABEL) if made else None}, not {digest}.",
            ("See whether another build writes the same tag; then run again.",),
        )
    result_of = _result(machine, made, started, built=True)
    return replace(result_of, replaced=there.id) if there is not None else result_of


def _result(machine: Machine, image: Image, started: float, *, built: bool) -> ImageResult:
    return ImageResult(image.id, built, image.size, round((machine.clock() - started) * 1000, 1))


def command(
    machine: Machine, builder: Builder, context: Context, tag: str, args: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The builder's command line and environment; no secret stands in the former."""
    env = {"LC_ALL": "C", **context.site.proxy_env()}
    if builder == "buildx":
        # The builder of the context: a builder in a container would not see the local base image.
        argv = [docker(machine), "buildx", "build", "--builder", context_name(machine), "--load"]
        env["BUILDX_NO_DEFAULT_ATTESTATIONS"] = "1"  # the image alone, without an index around it
    else:
        argv = [docker(machine), "build"]
        env["DOCKER_BUILDKIT"] = "1" if builder == "buildkit" else "0"
    if builder == "classic":
        argv += ["--force-rm"]  # no container stays behind when a step fails
    else:
        argv += ["--progress", "plain"]
        for name, path in context.secrets.items():
            argv += ["--secret", f"id={name},src={path}"]
    if context.site.uses_loopback():
        argv += ["--network", "host"]  # a proxy on 127.0.0.1 is the host's
    for key, value in args.items():
        argv += ["--build-arg", f"{key}={value}"]
    for key in context.site.proxy_env():
        argv += ["--build-arg", key]  # without a value: taken from the environment
    return [*argv, "--tag", tag, str(context.folder)], env


def _run(
    machine: Machine, argv: list[str], env: Mapping[str, str], reporter: Reporter
) -> CommandResult:
    progress = build_failures.Progress()
    reporter.progress("image: sending the files to the engine")

    def show(line: str) -> None:
        text = progress.line(line)
        if text:
            reporter.progress(f"image: {text}")

    return machine.run(argv, deadline_s=_BUILD_S, env=env, on_line=show)


def _failed(result: CommandResult, context: Context, *, kept: bool) -> DshpcError:
    text = build_failures.redacted(build_failures.tail(result.text), context.site.secrets)
    after = ("The image of an earlier run is still there and in use.",) if kept else ()
    if result.state == "timeout":
        return DshpcError(
            f"Building the image was not done within {_BUILD_S / 60:.0f} minutes.",
            text,
            ("See how fast the package mirror answers; --apt-mirror URL names another.", *after),
        )
    reason = build_failures.reason(result.text)
    return DshpcError(f"Building the image failed: {reason.brief}.", text, (*reason.steps, *after))


def compose_build(
    context: Context, base: BaseImage, args: Mapping[str, str], project: Path
) -> dict[str, Any]:
    """`{"build": ..., "secrets": ...}` for a compose file.

    A later `docker compose build` in `project` then makes the same image: arguments, label and
    site files are the same. Proxies stand there by name alone and come from the
    environment. Compose 1.29 refuses `build.secrets`: its context is for the old builder, which has none.
    """

    def relative(path: Path) -> str:
        return f"./{os.path.relpath(path, project)}"

    build_args: dict[str, str | None] = {
        **args,
        "DSHPC_BUILD": build_digest(context, base, args),
        **dict.fromkeys(context.site.proxy_env()),
    }
    build: dict[str, Any] = {"context": relative(context.folder), "args": build_args}
    if context.site.uses_loopback():
        build["network"] = "host"
    if context.secrets:
        build["secrets"] = list(context.secrets)
    return {
        "build": build,
        "secrets": {name: {"file": relative(path)} for name, path in context.secrets.items()},
    }
