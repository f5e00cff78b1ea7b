"""`dshpc-node`: what is run in the container by its entrypoint and by the host."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.slurm.paths import Paths

_HELP = """usage: dshpc-node COMMAND [ARGUMENT...]

  start                         Start the cluster in this container: its entrypoint
  wait [--timeout SECONDS]      Wait until it is ready (exit code 0) or has failed (2); 3 in between
  status                        Show how the start went, as a JSON object
  health                        Check that Slurm answers: the container's health check
  doctor [-v|--json]            Find what is wrong, and show why and how to fix it
  reconfigure                   Detect, render and check again, while jobs keep running
  rotate-key                    Make a new key for the cluster, while jobs keep running
  saved-state check             Check that slurmctld can read the queue that it has saved
  saved-state restore|give-up   Replace a queue that it cannot read by a copy, or by an empty one
  longest-wait                  Let jobs that have waited for longest_wait come first: a service calls it
  help                          Show this

For the dshpc command on the host:
  observe                       Print what `dshpc doctor` asks, as a JSON object
  check                         Try whether a start here would succeed; print a JSON object
  add-user UID GID NAME [HOME]  Make a user of the host known here
  add-ground WORK UID GID       Make the folder of a user's workspaces
  forget-node NODE              Make the cluster forget a node that has left it
  join-about                    Print Slurm's version and its user, as JSON
  give-key                      Print what a machine that joins is given, as JSON: the key is in it
  take-key                      Take that, from stdin
  collect-offers                Write down what nodes on other machines offer; print their names
  ssh-certify UID GID NAME      Certify the host key of a user's sessions, read from stdin
  use [--live]                  Print what jobs have used, or those that run, as JSON
  metrics                       Print what slurmctld says of jobs and nodes, as JSON
  sample-use                    Watch the GPUs that jobs hold: the service `use`
  job VERB ...                  Answer `dshpc job`, `dshpc run`, `dshpc method run` and `dshpc workflow`"""


def main(arguments: list[str]) -> int:
    """The exit code; each command imports only what it needs."""
    from dshpc_setup.errors import DshpcError, Exit
    from dshpc_setup.terminal.sanitize import harmless

    name, *rest = arguments or ["help"]
    if name != "job":  # which runs as a user of the host, with his
        os.umask(0o022)
    command = _COMMANDS.get(name)
    if command is None:
        print(f"There is no command {name!r}.\n{_HELP}", file=sys.stderr)
        return Exit.USAGE
    try:
        return command(rest)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except DshpcError as error:
        if name == "job":
            from dshpc_setup.terminal.command_names import print_error

            print_error(error)
            return int(error.exit_code)
        if name == "rotate-key" and _for_host():
            import json

            print(json.dumps(error.to_object()))
            return int(error.exit_code)
        print(harmless(error.brief), file=sys.stderr)
        for line in (*error.details.splitlines(), *_steps(name, error)):
            print(f"  {harmless(line)}", file=sys.stderr)
        return int(error.exit_code)


def _paths() -> Paths:
    from dshpc_setup.slurm.paths import Paths

    if os.environ.get("DSHPC_ROLE") != "worker":
        return Paths()
    return Paths(worker=os.environ.get("DSHPC_NODE", ""))


def _for_host() -> bool:
    """Whether it is the host's dshpc that asks."""
    from dshpc_setup.slurm.paths import FROM_HOST

    return FROM_HOST.partition("=")[0] in os.environ


def _steps(name: str, error: DshpcError) -> tuple[str, ...]:
    """What to do, in the commands of who asked: the host's dshpc, or a person in the container."""
    if name not in ("reconfigure", "rotate-key") or _for_host():
        return error.resolution
    from dshpc_setup.node import typed_inside

    return typed_inside.steps(error)


def _start(rest: list[str]) -> int:
    import gc

    gc.disable()  # short-lived, and the start is counted in milliseconds
    from dshpc_setup.container import start
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    return start.start(LocalMachine(), _paths(), os.environ)


def _wait(rest: list[str]) -> int:
    timeout_s = 60.0
    if rest:
        if len(rest) != 2 or rest[0] != "--timeout" or not rest[1].isdecimal():
            raise _usage("dshpc-node wait takes --timeout SECONDS.")
        timeout_s = float(rest[1])
    return _print_status(timeout_s)


