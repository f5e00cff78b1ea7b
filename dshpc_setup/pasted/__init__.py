"""From a text that somebody pasted to its causes: findings of the catalogue, the likeliest first. Pure.

Nothing is known of the machine that wrote it. So where a cause depends on the machine, the one that holds
where nothing special is known comes first, and the others are told beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from dshpc_setup import gpu_vendors
from dshpc_setup.checkup.kernel import parse
from dshpc_setup.diagnose import CheckInput, Finding, catalogue, diagnose
from dshpc_setup.diagnose.model import FAULTS
from dshpc_setup.facts import (
    Cpu,
    Engine,
    Evidence,
    GpuDevice,
    Gpus,
    HostFacts,
    Memory,
    Platform,
    UnusedGpu,
)
from dshpc_setup.observed.model import KernelLog, Observed
from dshpc_setup.passthrough import findings
from dshpc_setup.passthrough.causes import RULES
from dshpc_setup.passthrough.rules import Refusal
from dshpc_setup.pasted.signs import FIRST, LAST, NEXT, Sign

MOST = 32 * 1024  # letters of a text that count: half from its beginning, half from its end
SHOWN = 160  # letters of the words that told it

ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "`": "'"})
# The name that NVIDIA's driver sets before each line of one message.
AGAIN = re.compile(r"\n *(?:\[[ \d.]{1,20}\] *)?NVRM:(?! Xid| GPU)")

# Errors that the driver numbers, in its own form: how grave each is, the checks of the log know
NUMBERED = re.compile(r"(?:NVRM: Xid|nvidia-nvswitch\d{1,3}: SXid) \(.*", re.IGNORECASE)

# Of the catalogue of refusals: what ended a test-run, and is elsewhere a stopped engine.
IN_A_TEST_ALONE = (findings.ENGINE_GONE,)
# Words that in other mouths mean other things: `cp: cannot stat`, `./program: Exec format error`.
GENERAL = (
    findings.NO_MOUNT_SOURCE,
    findings.STALE_CDI_SPEC,
    findings.OTHER_PROCESSOR,
    findings.IMAGE_WITHOUT_SHELL,
)
OF_ENGINES = re.compile(
    r"docker|daemon|podman|contain|\brunc\b|\bcrun\b|\bOCI\b|\bCDI\b|compose", re.IGNORECASE
)


@dataclass(frozen=True)
class Explanation:
    """What a text tells: the likeliest cause, what it can be besides, and the words that say so."""

    finding: str
    besides: tuple[str, ...]
    words: str


@dataclass(frozen=True)
class Harmless:
    """What doctor notes of a text without a fault in it: the finding, and the sentence of its note."""

    finding: str
    says: str


def told(text: str) -> Explanation | None:
    """None where no rule knows the text. Of any length; never raises."""
    raw, flat = _read(text)
    found = [
        *_by_signs(FIRST, flat),
        *_by_log(raw, flat),
        *_by_signs((*NEXT, *of_vendors()), flat),
        *_by_rules(raw, flat),
        *_by_signs(LAST, _read(NUMBERED.sub("", raw))[1]),
    ]
    if not found:
        return None
    first = found[0]
    besides = dict.fromkeys(each for one in found for each in (one.finding, *one.besides))
    besides.pop(first.finding)
    return replace(first, besides=tuple(besides))


def harmless(text: str) -> Harmless | None:
    """Of lines of the kernel's log that doctor notes and that need no step; None where there are none."""
    lines = parse(_read(text)[0])
    noted = [each for each in _news(lines) if each.state == "info"] if lines else []
    return Harmless(noted[0].id, noted[0].cause) if noted else None


def _read(text: str) -> tuple[str, str]:
    """Its lines, and all of it as one line."""
    raw = _short(ESCAPES.sub("", text).translate(_QUOTES))
    return raw, " ".join(AGAIN.sub(" ", raw).replace("\\", "").split())


