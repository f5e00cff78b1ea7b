"""Which settings are not in force since the files that they go into are the user's own.

What a setting would write is looked for in the file: where it is there, the setting is in force. `gpu`,
`devices`, `simulate` and `prefix` go into docker-compose.yml, too: a file of config/ that contradicts them
is refused at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from dshpc_setup.apply.apply import read_text
from dshpc_setup.apply.owned import NEW
from dshpc_setup.errors import DshpcError
from dshpc_setup.files import ownership
from dshpc_setup.plan import extra, limits
from dshpc_setup.project.folder import SETTINGS, Project
from dshpc_setup.render.configuration import CONFIG_FILES
from dshpc_setup.settings import BY_NAME, Settings, applied
from dshpc_setup.settings.overruled import Overruled
from dshpc_setup.settings.texts import MOST_NODES
from dshpc_setup.slurm import slurm_conf
from dshpc_setup.slurm.paths import Paths

# What is written into slurm.conf and nowhere else
ONLY_IN_SLURM_CONF = frozenset(
    (
        "slurm_conf_extra",
        "partition",
        "partitions",
        "array_limit",
        "job_limit",
        "reserve_mib",
        "slurm_ports",
    )
)
_OF_SEVERAL = frozenset(("partitionname", "downnodes"))


@dataclass(frozen=True)
class OwnFile:
    """A file of config/ that the user has made his own."""

    name: str
    text: str
    owner: Literal["custom", "edited"]
    offered: bool = False


@dataclass(frozen=True)
class _Wanted:
    """What a setting writes into a file: in words, and whether a text has it."""

    setting: str
    file: str
    words: str
    stands_in: Callable[[str], bool]


def of_project(project: Project, settings: Settings) -> tuple[Overruled, ...]:
    """Of the files as they are now; a file that cannot be read is told elsewhere."""
    record = project.read_note(SETTINGS)
    memory = applied.real_memory_mib(record, settings)
    return overruled(settings, own_files(project), memory)


def decided(own: Iterable[OwnFile]) -> frozenset[str]:
    """Settings that change nothing, whatever they are: a file of the user's own says it."""
    return ONLY_IN_SLURM_CONF if any(file.name == "slurm.conf" for file in own) else frozenset()


def own_files(project: Project) -> tuple[OwnFile, ...]:
    try:
        manifest = project.manifest
    except DshpcError:
        return ()
    found = []
    for name in CONFIG_FILES:
        path = project.folder / "config" / name
        try:
            text = read_text(path)
        except DshpcError:
            continue
        owner = ownership.classify(text, manifest.get(f"config/{name}"))
        if text is not None and (owner == "custom" or owner == "edited"):
            beside = path.with_name(f"{name}{NEW}").exists()
            found.append(OwnFile(name, text, owner, beside))
    return tuple(found)


def overruled(
    settings: Settings, own: Iterable[OwnFile], real_memory_mib: int | None
) -> tuple[Overruled, ...]:
    """`real_memory_mib`: RealMemory as it was rendered last with this reserve_mib; None: not known."""
    wanted = tuple(_wanted(settings, real_memory_mib))
    found = []
    for file in own:
        missing: dict[str, list[str]] = {}
        for each in wanted:
            if each.file == file.name and not each.stands_in(file.text):
                missing.setdefault(each.setting, []).append(each.words)
        found += [
            Overruled(
                name,
                settings.sources[name].where,
                file.name,
                file.owner,
                tuple(words),
                file.offered,
            )
            for name, words in missing.items()
        ]
    return tuple(found)


def _wanted(settings: Settings, real_memory_mib: int | None) -> Iterator[_Wanted]:
    """Of the settings that are not the default: of these nobody has asked for anything."""
    try:
        lines = extra.lines(settings)
    except DshpcError:  # it cannot be used, which is told
        lines = ()
    said = {line.key.lower() for line in lines}
    for line in lines:
        several = line.key.lower() in _OF_SEVERAL
        yield (_line if several else _key)("slurm_conf_extra", line.text)
    if _chosen(settings, "partition"):
        yield _line("partition", f"PartitionName={settings.partition}")
    for name, longest in settings.partitions:
        yield _line("partitions", f"PartitionName={name} MaxTime={longest}")
    if _chosen(settings, "array_limit") and "maxarraysize" not in said:
        yield _key("array_limit", f"MaxArraySize={limits.max_array_size(settings)}")
    if _chosen(settings, "job_limit") and "maxjobcount" not in said:
        yield _key("job_limit", f"MaxJobCount={limits.max_job_count(settings)}")
    if _chosen(settings, "slurm_ports"):
        for key, port in zip(("SlurmctldPort", "SlurmdPort"), settings.slurm_ports, strict=False):
            if key.lower() not in said:
                yield _key("slurm_ports", f"{key}={port}")
    yield from _of_daemons(settings, said)
    if settings.isolation == "enforced":
        yield _key("isolation", "TaskPlugin=task/cgroup")
        yield _key("isolation", "ConstrainDevices=yes", "cgroup.conf")
    if settings.reserve_mib is not None and real_memory_mib is not None:
        words = f"RealMemory={real_memory_mib}"
        yield _Wanted("reserve_mib", "slurm.conf", words, _node_has(settings.node, words))
    yield from _of_nodes(settings)


