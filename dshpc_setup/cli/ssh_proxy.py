"""`dshpc ssh-proxy NAME`: the ProxyCommand of ssh, with the job that the name asks for at its other end.

A job that has a listener is entered by its socket, where a home of this machine has it, or by one call of
the engine, and nothing is asked before it: imports are counted here (benchmarks/ssh.py). Where there is none
yet, the job is found, or submitted and waited for.
"""

from __future__ import annotations

import os

from dshpc_setup.cli import exec as execution
from dshpc_setup.cli import exec_caller, exec_stdin
from dshpc_setup.cli.ssh_stream import Stream, as_one, hung_up
from dshpc_setup.ssh import enter, names, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

LINGER = "15m"
_WAIT_S = 366 * 86400.0  # for a job that is queued
_CA_S = 80.0
_VOLUMES = (
    "/var/lib/docker/volumes"  # root enters them alone; where they are elsewhere, the exec serves
)


def parsed(arguments: Sequence[str]) -> Line | None:
    """A well-formed line; else None: ask typer."""
    from dshpc_setup.cli.plain_line import Options, read

    known = Options({"--srun": "by_srun"}, {"--dir": "dir", "--linger": "linger", "--keys": "keys"})
    found = read(arguments, known)
    if found is None or len(found[1]) != 1:
        return None
    options, (name,) = found
    return Line(name, **options)


class Line:
    """What was asked: a host's name, and how."""

    def __init__(
        self,
        name: str,
        *,
        dir: str | None = None,  # noqa: A002
        linger: str = LINGER,
        keys: str | None = None,
        by_srun: bool = False,
    ) -> None:
        self.name, self.dir, self.linger = name, dir, linger
        self.keys, self.by_srun = keys, by_srun


def carry_out(line: Line) -> int:
    """Join stdin and stdout to the job; raises DshpcError where there is none to be had."""
    wanted = names.parse(line.name)
    environ = os.environ if line.dir is None else {**os.environ, "DSHPC_DIR": line.dir}
    runtime = execution.runtime(environ)
    if not line.by_srun and (code := _at_hand(runtime, wanted.name)) is not None:
        return code
    stream = Stream()
    if not line.by_srun:
        code = _joined(stream, runtime, [place.ENTER, wanted.name])
        if code != place.NONE_THERE:
            return code
    stream.hang_up = True
    with as_one():
        words = _found(line, wanted)
    stream.hang_up = False
    code = _joined(stream, runtime, words)
    if code != place.NONE_THERE:
        return code
    from dshpc_setup.errors import DshpcError

    raise DshpcError(
        f"The job of {wanted.name} runs, and takes no connection.",
        "",
        ("Find its number: dshpc job list", "See what it says: dshpc job logs NUMBER"),
    )


def _at_hand(runtime: dict[str, Any], name: str) -> int | None:
    """By the socket in the home, where that is one of this machine's; None where that is not to be had."""
    uid, prefix = os.geteuid(), str(runtime.get("prefix"))
    if exec_caller.calling_user(os.environ)[0] != uid:
        return None
    home = exec_caller.own_home(runtime, uid)
    if home is not None:
        folder = place.in_home(home, prefix)
    elif uid == 0 and "engine" not in runtime:
        folder = place.in_volume(f"{_VOLUMES}/{prefix}-home/_data/root")
    else:
        return None
    with hung_up():
        return enter.at_hand(folder, name, say=os.isatty(2))


def _joined(stream: Stream, runtime: dict[str, Any], words: list[str]) -> int:
    """The exit code; raises DshpcError where the cluster does not run."""
    say = ["--say"] if os.isatty(2) else []
    call = execution.Call("exec", [*words, *say], runtime)
    call.mode = exec_stdin.DIRECT
    call.folder = call.work
    try:
        code = stream.run(
            call.client(exec_caller.calling_user(os.environ), os.environ),
            in_pieces=words[0] == "srun",
        )
    except OSError as error:
        from dshpc_setup.cli.exec_trouble import no_client

        raise no_client(call.engine.program[0], str(error)) from None
    if code not in (0, place.NONE_THERE):
        from dshpc_setup.cli.exec_trouble import explain

        explain(call, code, folder_said=True)
        execution.say(f"the way to the job ended with {code}.")
    return code


