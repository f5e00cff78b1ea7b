"""Texts and mappings in, `Settings` out, with all that is wrong in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

from dshpc_setup.engine_client import OWNER
from dshpc_setup.errors import DshpcError
from dshpc_setup.settings.declarations import DECLARATIONS, Declaration
from dshpc_setup.settings.texts import REMOVED, BadItemError
from dshpc_setup.settings.values import Place, Settings
from dshpc_setup.settings.wrong import OWN_FILE, Source, WrongSetting, together

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Texts(TypedDict, total=False):
    """Where settings come from, the first first; `yaml_text`: of dshpc.yaml, or of a file of another name."""

    flags: Mapping[str, str | None] | None
    env: Mapping[str, str] | None
    remembered: Mapping[str, str] | None
    yaml_text: str | None
    yaml_name: str


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
    own_work = bool(far) and env.get("DSHPC_OWN_WORK") == "1"
    carried = env.get("DSHPC_CARRIED_WORK", "") if own_work else ""
    uid = env.get(OWNER, "") if far else ""
    owner = int(uid) if re.fullmatch(r"[0-9]{1,10}", uid, re.ASCII) else None
    place = Place(
        "worker" if is_worker else "controller", node, count, far, own_work, carried, owner
    )
    return replace(settings, place=place)


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


def load(**texts: Unpack[Texts]) -> Settings:
    """The settings in force.

    Raises SettingsError (exit code 64) for a bad value, naming where it stands (file: line and column),
    and for all that is wrong at once.
    """
    return read(**texts).usable()


def read(**given: Unpack[Texts]) -> Reading:
    """What can be used of the settings, and what is wrong with the others; it raises nothing.

    dshpc.yaml is read whole: what a flag or a variable outranks there has to be right, too.
    """
    from_file, unread = _from_file(given.get("yaml_text"), given.get("yaml_name", OWN_FILE))
    values: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    texts: dict[str, str] = {}
    hidden: dict[str, tuple[Any, Source]] = {}
    wrong = list(unread)
    for item in DECLARATIONS:
        layers = _layers(item, given, from_file)
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
    item: Declaration, given: Texts, from_file: Mapping[str, tuple[str, Source]]
) -> Iterator[tuple[str, Source]]:
    """Its texts, the one that counts first."""
    flag = (given.get("flags") or {}).get(item.name)
    if flag is not None:
        yield flag, Source("flag", item.flag)
    env = given.get("env") or {}
    if item.env in env:
        yield env[item.env], Source("environment", item.env)
    remembered = given.get("remembered") or {}
    if item.name in remembered:
        yield (
            remembered[item.name],
            Source("remembered", f"{item.flag} of an earlier run"),
        )
    if item.name in from_file:
        yield from_file[item.name]
