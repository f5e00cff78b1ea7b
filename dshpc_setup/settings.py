"""What the user may choose: each setting declared once, and where its value came from.

Precedence: flag, environment, remembered flag (an earlier run in this project folder), dshpc.yaml,
default. `load` is pure: texts and mappings in, `Settings` out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dshpc_setup.errors import DshpcError, usage_error

Origin = Literal["flag", "environment", "remembered", "file", "default"]


@dataclass(frozen=True)
class Declaration:
    """One setting: its key in dshpc.yaml, its flag, its variable, how its text is read."""

    name: str
    default: Any
    help: str
    parse: Callable[[str], Any]
    metavar: str = "TEXT"
    in_container: bool = False  # handed to the container's environment
    list_separator: str = ","  # between the items of a YAML list

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        return "DSHPC_" + self.name.upper()


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            import difflib  # only for a mistake: each start of the container imports this module

            near = difflib.get_close_matches(text, choices, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"is none of {', '.join(choices)}{hint}")
        return text

    return parse


def _prefix(text: str) -> str:
    # It becomes a container name, a host name, a Slurm node name and a cluster name.
    if not re.fullmatch(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?", text):
        raise ValueError(
            "must be 1 to 40 lower-case letters, digits and '-', beginning with a letter "
            "and not ending in '-'"
        )
    if text == "default":
        raise ValueError("is the word by which Slurm names defaults, and no node")
    return text


def _devices(text: str) -> tuple[str, ...]:
    items = tuple(item.strip() for item in text.split(",") if item.strip())
    for item in items:
        if not re.fullmatch(r"[0-9]{1,3}|(?:GPU|MIG)-[0-9A-Za-z/-]+", item):
            raise ValueError(f"holds {item!r}, which is neither an index nor a GPU-/MIG- UUID")
    if len(set(items)) != len(items):
        raise ValueError("names a device twice")
    return items


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValueError("must be a whole number of 0 or more")
    return int(text)


def _size(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,6}[kmg]", text.lower()):
        raise ValueError("must be a size such as 512m or 2g")
    return text.lower()


def _profile(text: str) -> str:
    if text in ("", "none"):
        return ""
    from dshpc_setup.machine.profiles import parse_profile

    parse_profile(text)
    return text


def _plain(text: str) -> str:
    if any(ord(char) < 32 for char in text):
        raise ValueError("holds a control character")
    return text


def _image(text: str) -> str:
    if len(text) > 255 or not re.fullmatch(_IMAGE, text, re.ASCII):
        raise ValueError("is no name of an image, such as debian:trixie-slim")
    return text


_NAME = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_HOST = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
# As the registries' own grammar has it: host/path:tag@digest, or the id of an image
_IMAGE = (
    rf"(?:{_HOST}/)?{_NAME}(?:/{_NAME})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,128}})?"
    r"|sha256:[0-9a-f]{64}"
)


def _mirror(text: str) -> str:
    # It becomes a line of sources.list, which is cut at spaces
    if re.match(r"[a-z]+://[^/]*@", text):
        raise ValueError("holds a login, which would stay readable in the image")
    if text and not re.fullmatch(rf"https?://{_HOST}(?:/[A-Za-z0-9._~%+=:@,/-]*)?", text):
        raise ValueError("is no address such as http://mirror.example.org/debian")
    return text


def _shown(text: str) -> str:
    """Quoted, without the login of an address."""
    return repr(re.sub(r"://[^/\s]*@", "://***@", text))


def _lines(text: str) -> str:
    # What ends a line for some of its readers and not for others must be in none
    if any(not char.isprintable() and char not in "\n\t" for char in text):
        raise ValueError("holds a character that cannot be printed")
    return text.rstrip("\n")


def _sharing(text: str) -> str:
    if text in ("none", "mps"):
        return text
    found = re.fullmatch(r"shard:([1-9][0-9]{0,2})", text)
    if found is None or not 2 <= int(found[1]) <= 128:
        raise ValueError("is none of none, mps and shard:N with 2 to 128 jobs for each GPU")
    return text


# As Slurm reads MaxTime: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]
_TIME = re.compile(
    r"\d{1,7}|\d{1,6}:\d{1,2}(?::\d{1,2})?|\d{1,5}-\d{1,3}(?::\d{1,2}){0,2}", re.ASCII
)


def _partitions(text: str) -> tuple[tuple[str, str], ...]:
    """(name, longest time as Slurm writes it) each; INFINITE without one."""
    found: list[tuple[str, str]] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, given, longest = (part.strip() for part in item.partition("="))
        if given and not longest:
            raise ValueError(
                f"holds {item!r}, which names no time: {name}=1:00:00 for an hour at most, or {name} "
                "for no limit"
            )
        if longest and longest.lower() != "infinite" and not _TIME.fullmatch(longest):
            raise ValueError(
                f"holds {item!r}, whose time is none such as 30 (minutes), 1:00:00 or 7-0 (days)"
            )
        is_time = longest and longest.lower() != "infinite"
        if is_time and not longest.strip("0:-"):
            raise ValueError(f"holds {item!r}, whose time is zero: no job could run there")
        found.append((_identifier(name), longest if is_time else "INFINITE"))
    if len({name.lower() for name, _ in found}) != len(found):
        raise ValueError("names a partition twice")
    return tuple(found)


def _identifier(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", text):
        raise ValueError("must be letters, digits, '-' and '_', beginning with a letter")
    if text.lower() == "default":
        raise ValueError("is the word by which Slurm names defaults, and no partition")
    return text


DECLARATIONS: tuple[Declaration, ...] = (
    Declaration(
        "prefix",
        "dshpc",
        "Name of this cluster: container <prefix>-slurm, Slurm node and cluster <prefix>.",
        _prefix,
        "NAME",
        in_container=True,
    ),
    Declaration(
        "gpu",
        "auto",
        "Which GPUs to use: auto, nvidia, amd, intel or none.",
        _choice("auto", "nvidia", "amd", "intel", "none"),
        "VENDOR",
        in_container=True,
    ),
    Declaration(
        "devices",
        (),
        "Only these GPUs, by index or UUID: 0,2.",
        _devices,
        "LIST",
    ),
    Declaration(
        "simulate",
        "",
        "Made-up GPUs instead of real ones: h100:2, mig, mixed, mi300x:8, or several at once, "
        "h100:2+t4:1 (16 at most); none to stop.",
        _profile,
        "PROFILE",
        in_container=True,
    ),
    Declaration(
        "work",
        "work",
        "Folder of your data and scripts, seen in the cluster under the same path.",
        _plain,
        "DIR",
    ),
    Declaration(
        "partition",
        "debug",
        "Name of the Slurm partition.",
        _identifier,
        "NAME",
        in_container=True,
    ),
    Declaration(
        "partitions",
        (),
        "More partitions beside it, each NAME or NAME=LONGEST TIME: short=1:00:00,long=7-0.",
        _partitions,
        "LIST",
        in_container=True,
    ),
    Declaration(
        "gpu_sharing",
        "none",
        "Let jobs share a GPU: none, shard:N (N jobs on each GPU, --gres=shard:1) or mps "
        "(NVIDIA MPS, --gres=mps:50 for half a GPU).",
        _sharing,
        "HOW",
        in_container=True,
    ),
    Declaration(
        "gres_type",
        "model",
        "What Slurm calls the GPUs: model (--gres=gpu:h100:1), or index: a name for each "
        "(--gres=gpu:gpu0:1, --target NODE::0,2), so that particular ones can be asked for.",
        _choice("model", "index"),
        "HOW",
        in_container=True,
    ),
    Declaration(
        "isolation",
        "default",
        "default: a job's GPUs are named by environment variables; enforced: a job can open no other "
        "device and use no more memory and cores than its own (the container gets more rights).",
        _choice("default", "enforced"),
        "TIER",
        in_container=True,
    ),
    Declaration(
        "slurm_conf_extra",
        "",
        "Further lines for slurm.conf, such as SchedulerParameters=defer; in dshpc.yaml a text of "
        "several lines or a list.",
        _lines,
        "TEXT",
        in_container=True,
        list_separator="\n",
    ),
    Declaration(
        "reserve_mib",
        None,
        "Memory in MiB kept from jobs (default: a tenth).",
        _count,
        "MIB",
        in_container=True,
    ),
    Declaration("shm_size", "1g", "Size of /dev/shm for jobs, such as 8g.", _size, "SIZE"),
    Declaration(
        "base_image",
        "debian:trixie-slim",
        "Base image; where no registry answers, it is made with debootstrap.",
        _image,
        "IMAGE",
    ),
    Declaration(
        "apt_mirror",
        "",
        "Debian package mirror for the image (default: the host's own, if it is Debian).",
        _mirror,
        "URL",
    ),
    Declaration(
        "cuda_runtime",
        "no",
        "Put Debian's CUDA runtime libraries into the image: yes or no.",
        _choice("yes", "no"),
        "YES|NO",
    ),
    Declaration(
        "amd_profiling",
        "no",
        "Let AMD's profilers and debuggers work: seccomp unconfined and ptrace (SYS_PTRACE); "
        "yes or no.",
        _choice("yes", "no"),
        "YES|NO",
    ),
)

BY_NAME: Mapping[str, Declaration] = {item.name: item for item in DECLARATIONS}


@dataclass(frozen=True)
class Source:
    origin: Origin
    where: str  # "--prefix", "DSHPC_PREFIX", "dshpc.yaml:3"


@dataclass(frozen=True)
class Settings:
    """All values, parsed; `sources[name]` says where each came from, `texts[name]` what stood there."""

    prefix: str = "dshpc"
    gpu: str = "auto"
    devices: tuple[str, ...] = ()
    simulate: str = ""
    work: str = "work"
    partition: str = "debug"
    partitions: tuple[tuple[str, str], ...] = ()  # (name, longest time)
    gpu_sharing: str = "none"  # none | shard:N | mps
    gres_type: str = "model"  # model | index
    isolation: str = "default"  # default | enforced
    slurm_conf_extra: str = ""
    reserve_mib: int | None = None
    shm_size: str = "1g"
    base_image: str = "debian:trixie-slim"
    apt_mirror: str = ""
    cuda_runtime: str = "no"
    amd_profiling: str = "no"
    sources: Mapping[str, Source] = field(default_factory=dict, compare=False)
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def container(self) -> str:
        return f"{self.prefix}-slurm"

    @property
    def node(self) -> str:
        return self.prefix

    def container_env(self) -> dict[str, str]:
        """Variables that give the entrypoint the same settings: those that are not the default."""
        return {
            item.env: self.texts[item.name]
            for item in DECLARATIONS
            if item.in_container and item.name in self.texts
        }


def load(
    *,
    flags: Mapping[str, str | None] | None = None,
    env: Mapping[str, str] | None = None,
    remembered: Mapping[str, str] | None = None,
    yaml_text: str | None = None,
    yaml_name: str = "dshpc.yaml",
) -> Settings:
    """The settings in force.

    Raises DshpcError with exit code 64 for a bad value, naming where it stands (file: line and column).
    """
    from_file = _read_yaml(yaml_text, yaml_name) if yaml_text is not None else {}
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    texts: dict[str, str] = {}
    for item in DECLARATIONS:
        text, source = _pick(item, flags or {}, env or {}, remembered or {}, from_file)
        sources[item.name] = source
        if text is None:
            continue
        try:
            values[item.name] = item.parse(text)
        except ValueError as error:
            raise usage_error(
                f"{source.where}: {item.name} = {_shown(text)} {error}.",
                item.help,
                f"Correct {source.where} and run again.",
            ) from None
        except DshpcError as error:
            if source.origin == "flag":  # of which the error speaks by itself
                raise
            said = error.brief.removeprefix(f"{item.flag} ")
            raise replace(error, brief=f"{source.where}: {item.name} = {said}") from None
        texts[item.name] = text
    return Settings(**values, sources=sources, texts=texts)


def _pick(
    item: Declaration,
    flags: Mapping[str, str | None],
    env: Mapping[str, str],
    remembered: Mapping[str, str],
    from_file: Mapping[str, tuple[str, str]],
) -> tuple[str | None, Source]:
    flag = flags.get(item.name)
    if flag is not None:
        return flag, Source("flag", item.flag)
    if item.env in env:
        return env[item.env], Source("environment", item.env)
    if item.name in remembered:
        return remembered[item.name], Source("remembered", f"{item.flag} of an earlier run")
    if item.name in from_file:
        text, where = from_file[item.name]
        return text, Source("file", where)
    return None, Source("default", "default")


def _read_yaml(text: str, name: str) -> dict[str, tuple[str, str]]:
    """Key -> (value as text, "dshpc.yaml:LINE:COLUMN"); lists become comma-separated text."""
    import yaml

    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise usage_error(
            f"{name}{at}: this is not valid YAML: {error.problem or error.context}.",
            "",
            f"Correct {name} and run again.",
        ) from None
    except yaml.YAMLError as error:
        raise usage_error(
            f"{name}: this is not valid YAML.", str(error), f"Correct {name} and run again."
        ) from None
    except RecursionError:
        raise usage_error(
            f"{name}: its lists lie too deep in each other to be read.",
            "It is a list of 'key: value' lines, and a value is a text or a list of texts.",
            f"Correct {name} and run again.",
        ) from None
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise usage_error(
            f"{name}:1:1: a list of 'key: value' lines is expected.",
            f"Such as: prefix: lab. There are: {', '.join(BY_NAME)}.",
            f"Correct {name} and run again.",
        )
    found: dict[str, tuple[str, str]] = {}
    for key, value in root.value:
        where = f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise usage_error(
                f"{where}: the name of a setting is expected here.",
                f"There are: {', '.join(BY_NAME)}.",
                f"Correct {where} and run again.",
            )
        if key.value not in BY_NAME:
            raise _unknown_key(str(key.value), where)
        if key.value in found:
            first = found[key.value][1]
            raise usage_error(
                f"{where}: {key.value!r} stands here a second time.",
                f"The first is at {first}, and only one can count.",
                "Take one of them out and run again.",
            )
        found[key.value] = (_scalar(value, where, BY_NAME[key.value]), where)
    return found


def _scalar(node: Any, where: str, item: Declaration) -> str:
    import yaml

    if isinstance(node, yaml.SequenceNode) and all(
        isinstance(part, yaml.ScalarNode) for part in node.value
    ):
        return item.list_separator.join(str(part.value) for part in node.value)
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    raise usage_error(
        f"{where}: {item.name} takes a single value or a list of values, with nothing nested in it.",
        item.help,
        f"Correct {where} and run again.",
    )


def _unknown_key(key: str, where: str) -> DshpcError:
    import difflib

    near = difflib.get_close_matches(key, list(BY_NAME), 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return usage_error(
        f"{where}: there is no setting {key!r}.",
        f"{hint}There are: {', '.join(BY_NAME)}.",
        "Correct the name and run again.",
    )