def _found(line: Line, wanted: names.Wanted) -> list[str]:
    """The words that enter the job, which is submitted and waited for where there is none."""
    from dataclasses import replace
    from pathlib import Path

    from dshpc_setup.cli.job_request import ask, cluster
    from dshpc_setup.jobs import request_building
    from dshpc_setup.jobs.request_building import CommandLine
    from dshpc_setup.jobs.staging import Incoming
    from dshpc_setup.ssh import own_keys
    from dshpc_setup.ssh.inside import Asked

    here = cluster(line.dir)
    linger_s = seconds(line.linger)
    request = None
    if wanted.job is None:
        is_gpu = wanted.kind == "gpu"
        asked_for = CommandLine(
            name=f"ssh-{wanted.name}",
            command=(place.LISTEN, f"--name={wanted.name}", f"--linger={linger_s}"),
            gpus=(wanted.count or "1") if is_gpu else None,
            gpu_type=wanted.gpu_type,
            cpus=wanted.cpus if is_gpu else wanted.count,
            memory=wanted.memory,
            time=wanted.time,
        )
        incoming = Incoming(here.work, here.owner, False, here.prepare, here.also)
        # In its workspace, wherever ssh was typed
        request = replace(request_building.of_command(asked_for, incoming), cwd=None)
    keys = own_keys.public(Path(line.keys) if line.keys else own_keys.of_account())
    asked = Asked(wanted.name, linger_s, keys, request=request, by_srun=line.by_srun)
    answer = ask(here.runtime, "ssh", asked, deadline_s=_WAIT_S)
    if "certify" in answer:
        said = ca(here.runtime, str(answer["certify"]))
        asked = replace(asked, certificate=said["certificate"], ca=said["ca"])
        answer = ask(here.runtime, "ssh", asked, deadline_s=_WAIT_S)
    return [str(word) for word in answer["enter"]]


def seconds(text: str) -> float:
    """Raises DshpcError (usage)."""
    from dshpc_setup.errors import usage_error
    from dshpc_setup.methods import times

    found = times.seconds(text)
    if not found:
        raise usage_error(f"--linger {text!r} is not a time.", f"Times are: {times.FORMS}")
    return float(found)


def ca(runtime: dict[str, Any], key: str = "") -> dict[str, Any]:
    """What `dshpc-node ssh-certify` says, as the container's root; DshpcError where it does not."""
    from dshpc_setup.cli import exec_trouble, job_trouble
    from dshpc_setup.documents import foreign
    from dshpc_setup.errors import DshpcError, Exit
    from dshpc_setup.machine.local import LocalMachine

    call = execution.Call(execution.NODE, ["ssh-certify"], runtime)
    user = (str(part) for part in exec_caller.calling_user(os.environ))
    words = call.engine.run_in(
        call.container, "dshpc-node", "ssh-certify", *user, stdin=True, folder="/"
    )
    done = LocalMachine().run(words, deadline_s=_CA_S, stdin=key)
    if done.ok:
        try:
            return dict(foreign.value(done.stdout))
        except (ValueError, TypeError):
            pass
    if done.state == "absent":
        raise exec_trouble.no_client(call.engine.program[0], done.text)
    exec_trouble.explain(call, done.code or 1, folder_said=True)
    if done.code == Exit.USAGE:
        raise job_trouble.older(done.text)
    raise DshpcError(
        "The cluster did not certify your host key.", done.text or done.state,
        ("See its state: dshpc status",), Exit.INCOMPLETE,
    )  # fmt: skip
