"""What was recorded, as the texts of a folder; names, addresses and serial numbers are pseudonyms in them."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterable
from typing import Any

from dshpc_setup import __version__
from dshpc_setup.documents import foreign
from dshpc_setup.machine import CommandResult, Machine, Reply
from dshpc_setup.machine.folder import FORMAT, REPLIES
from dshpc_setup.machine.log import Log
from dshpc_setup.machine.tree import Tree, write_tree
from dshpc_setup.record import capture, places, words
from dshpc_setup.record.scrub import Scrubber

# What prints a driver's numbers and no texts of people's
_MEASURING = frozenset("nvidia-smi rocm-smi amd-smi xpu-smi sysctl".split())
_MEASURED = frozenset(("nvml", "nvml_readings", "amdsmi"))
_ODD = re.compile(r"[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def scrubber_of(
    machine: Machine, *, more_hosts: Iterable[str] = (), kept: Iterable[str] = ()
) -> Scrubber:
    """Knows the names of this machine and of its users, which are not recorded themselves.

    And the passwords of its environment; `more_hosts` are its as well, and those in `kept` stay.
    """
    env = machine.env
    hosts = [*more_hosts, platform.node(), env.get("HOSTNAME", ""), env.get("HOST", "")]
    for path in ("/proc/sys/kernel/hostname", "/etc/hostname"):
        hosts += (machine.read(path).text or "").split()[:1]
    for line in (machine.read("/etc/hosts").text or "").splitlines():
        hosts += line.partition("#")[0].split()[1:]
    domains = [
        f"x.{word}"
        for line in (machine.read("/etc/resolv.conf").text or "").splitlines()
        if line.startswith(("search ", "domain "))
        for word in line.split()[1:]
        if "." in word.strip(".")
    ]
    users = [env.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")]
    homes = [env.get("HOME", "")]
    for line in (machine.read("/etc/passwd").text or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdecimal() and int(fields[2]) >= 1000:
            users.append(fields[0])
            homes.append(fields[5])
    names = [name for name in (*hosts, *domains) if name]
    return Scrubber(
        hosts=names, users=filter(None, users), homes=homes, uid=machine.uid,
        release=machine.system[1], kept=kept,
        secrets=[text for name, text in env.items() if re.fullmatch(words.SECRET_KEYS, name)],
    )  # fmt: skip


def texts(machine: Machine, log: Log, scrubber: Scrubber) -> dict[str, str]:
    """The files of the folder, scrubbed; all of them are learned first."""
    tree = log.tree()
    env = {name: machine.env[name] for name in capture.ENVIRONMENT if name in machine.env}
    replies = {
        REPLIES[name][0]: _reply(reply) for name, reply in log.replies.items() if name in REPLIES
    }
    measured = {REPLIES[name][0] for name in _MEASURED}
    for known in (
        *(_named(path, text) for path, text in tree.texts.items()),
        env, *replies.values(), list(tree.names()), list(tree.links.values()),
    ):  # fmt: skip
        scrubber.learn(known)
    for result in log.commands.values():
        _command(result, scrubber.learn)
    system, release, arch = machine.system
    about = {
        "format": FORMAT,
        "origin": f"recorded by dshpc {__version__}",
        "system": system,
        "release": scrubber.text(release),
        "machine": arch,
        "uid": scrubber.uid(machine.uid),
        "env": scrubber.value(env),
        "programs": {name: _maybe(scrubber, path) for name, path in sorted(log.programs.items())},
    }
    if log.disks:
        about["disks"] = {scrubber.text(path): size for path, size in sorted(log.disks.items())}
    return {
        "machine.yaml": _yaml(about),
        "root.txtar": write_tree(_scrubbed(tree, scrubber)),
        "commands.yaml": _yaml(
            [_command(result, _of_program(result, scrubber)) for result in log.commands.values()]
        ),
        **{
            name: json.dumps(scrubber.value(reply, numbers=name in measured), indent=1) + "\n"
            for name, reply in replies.items()
        },
    }


def _named(path: str, text: str) -> dict[str, str] | str:
    """A file whose whole text is what its name says, as sysfs and procfs have them."""
    name = path.rpartition("/")[2]
    whole = ("unique_id", "serial_number", "serial", "fru_id", "hostname", "nodename",
             "version")  # fmt: skip
    return {name: text} if name in whole else text


def _scrubbed(tree: Tree, scrubber: Scrubber) -> Tree:
    text = scrubber.text

    def at(path: str) -> str:
        return text(path, numbers=path.startswith(("/proc/", "/sys/", "/dev/")))

    def of_file(path: str, content: str) -> str:
        named = _named(path, content)
        if isinstance(named, str):
            return text(content, numbers=places.is_measured(path))
        (told,) = scrubber.value(named, numbers=places.is_measured(path)).values()
        return str(told)

    return Tree(
        {at(path): of_file(path, content) for path, content in tree.texts.items()},
        {at(path): at(target) for path, target in tree.links.items()},
        frozenset(map(at, tree.devices)),
        {at(path): text(why) for path, why in tree.denied.items()},
        {at(path): text(why) for path, why in tree.errors.items()},
        frozenset(map(at, tree.hangs)),
        frozenset(map(at, tree.there)),
        {at(path): group for path, group in tree.groups.items()},
        {at(path): state for path, state in tree.access.items()},
        {at(path): number for path, number in tree.numbers.items()},
        {at(path): when for path, when in tree.changed.items()},
        {at(path): name for path, name in tree.architectures.items()},
    )


def _of_program(result: CommandResult, scrubber: Scrubber) -> Callable[[Any], Any]:
    """The arguments are ours, and asked for again by their letters."""
    program = result.argv[0].rpartition("/")[2]
    in_form = result.ok or re.search(r"(?m)^\s*[{\[<]", result.stdout) is not None
    measured = program in _MEASURING and in_form

    def scrubbed(value: Any) -> Any:
        if isinstance(value, list):  # a path is what it is called in machine.yaml
            return [scrubber.value(one, numbers=not one.startswith("/")) for one in value]
        return scrubber.value(value, numbers=measured and value == result.stdout)

    return scrubbed


def _command(result: CommandResult, scrubbed: Callable[[Any], Any]) -> dict[str, Any]:
    """An item of commands.yaml; what the command printed goes through `scrubbed`."""
    found: dict[str, Any] = {"argv": scrubbed(list(result.argv))}
    if result.state != "present":
        found["state"] = result.state
    elif result.code:
        found["code"] = result.code
    if result.stdout:
        found["stdout"] = _printed(result, scrubbed)
    if result.stderr:
        found["stderr"] = scrubbed(result.stderr)
    return found


def _printed(result: CommandResult, scrubbed: Callable[[Any], Any]) -> Any:
    """Of a container engine's client by its keys: it knows names that no pattern tells."""
    program, *arguments = result.argv
    if program.rpartition("/")[2] not in ("docker", "podman"):
        return scrubbed(result.stdout)
    if arguments == ["context", "show"]:
        told = scrubbed({"context": result.stdout.strip()})
        return told and f"{told['context']}\n"
    lines = result.stdout.splitlines()
    try:
        values = [foreign.value(line) for line in lines]
    except (ValueError, RecursionError):
        # `docker info` and `docker inspect` in a form that cannot be taken apart.
        return "" if arguments[:1] in (["info"], ["inspect"]) else scrubbed(result.stdout)
    return "".join(f"{json.dumps(scrubbed(value))}\n" for value in values)


def _reply(reply: Reply) -> dict[str, Any]:
    found = {
        "state": reply.state,
        "value": reply.value,
        "source": reply.source,
        "detail": reply.detail,
        "code": reply.code,
    }
    return {key: value for key, value in found.items() if value is not None}


def _maybe(scrubber: Scrubber, path: str | None) -> str | None:
    return None if path is None else scrubber.text(path)


def _yaml(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Texts of several lines as such, for people who look through them."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
        data = data.encode(errors="replace").decode()  # a name in no encoding at all
        style = '"' if _ODD.search(data) else "|" if "\n" in data else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style)

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=1000)
