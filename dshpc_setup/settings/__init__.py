"""What the user may choose: each setting declared once, and where its value came from.

Precedence: flag, environment, remembered flag (an earlier run in this project folder), dshpc.yaml,
default. `load` is pure: texts and mappings in, `Settings` out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dshpc_setup.errors import DshpcError
from dshpc_setup.settings.declarations import BY_NAME, DECLARATIONS, Declaration
from dshpc_setup.settings.texts import REMOVED, BadItemError
from dshpc_setup.settings.wrong import (
    OWN_FILE,
    Origin,
    SettingsError,
    Source,
    WrongSetting,
    together,
)

__all__ = [
    "BY_NAME",
    "DECLARATIONS",
    "Declaration",
    "Origin",
    "Place",
    "Reading",
    "Settings",
    "SettingsError",
    "Source",
    "WrongSetting",
    "load",
    "of_container",
    "read",
    "together",
]


@dataclass(frozen=True)
class Place:
    """Which node of the cluster: alone, the controller's own beside workers, or a worker."""

    role: Literal["alone", "controller", "worker"] = "alone"
    node: str = ""  # "": named as the cluster is
    most_gpus: int = 0  # that a node of the cluster has: the defaults of jobs are the same on all
    controller: str = ""  # the address of its machine, of a worker on another one

    def to_env(self) -> dict[str, str]:
        """Variables that tell a container its place; none where it is alone."""
        if self.role == "alone":
            return {}
        named = {"DSHPC_NODE": self.node} if self.node else {}
        far = {"DSHPC_CONTROLLER": self.controller} if self.controller else {}
        return {"DSHPC_ROLE": self.role, **named, "DSHPC_MOST_GPUS": str(self.most_gpus), **far}

    @property
    def is_joined(self) -> bool:
        """Whether it is a worker on another machine than the controller's."""
        return bool(self.controller)


ALONE = Place()
LIVE_FILE = "live.json"  # of config/: settings that may change while the container runs