def _status(rest: list[str]) -> int:
    _no_arguments(rest)
    return _print_status(0.0)


def _print_status(timeout_s: float) -> int:
    import json

    from dshpc_setup.container import status, unclean
    from dshpc_setup.errors import Exit

    found = status.wait(_paths(), timeout_s)
    if found is None:
        print("The start has not begun yet.", file=sys.stderr)
        return Exit.INCOMPLETE
    found["unclean_ends"] = unclean.told(_paths())
    if found["phase"] == "ready":
        found["idle_gpus"] = _idle_gpus()
        found["notes"] = [*found["notes"], *_programs_that_cannot_run()]
    print(json.dumps(found, indent=1))
    return {"ready": Exit.OK, "failed": Exit.ERROR}.get(str(found["phase"]), Exit.INCOMPLETE)


def _idle_gpus() -> list[dict[str, object]]:
    from dataclasses import asdict

    from dshpc_setup.observed import idle
    from dshpc_setup.usage import live

    return [asdict(each) for each in idle.of_kept(live.read(None))]


def _programs_that_cannot_run() -> list[str]:
    """A sentence for each; only a slurm.conf that names one of the user's is taken apart."""
    import re

    from dshpc_setup.files.storage import read_text

    paths = _paths()
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


def _health(rest: list[str]) -> int:
    _no_arguments(rest)
    os.execv("/usr/local/lib/dshpc/health", ["health"])


def _observe(rest: list[str]) -> int:
    import gc

    gc.disable()  # short-lived
    import json

    from dshpc_setup.container import observe
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    print(json.dumps(observe.to_json(observe.observe(LocalMachine(), _paths(), os.environ))))
    return 0


def _doctor(rest: list[str]) -> int:
    """Without typer, which is not in the image."""
    from dshpc_setup.checkup import examine
    from dshpc_setup.cli import checking
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.node import typed_inside

    if any(word.partition("=")[0] in ("--bundle", "--fix") for word in rest):
        raise _usage(
            "A report is made, and repairs are done, on the host: dshpc doctor --bundle FILE.tar.gz, dshpc "
            "doctor --fix. They ask this container as well."
        )
    if set(rest) - {"-v", "--verbose", "--json"}:
        raise _usage("dshpc-node doctor takes -v, --verbose or --json.")
    asked = checking.DoctorOptions(
        json="--json" in rest, verbose=bool({"-v", "--verbose"} & set(rest))
    )
    checks = checking.checks_of(asked)
    report = checking.report_of(asked, examine(LocalMachine(), None), checks)
    return checking.show(asked, typed_inside.report(report))


def _add_user(rest: list[str]) -> int:
    from dshpc_setup.container import accounts, users

    if len(rest) not in (3, 4):
        raise _usage("dshpc-node add-user takes UID GID NAME and maybe HOME.")
    users.add(_paths(), accounts.checked(*rest))
    return 0


def _add_ground(rest: list[str]) -> int:
    from dshpc_setup.container import users

    if len(rest) != 3:
        raise _usage("dshpc-node add-ground takes WORK UID GID.")
    users.add_ground(_paths(), *rest)
    return 0


def _forget_node(rest: list[str]) -> int:
    from dshpc_setup.container import nodes

    if len(rest) != 1:
        raise _usage("dshpc-node forget-node takes NODE.")
    nodes.forget(_paths(), *rest)
    return 0


def _join_about(rest: list[str]) -> int:
    import json

    from dshpc_setup import codec
    from dshpc_setup.container import joining
    from dshpc_setup.container.run import slurm_user
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    found = joining.about(LocalMachine(), slurm_user()[0])
    print(json.dumps(codec.to_json(found, joining.ABOUT_SCHEMA)))
    return 0


def _give_key(rest: list[str]) -> int:
    import json

    from dshpc_setup import codec
    from dshpc_setup.container import joining

    _no_arguments(rest)
    print(json.dumps(codec.to_json(joining.give(_paths()), joining.KEY_SCHEMA)))
    return 0


def _take_key(rest: list[str]) -> int:
    from dshpc_setup.container import joining
    from dshpc_setup.container.run import slurm_user

    _no_arguments(rest)
    changed = joining.take(_paths(), slurm_user(), joining.read_stdin())
    print("changed" if changed else "ok")
    return 0


def _collect_offers(rest: list[str]) -> int:
    from dshpc_setup.container import far
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    for name in far.collect(LocalMachine(), _paths()):
        print(name)
    return 0