def _short(text: str) -> str:
    half = MOST // 2
    return text if len(text) <= MOST else f"{text[:half]}\n{text[-half:]}"


def of_vendors() -> Iterator[Sign]:
    """`SIGNS` of each vendor's aspect `signs`: rows of findings, words, and words beside them."""
    for vendor in gpu_vendors.names():
        module = gpu_vendors.aspect(vendor, "signs")
        yield from (Sign(*row) for row in module.SIGNS) if module is not None else ()


def _by_signs(signs: tuple[Sign, ...], flat: str) -> Iterator[Explanation]:
    for sign in signs:
        match = re.search(sign.words, flat, re.IGNORECASE)
        if match is not None and re.search(sign.also, flat, re.IGNORECASE):
            said = match[match.re.groups] or match[0]  # its group, where there is one
            yield Explanation(sign.findings[0], sign.findings[1:], _words(said))


def _by_rules(raw: str, flat: str) -> Iterator[Explanation]:
    """By the catalogue of refusals: what holds on a machine of which nothing is known, and what might."""
    text = f"{raw}\n{flat}"
    left_out = IN_A_TEST_ALONE if OF_ENGINES.search(raw) else (*IN_A_TEST_ALONE, *GENERAL)
    hold, might = [], []
    for rule in RULES:
        if rule.finding in left_out:
            continue
        for match in re.finditer(rule.pattern, text, re.IGNORECASE):
            said = {name: value or "" for name, value in match.groupdict().items()}
            if rule.when(Refusal(unknown_machine(), "none", said)):
                hold.append(Explanation(rule.finding, (), _words(match[0])))
                break
            might.append(rule.finding)
    if hold:
        others = [each.finding for each in hold[1:]]
        yield replace(hold[0], besides=(*others, *might))


def _by_log(raw: str, flat: str) -> Iterator[Explanation]:
    """By the checks of the kernel's log: what they find with these lines and do not find without.

    Root causes come first. A text whose lines say nothing may be one message that was wrapped.
    """
    lines = parse(raw)
    if not lines:
        return
    news = _news(lines) or _news((*lines, flat))
    faults = [each for each in news if each.state in FAULTS]
    for each in sorted(faults, key=lambda it: it.caused_by is not None):
        seen = next((line for line in each.evidence if line in lines), lines[-1])
        yield Explanation(each.id, (), _words(seen))


def _news(lines: tuple[str, ...]) -> tuple[Finding, ...]:
    """The faults and notes of doctor that are there because of these lines."""
    before = {each.id: each.state for each in _without_log()}
    noted = (*FAULTS, "info")
    return tuple(
        each
        for each in _diagnosed(lines)
        if each.state in noted and before[each.id] not in (each.state, *FAULTS)
    )


@cache
def _without_log() -> tuple[Finding, ...]:
    return _diagnosed(())


def _diagnosed(lines: tuple[str, ...]) -> tuple[Finding, ...]:
    known = CheckInput(unknown_machine(), observed=Observed(kernel=KernelLog("present", lines)))
    return diagnose(known, tuple(check for check in catalogue() if check.section == "driver"))


_IN_USE = ("intel",)  # whose log is looked at where jobs get a GPU


@cache
def unknown_machine() -> HostFacts:
    """A Linux machine with a card of each maker, of which nothing else is known."""
    names = gpu_vendors.names()
    return HostFacts(
        Platform("linux"),
        Cpu(),
        Memory(),
        Gpus(
            "present",
            tuple(GpuDevice(0, name) for name in _IN_USE),
            unused=tuple(UnusedGpu(name, "not known") for name in names if name not in _IN_USE),
        ),
        Engine("absent"),
        (Evidence("nvidia-pci", "present", "", 0.0),),
    )


def _words(text: str) -> str:
    words = " ".join(text.split()).strip("\"' ")
    return words if len(words) <= SHOWN else f"{words[: SHOWN - 3]}..."