@dataclass(frozen=True)
class Settings:
    """All values, parsed; `sources[name]` says where each came from, `texts[name]` what stood there.

    `hidden` are values of dshpc.yaml that a flag or a variable outranks, with their places.
    """

    prefix: str = "dshpc"
    gpu: str = "auto"
    devices: tuple[str, ...] = ()
    unhealthy_gpus: str = "exclude"  # exclude | use
    simulate: str = ""
    nodes: int | tuple[str, ...] = 1  # how many, or what each one simulates
    engine: str = "auto"  # auto | docker | podman | builtin
    work: str = "work"
    home: str = ""  # "": as setup/homes.py says; host | kept
    mounts: tuple[str, ...] = ()  # folders, ":ro" behind some
    toolkit: str = "none"  # none | host
    cuda_paths: tuple[str, ...] = ()  # (): where these toolkits lie as a rule
    workspace_access: str = "private"  # private | group
    partition: str = "debug"
    partitions: tuple[tuple[str, str], ...] = ()  # (name, longest time)
    gpu_sharing: str = "none"  # none | shard:N | mps
    gres_type: str = "model"  # model | index
    isolation: str = "default"  # default | enforced
    slurm_conf_extra: str = ""
    reserve_mib: int | None = None
    shm_size: str = "1g"
    pids_limit: int | None = None  # None: by the number of CPUs; 0: no limit
    log_size: str = ""  # "": as log_bounds.py says; engine; a size
    array_limit: int = 10001
    job_limit: int | None = None  # None: by array_limit
    longest_wait: str = "1h"  # "none": without end
    # slurmctld, slurmd, slurmdbd where accounting is on, then slurmd of further nodes on this machine
    slurm_ports: tuple[int, ...] = (6817, 6818)
    listen: str = "off"  # off, or an address or an interface of this machine
    srun_ports: tuple[int, int] = (61001, 61999)  # the first and the last
    clean_after: str = "30d"
    accounting: str = "off"  # off | on
    rest: str = "off"  # off | on | ADDRESS:PORT
    idle_gpu: str = "30m"
    release_idle: str = "off"  # off, or a time
    metrics: str = "off"  # off, or ADDRESS:PORT
    dashboard: str = "off"  # off, or ADDRESS:PORT
    base_image: str = "debian:trixie-slim"
    apt_mirror: str = ""
    cuda_runtime: str = "no"
    amd_profiling: str = "no"
    homes: tuple[
        str, ...
    ] = ()  # folders above users' own homes, which the cluster sees: home = host
    toolkits: tuple[str, ...] = ()  # what jobs are lent by toolkit = host: settings/lent.py
    place: Place = ALONE  # of the node that these are for
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)
    hidden: Mapping[str, tuple[Any, Source]] = field(default_factory=dict, compare=False)

    @property
    def of_file(self) -> Settings:
        """As they are without what outranks dshpc.yaml, which has to be right by itself."""
        values = {name: value for name, (value, _) in self.hidden.items()}
        places = {name: source for name, (_, source) in self.hidden.items()}
        return replace(self, **values, sources={**self.sources, **places}, hidden={})

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def worker_containers(self) -> dict[str, str]:
        """Node -> container of each worker on this machine."""
        return {f"{self.prefix}-{each}": f"{self.container}-{each}" for each in self.worker_numbers}

    @property
    def worker_numbers(self) -> tuple[int, ...]:
        """The second node is number 2; one that was removed leaves its number free."""
        return tuple(
            number
            for number, profile in enumerate(self.profiles, 1)
            if number > 1 and profile != REMOVED
        )

    def without_worker(self, number: int) -> str:
        """The setting `nodes` with that worker gone and each other one under its name."""
        kept = [profile or "none" for profile in self.profiles]
        kept[number - 1] = REMOVED
        while kept[-1] == REMOVED:
            kept.pop()
        is_count = isinstance(self.nodes, int) and REMOVED not in kept
        return str(len(kept)) if is_count else ",".join(kept)

    @property
    def node(self) -> str:
        return self.place.node or self.prefix

    @property
    def daemon_ports(self) -> tuple[int, ...]:
        """Of slurmctld, slurmd, and slurmdbd where accounting is on and its port is set."""
        return self.slurm_ports[: 3 if self.accounting == "on" else 2]

    @property
    def profiles(self) -> tuple[str, ...]:
        """What each node of this machine simulates, the controller's first; "": what is there; `REMOVED`
        of a number that no node has."""
        if isinstance(self.nodes, tuple):
            return self.nodes
        return (self.simulate,) * self.nodes

    @property
    def listens(self) -> bool:
        """Whether other machines can be nodes."""
        return self.listen != "off"

    def joined(self, place: Place) -> Settings:
        """Those of the one node that this machine has, of a cluster whose controller is elsewhere."""
        return replace(self, place=place)

    def of_worker(self, number: int) -> Settings:
        """Those of a worker: the second node is number 2. One that simulates none has no GPU: those of
        the machine are the first node's."""
        profile = self.profiles[number - 1]
        place = replace(self.place, role="worker", node=f"{self.prefix}-{number}")
        gpu = self.gpu if profile else "none"
        texts = {**self.texts, "simulate": profile or "none", "gpu": gpu}
        ports = self.slurm_ports
        further = ports[len(self.daemon_ports) :]
        if len(further) > number - 2:  # they share the machine's network
            ports = (ports[0], further[number - 2], *self.daemon_ports[2:])
            texts["slurm_ports"] = ",".join(map(str, ports))
        return replace(
            self, place=place, simulate=profile, devices=(), gpu=gpu, slurm_ports=ports, texts=texts
        )

    def container_env(self) -> dict[str, str]:
        """Variables of the container that give its processes the same settings, as long as it is there:
        those that are not the default."""
        return self._variables(live=False)

    def live_env(self) -> dict[str, str]:
        """Those that may change while the container runs."""
        return self._variables(live=True)

    def live_digests(self) -> dict[str, str]:
        """Names the texts of `live_env`, as a container tells by them what it has read: {} for none."""
        import json

        from dshpc_setup.files.ownership import digest

        texts = self.live_env()
        return {LIVE_FILE: digest(json.dumps(texts, sort_keys=True))} if texts else {}

    def _variables(self, *, live: bool) -> dict[str, str]:
        return {
            item.env: self.texts[item.name]
            for item in DECLARATIONS
            if item.in_container and item.live is live and item.name in self.texts
        }


