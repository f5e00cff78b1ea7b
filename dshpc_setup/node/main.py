"""`dshpc-node`: what is run in the container by its entrypoint and by the host."""

from __future__ import annotations

import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dshpc_setup.errors import DshpcError
    from dshpc_setup.slurm.paths import Paths

_ACCOUNTING = "DSHPC_ACCOUNTING"
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
  detect [OPTION...]            Print what this node sees, as `dshpc detect` has it
  backup                        Print queue, users, keys and accounting as an archive
  restore check|accept|drop     Check a backup on stdin; let the next start take it; forget it
  check                         Try whether a start here would succeed; print a JSON object
  add-user UID GID NAME [HOME]  Make a user of the host known here
  associate                     Let all known users run jobs, where accounting is on
  hold begin|renew|end          Let no job begin while those that run are waited for
  homes kept|copy UID=HOME...  Show what is kept of users, or copy it into homes of their own
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
    if name in _BY_SETTINGS:
        _read_settings()
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


def _read_settings() -> None:
    """Settings that may have changed since the container was made, as variables like the others."""
    from dshpc_setup.slurm.paths import LIVE, TRIED

    text = os.environ.pop(TRIED, None)
    try:
        if text is None:
            with open(LIVE, encoding="utf-8") as file:
                text = file.read(1 << 20)
        from dshpc_setup.documents import foreign

        value = foreign.value(text)
    except (OSError, ValueError):  # none were ever written, or they are as the container has them
        return
    if isinstance(value, dict):
        named = {str(key): str(text) for key, text in value.items()}
        os.environ.update({key: text for key, text in named.items() if key.startswith("DSHPC_")})


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


def _detect(rest: list[str]) -> int:
    from dshpc_setup.cli import detect

    asked = detect.parsed(rest)
    if asked is None or asked.node is not None:
        raise _usage("dshpc-node detect takes --json, --explain, --only and --deadline.")
    return detect.detect_inside(asked)


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
    user = accounts.checked(*rest)
    account = users.add(_paths(), user)
    if os.environ.get(_ACCOUNTING) == "on":
        _associate([])  # where it is away, the service `associations` does it later
    if user.home and account.home != user.home:
        from dshpc_setup.container import own_homes

        why = own_homes.why_not(_paths(), user, own_homes.roots(os.environ))
        if why is not None:
            print(own_homes.words(why, user), file=sys.stderr)
    return 0


def _homes(rest: list[str]) -> int:
    """A JSON object a line."""
    import json
    from dataclasses import asdict

    from dshpc_setup.container import users
    from dshpc_setup.machine.local import LocalMachine

    if rest == ["kept"]:
        for each in users.kept(_paths()):
            print(json.dumps(asdict(each)))
        return 0
    if rest[:1] != ["copy"] or not all(re.fullmatch(r"[0-9]+=/.*", word) for word in rest[1:]):
        raise _usage("dshpc-node homes takes kept, or copy UID=HOME...")
    told = (word.partition("=") for word in rest[1:])
    for done in users.copy_kept(
        LocalMachine(), _paths(), {int(uid): home for uid, _, home in told}
    ):
        print(json.dumps(asdict(done)), flush=True)
    return 0


def _associate(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import accounting
    from dshpc_setup.errors import Exit
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    done = accounting.associate(LocalMachine(), _paths(), settings.of_container(os.environ).prefix)
    return int(Exit.OK if done else Exit.INCOMPLETE)


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


def _backup(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import backup
    from dshpc_setup.machine.local import LocalMachine

    _no_arguments(rest)
    return backup.write(LocalMachine(), _paths(), settings.of_container(os.environ))


def _restore(rest: list[str]) -> int:
    from dshpc_setup import settings
    from dshpc_setup.container import restore
    from dshpc_setup.machine.local import LocalMachine

    match rest:
        case ["check"]:
            return restore.check(LocalMachine(), _paths(), settings.of_container(os.environ))
        case ["accept"]:
            return restore.accept(_paths())
        case ["drop"]:
            return restore.drop(_paths())
        case _:
            raise _usage("dshpc-node restore takes check, accept or drop.")


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


def _hold(rest: list[str]) -> int:
    from dshpc_setup.container import hold
    from dshpc_setup.machine.local import LocalMachine

    verbs = {"begin": hold.begin, "renew": hold.renew, "end": hold.end, "watch": hold.watch}
    if len(rest) != 1 or rest[0] not in verbs:
        raise _usage("dshpc-node hold takes begin, renew, end or watch.")
    verbs[rest[0]](LocalMachine(), _paths())
    return 0


_NOTHING_TO_DO_S = 3600


def _longest_wait(rest: list[str]) -> int:
    from dshpc_setup.container import longest_wait
    from dshpc_setup.machine.local import LocalMachine
    from dshpc_setup.settings import texts
    from dshpc_setup.settings.declarations import BY_NAME
    from dshpc_setup.slurm.paths import Paths

    _no_arguments(rest)
    setting = BY_NAME["longest_wait"]
    text = texts.wait(os.environ.get(setting.env) or setting.default)
    if text == "none":
        print(_NOTHING_TO_DO_S)  # the service is started anew where the setting changes
        return 0
    print(round(longest_wait.tend(LocalMachine(), Paths(), texts.seconds(text)), 1))
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


# Those that go by settings; the others are counted in milliseconds
_BY_SETTINGS = frozenset("start check reconfigure observe doctor longest-wait sample-use".split())
_COMMANDS = {
    "start": _start,
    "wait": _wait,
    "status": _status,
    "health": _health,
    "doctor": _doctor,
    "observe": _observe,
    "detect": _detect,
    "saved-state": _saved_state,
    "backup": _backup,
    "restore": _restore,
    "add-user": _add_user,
    "homes": _homes,
    "hold": _hold,
    "add-ground": _add_ground,
    "associate": _associate,
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
