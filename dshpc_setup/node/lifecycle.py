"""The cluster in this container: started, waited for, changed, held."""

from __future__ import annotations

import os
import signal
import sys

from dshpc_setup.node.arguments import no_arguments, own_paths, wrong_usage


def start(rest: list[str]) -> int:
    import gc

    gc.disable()  # short-lived, and the start is counted in milliseconds
    from dshpc_setup.container import start
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    return start.start(LocalMachine(), own_paths(), os.environ)


def wait(rest: list[str]) -> int:
    timeout_s = 60.0
    if rest:
        if len(rest) != 2 or rest[0] != "--timeout" or not rest[1].isdecimal():
            raise wrong_usage("dshpc-node wait takes --timeout SECONDS.")
        timeout_s = float(rest[1])
    return _print_status(timeout_s)


def status(rest: list[str]) -> int:
    no_arguments(rest)
    return _print_status(0.0)


def _print_status(timeout_s: float) -> int:
    import json

    from dshpc_setup.container import status, unclean
    from dshpc_setup.errors import Exit

    found = status.wait(own_paths(), timeout_s)
    if found is None:
        print("The start has not begun.", file=sys.stderr)
        return Exit.INCOMPLETE
    found["unclean_ends"] = unclean.told(own_paths())
    if found["phase"] == "ready":
        found["idle_gpus"] = _idle_gpus()
        found["notes"] = [*found["notes"], *_programs_that_cannot_run(), *_other_nodes()]
    print(json.dumps(found, indent=1))
    return {"ready": Exit.OK, "failed": Exit.ERROR}.get(str(found["phase"]), Exit.INCOMPLETE)


def _idle_gpus() -> list[dict[str, object]]:
    from dataclasses import asdict

    from dshpc_setup.observed import idle
    from dshpc_setup.usage import live

    return [asdict(each) for each in idle.of_kept(live.read(None))]


def _other_nodes() -> list[str]:
    from dshpc_setup.container import nodes
    from dshpc_setup.jobs import offer

    found = nodes.other_work(own_paths())
    return [
        *(offer.owners_alone(node, owner) for node, owner in nodes.owned(own_paths()).items()),
        *(offer.other_work(node, carries=carries) for node, carries in found.items()),
    ]


def _programs_that_cannot_run() -> list[str]:
    """A sentence for each; only a slurm.conf that names one of the user's is taken apart."""
    import re

    from dshpc_setup.files.storage import read_text

    paths = own_paths()
    theirs = r"(?im)^\s*\w*(?:prolog|epilog|healthcheckprogram)\w*\s*=(?!/usr/bin/true|/usr/local/lib/dshpc/)"
    try:
        text = read_text(f"{paths.etc_slurm}/slurm.conf") or ""
    except OSError:
        return []
    if re.search(theirs, text) is None:
        return []
    from dshpc_setup.container import observe, programs

    return [
        f"{programs.told(each)}. {programs.then(each.key)} What helps: dshpc doctor"
        for each in observe.unusable_programs(paths)
    ]


def health(rest: list[str]) -> int:
    no_arguments(rest)
    os.execv("/usr/local/lib/dshpc/health", ["health"])


def reconfigure(rest: list[str]) -> int:
    from dshpc_setup.container import reconfigure
    from dshpc_setup.jobs.stopping import STOPS
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    try:
        return reconfigure.reconfigure(LocalMachine(), own_paths(), os.environ)
    finally:
        for number in STOPS:  # what comes now ends nothing: who sent it reads our exit code
            signal.signal(number, signal.SIG_IGN)


def check(rest: list[str]) -> int:
    from dshpc_setup.container import would_start
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    return would_start.would_start(LocalMachine(), own_paths(), os.environ)


def rotate_key(rest: list[str]) -> int:
    from dshpc_setup.container import keys
    from dshpc_setup.machine.local import LocalMachine

    no_arguments(rest)
    return keys.rotate(LocalMachine(), own_paths())


def hold(rest: list[str]) -> int:
    from dshpc_setup.container import hold
    from dshpc_setup.machine.local import LocalMachine

    verbs = {"begin": hold.begin, "renew": hold.renew, "end": hold.end, "watch": hold.watch}
    if len(rest) != 1 or rest[0] not in verbs:
        raise wrong_usage("dshpc-node hold takes begin, renew, end or watch.")
    verbs[rest[0]](LocalMachine(), own_paths())
    return 0


_NOTHING_TO_DO_S = 3600


def longest_wait(rest: list[str]) -> int:
    from dshpc_setup.container import longest_wait
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import texts
    from dshpc_setup.settings.declarations import BY_NAME
    from dshpc_setup.slurm.paths import Paths

    no_arguments(rest)
    setting = BY_NAME["longest_wait"]
    text = texts.wait(os.environ.get(setting.env) or setting.default)
    if text == "none":
        print(_NOTHING_TO_DO_S)  # the service is started anew where the setting changes
        return 0
    print(round(longest_wait.tend(LocalMachine(), Paths(), texts.seconds(text)), 1))
    return 0