def of_container(env: Mapping[str, str]) -> Settings:
    """The settings in a container, with its place in the cluster; raises as `load` does."""
    settings = load(env=env)
    role = env.get("DSHPC_ROLE")
    if role not in ("controller", "worker"):
        return settings
    most = env.get("DSHPC_MOST_GPUS", "")
    count = int(most) if re.fullmatch(r"[0-9]{1,6}", most, re.ASCII) else 0
    node = env.get("DSHPC_NODE", "") if role == "worker" else ""
    is_worker = role == "worker"
    far = env.get("DSHPC_CONTROLLER", "") if is_worker else ""
    return replace(settings, place=Place("worker" if is_worker else "controller", node, count, far))


@dataclass(frozen=True)
class Reading:
    """The settings, those that cannot be used with their default, and what is wrong with these."""

    settings: Settings
    wrong: tuple[WrongSetting, ...] = ()

    def usable(self) -> Settings:
        """Raises SettingsError (exit code 64), which tells all that is wrong at once."""
        if self.wrong:
            raise together(self.wrong)
        return self.settings


def load(
    *,
    flags: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    yaml_text: str | None = None,
    yaml_name: str = OWN_FILE,
) -> Settings:
    """The settings in force.

    Raises SettingsError (exit code 64) for a bad value, naming where it stands (file: line and column),
    and for all that is wrong at once.
    """
    return read(
        flags=flags, env=env, remembered=remembered, yaml_text=yaml_text, yaml_name=yaml_name
    ).usable()


def read(
    *,
    flags: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    yaml_text: str | None = None,
    yaml_name: str = OWN_FILE,
) -> Reading:
    """What can be used of the settings, and what is wrong with the others; it raises nothing.

    dshpc.yaml is read whole: what a flag or a variable outranks there has to be right, too.
    """
    from_file, unread = _from_file(yaml_text, yaml_name)
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    texts: dict[str, str] = {}
    hidden: dict[str, tuple[Any, Source]] = {}
    wrong = list(unread)
    for item in DECLARATIONS:
        layers = _layers(item, flags or {}, env or {}, remembered or {}, from_file)
        sources[item.name] = Source("default", "default")
        for nth, (text, source) in enumerate(layers):
            if nth and source.origin != "file":
                continue
            try:
                value = _parsed(item, text, source)
            except _WrongError as error:
                wrong.append(error.problem)
                continue
            finally:
                if not nth:
                    sources[item.name] = source
            if nth:
                hidden[item.name] = value, source
            else:
                values[item.name], texts[item.name] = value, text
    settings = Settings(**values, sources=sources, texts=texts, hidden=hidden)
    return Reading(_placed(settings), (*wrong, *_contradicting(settings), *_crowded(settings)))


def _contradicting(settings: Settings) -> tuple[WrongSetting, ...]:
    """A list of nodes, and beside it another word on what the first one simulates."""
    source = settings.sources["simulate"]
    if not isinstance(settings.nodes, tuple) or settings.simulate == settings.nodes[0]:
        return ()
    if source.origin not in ("flag", "environment", "file"):
        return ()
    said = (
        f"simulate = {settings.simulate or 'none'}, but {settings.sources['nodes'].where} says that "
        f"the first node simulates {settings.nodes[0] or 'none'}."
    )
    return (
        WrongSetting(
            "value",
            source.origin,
            source.where,
            f"{source.where}: {said}",
            "A list of nodes says what each one simulates.",
            "simulate",
            steps=("Leave one of the two out.",),
        ),
    )