def _reconfigure(rest: list[str]) -> int:
    from dshpc_setup.container import reconfigure
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    return reconfigure.reconfigure(LocalMachine(), _paths(), os.environ)


def _check(rest: list[str]) -> int:
    from dshpc_setup.container import would_start
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    return would_start.would_start(LocalMachine(), _paths(), os.environ)


def _rotate_key(rest: list[str]) -> int:
    from dshpc_setup.container import keys
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    return keys.rotate(LocalMachine(), _paths())


def _saved_state(rest: list[str]) -> int:
    from dshpc_setup.container import saved_state, state_trial
    from dshpc_setup.container.run import slurm_user
    from dshpc_setup.files.storage import read_text
    from dshpc_setup.machine.local import LocalMachine

    paths = _paths()
    text = read_text(f"{paths.etc_slurm}/slurm.conf") or ""
    refuses = state_trial.in_force(LocalMachine(), paths)
    match rest:
        case ["check"]:
            saved_state.check_whole(paths, text, refuses)
        case ["restore" | "give-up" as choice]:
            print(saved_state.repair(paths, choice, text, slurm_user(), refuses))
        case _:
            raise _usage("dshpc-node saved-state takes check, restore or give-up.")
    return 0


def _longest_wait(rest: list[str]) -> int:
    from dshpc_setup.container import longest_wait
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import texts
    from dshpc_setup.settings.declarations import BY_NAME
    from dshpc_setup.slurm.paths import Paths

    _no_arguments(rest)
    setting = BY_NAME["longest_wait"]
    text = texts.wait(os.environ.get(setting.env) or setting.default)
    longest_s = float("inf") if text == "none" else texts.seconds(text)
    print(round(longest_wait.tend(LocalMachine(), Paths(), longest_s), 1))
    return 0


def _ssh_certify(rest: list[str]) -> int:
    import json

    from dshpc_setup.container import ssh_ca
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.slurm.paths import Paths

    match rest:
        case [uid, gid, name]:
            caller = (uid, gid, name)
        case _:
            raise _usage("dshpc-node ssh-certify takes UID GID NAME.")
    said = ssh_ca.certify(LocalMachine(), Paths(), caller, sys.stdin.read(4096))
    print(json.dumps(said))
    return 0


def _sample_use(rest: list[str]) -> int:
    import gc

    from dshpc_setup.container import use_sampler
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import load
    from dshpc_setup.slurm.paths import Paths

    _no_arguments(rest)
    machine = LocalMachine()
    gc.freeze()  # each sample is a fork: what is never looked at again stays shared
    use_sampler.main(machine, Paths(), load(env=dict(os.environ)))
    return 0


def _metrics(rest: list[str]) -> int:
    from dshpc_setup.container import metrics_answer
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    metrics_answer.tell(LocalMachine())
    return 0


def _use(rest: list[str]) -> int:
    from dshpc_setup.container import use_answer

    if rest not in ([], ["--live"]):
        raise _usage("dshpc-node use takes --live.")
    use_answer.tell(live_only=bool(rest))
    return 0


def _job(rest: list[str]) -> int:
    from dshpc_setup.node import job_verbs

    return job_verbs.main(rest)


def _help(rest: list[str]) -> int:
    _no_arguments(rest)
    print(_HELP)
    return 0


def _no_arguments(rest: list[str]) -> None:
    if rest:
        raise _usage(f"{rest[0]!r} was not expected here.")


def _usage(brief: str) -> Exception:
    from dshpc_setup.errors import usage_error

    return usage_error(brief, _HELP)


_COMMANDS = {
    "start": _start,
    "wait": _wait,
    "status": _status,
    "health": _health,
    "doctor": _doctor,
    "observe": _observe,
    "saved-state": _saved_state,
    "add-user": _add_user,
    "add-ground": _add_ground,
    "forget-node": _forget_node,
    "join-about": _join_about,
    "give-key": _give_key,
    "take-key": _take_key,
    "collect-offers": _collect_offers,
    "reconfigure": _reconfigure,
    "check": _check,
    "rotate-key": _rotate_key,
    "longest-wait": _longest_wait,
    "ssh-certify": _ssh_certify,
    "metrics": _metrics,
    "use": _use,
    "sample-use": _sample_use,
    "job": _job,
    "help": _help,
}