def _of_nodes(settings: Settings) -> Iterator[_Wanted]:
    if settings.place.role == "controller":
        why = "listen" if settings.listens else "nodes"
        yield _key(why, f"MaxNodeCount={MOST_NODES}")
    if settings.listens and _chosen(settings, "srun_ports"):
        first, last = settings.srun_ports
        yield _key("srun_ports", f"SrunPortRange={first}-{last}")
    yield from _of_gpus(settings)


def _of_daemons(settings: Settings, said: set[str]) -> Iterator[_Wanted]:
    """What slurmdbd and slurmrestd want to stand there."""
    if settings.accounting == "on" and "accountingstoragetype" not in said:
        yield _key("accounting", "AccountingStorageType=accounting_storage/slurmdbd")
    if settings.rest != "off" and "authalttypes" not in said:
        yield _key("rest", "AuthAltTypes=auth/jwt")
        yield _key("rest", f"AuthAltParameters=jwt_key={Paths().rest_key}")


def _of_gpus(settings: Settings) -> Iterator[_Wanted]:
    kind, _, each = settings.gpu_sharing.partition(":")
    if kind != "none":
        of_one, node = int(each) if each else 100, settings.node
        words = f"GresTypes=gpu,{kind}, and {kind}:N in Gres= with {of_one} for each GPU"
        yield _Wanted(
            "gpu_sharing", "slurm.conf", words, lambda text: _shared(text, node, kind, of_one)
        )
        yield _Wanted(
            "gpu_sharing", "gres.conf", f"Name={kind} Count=...", lambda text: _divided(text, kind)
        )
    if settings.gres_type == "index":
        words = "Type=gpu0, Type=gpu1, ... of the GPUs"
        yield _Wanted("gres_type", "gres.conf", words, _by_index)


def _chosen(settings: Settings, name: str) -> bool:
    return bool(getattr(settings, name) != BY_NAME[name].default)


def _key(setting: str, line: str, file: str = "slurm.conf") -> _Wanted:
    """A key that stands for itself; of several Slurm takes the last."""
    key, _, value = line.partition("=")
    wanted = _plain(value)

    def stands_in(text: str) -> bool:
        there = slurm_conf.last(text, key.strip())
        if there is None:
            return False
        # A list that names more does what was asked for, too
        return wanted == _plain(there) or set(wanted.split(",")) <= set(_plain(there).split(","))

    return _Wanted(setting, file, line, stands_in)


def _line(setting: str, line: str, file: str = "slurm.conf") -> _Wanted:
    """A line with these words and perhaps more."""
    wanted = next(slurm_conf.entries(line)).values
    return _Wanted(setting, file, line, lambda text: _has_line(text, wanted))


def _has_line(text: str, wanted: Mapping[str, str]) -> bool:
    return any(
        all(_plain(entry.values.get(key, "")) == _plain(value) for key, value in wanted.items())
        for entry in slurm_conf.entries(text)
    )


def _node_has(node: str, words: str) -> Callable[[str], bool]:
    key, _, value = words.partition("=")

    def stands_in(text: str) -> bool:
        entry = slurm_conf.node(text, node)
        return entry is not None and entry.values.get(key.lower()) == value

    return stands_in


def _shared(text: str, node: str, kind: str, of_one: int) -> bool:
    """Whether the node has that many of a kind for each of its GPUs; without a GPU there is none."""
    entry = slurm_conf.node(text, node)
    counts = slurm_conf.gres_counts(entry.values.get("gres", "")) if entry else {}
    gpus = sum(count for name, count in (counts or {}).items() if name.split(":")[0] == "gpu")
    types = (slurm_conf.last(text, "GresTypes") or "").lower().split(",")
    return not gpus or (kind in types and (counts or {}).get(kind) == gpus * of_one)


def _divided(text: str, kind: str) -> bool:
    names = {entry.values.get("name", "").lower() for entry in slurm_conf.entries(text)}
    return "gpu" not in names or kind in names


def _by_index(text: str) -> bool:
    gpus = [each.values for each in slurm_conf.entries(text) if each.values.get("name") == "gpu"]
    return all(values.get("type", "").startswith("gpu") for values in gpus)


def _plain(value: str) -> str:
    return value.strip().strip('"').lower()