def _crowded(settings: Settings) -> tuple[WrongSetting, ...]:
    """Several nodes here, and beside them other machines: those here have no address of this machine's."""
    if not settings.listens or len(settings.profiles) == 1:
        return ()
    source = settings.sources["listen"]
    said = f"listen = {settings.listen}, but {settings.sources['nodes'].where} asks for several nodes here."
    return (
        WrongSetting(
            "value",
            source.origin,
            source.where,
            f"{source.where}: {said}",
            "A cluster of several machines has one node on each.",
            "listen",
            steps=("Leave one of the two out.",),
        ),
    )


def _placed(settings: Settings) -> Settings:
    """As those of the first node, where there are several: a list says what it simulates, too."""
    if isinstance(settings.nodes, tuple):
        first = settings.nodes[0]
        texts = {**settings.texts, "simulate": first or "none"}
        sources = {**settings.sources, "simulate": settings.sources["nodes"]}
        settings = replace(settings, simulate=first, texts=texts, sources=sources)
    if not settings.worker_numbers:
        return replace(settings, place=Place("controller")) if settings.listens else settings
    from dshpc_setup.machine.profiles import parse_profile

    profiles = set(settings.profiles) - {REMOVED}
    cards = (parse_profile(each).cards if each else () for each in profiles)
    most = max(sum(len(card.model.mig) or 1 for card in each) for each in cards)
    return replace(settings, place=Place("controller", most_gpus=most))


class _WrongError(Exception):
    def __init__(self, problem: WrongSetting) -> None:
        self.problem = problem


def _parsed(item: Declaration, text: str, source: Source) -> Any:
    """Raises _WrongError."""
    try:
        return item.parse(text)
    except ValueError as error:
        said = refusal(item, text, error)
        place = source.of_item(error.index) if isinstance(error, BadItemError) else source
        problem = WrongSetting(
            "value", source.origin, place.where, f"{place.where}: {said}", item.help, item.name
        )
    except DshpcError as error:
        brief, steps = error.brief, error.resolution
        if source.origin == "flag":
            brief = f"{item.flag} {brief}"
        else:
            brief, steps = f"{source.where}: {item.name} = {brief}", ()
        problem = WrongSetting(
            "value", source.origin, source.where, brief, error.details, item.name, steps=steps
        )
    raise _WrongError(problem) from None


def refusal(item: Declaration, text: str, error: ValueError) -> str:
    """Which value the setting does not take, of a list which item, and why."""
    if not isinstance(error, BadItemError):
        return _sentence(f"{item.name} = {_shown(text)} {error}")
    noun = "line" if item.list_separator == "\n" else "item"
    return _sentence(f"{item.name}, {noun} {error.index + 1} {error}")


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def _shown(text: str) -> str:
    """Quoted, without the login of an address."""
    return repr(re.sub(r"://[^/\s]*@", "://***@", text))


def _from_file(
    text: str | None, name: str
) -> tuple[Mapping[str, tuple[str, Source]], tuple[WrongSetting, ...]]:
    if text is None:
        return {}, ()
    from dshpc_setup.settings import document  # each start of the container imports this module

    return document.read(text, name)


def _layers(
    item: Declaration,
    flags: Mapping[str, str | None],
    env: Mapping[str, str],
    remembered: Mapping[str, str],
    from_file: Mapping[str, tuple[str, Source]],
) -> Iterator[tuple[str, Source]]:
    """Its texts, the one that counts first."""
    flag = flags.get(item.name)
    if flag is not None:
        yield flag, Source("flag", item.flag)
    if item.env in env:
        yield env[item.env], Source("environment", item.env)
    if item.name in remembered:
        yield (
            remembered[item.name],
            Source("remembered", f"{item.flag} of an earlier run"),
        )
    if item.name in from_file:
        yield from_file[item.name]
