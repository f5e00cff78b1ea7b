"""amd-smi and rocm-smi, asked for their lists of cards: slow programs, so only where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult
from dshpc_setup.probes.amd import amd_smi, rocm_smi
from dshpc_setup.probes.amd.card import ToolCard
from dshpc_setup.probes.trace import Trace, counted, kept

_Parse = Callable[[str], "tuple[ToolCard, ...] | None"]

# The newer tool first. A version of amd-smi that trips over `static` may still `list`.
TOOLS: tuple[tuple[str, tuple[tuple[str, ...], ...], _Parse], ...] = (
    ("amd-smi", (amd_smi.STATIC, amd_smi.LIST), amd_smi.parse),
    ("rocm-smi", (rocm_smi.ARGUMENTS,), rocm_smi.parse),
)

_LONGEST = 200  # of a tool's last line in a sentence; the evidence has it whole
_RANK: tuple[State, ...] = ("timeout", "error", "denied", "absent")


@dataclass(frozen=True)
class ToolReport:
    """What the tools said together: `present` where one of them lists cards."""

    state: State
    cards: tuple[ToolCard, ...] = ()
    tool: str = ""
    detail: str | None = None


def ask(look: Trace, programs: dict[str, str], deadline_s: float) -> ToolReport:
    """One tool after the other, until one tells name and memory of all its cards."""
    until = look.machine.clock() + deadline_s
    best = ToolReport("absent", detail="neither amd-smi nor rocm-smi is installed")
    for tool, calls, parse in TOOLS:
        if tool not in programs:
            continue
        report = _ask_one(look, tool, programs[tool], (calls, parse, until))
        if report.state == "present" and best.state == "present":
            best = replace(best, cards=_filled(best.cards, report.cards))
        elif _better(report, best):
            best = report
        if best.cards and all(card.name and card.memory_bytes for card in best.cards):
            break
    return best


def _better(report: ToolReport, best: ToolReport) -> bool:
    if best.state == "present":
        return False
    return report.state == "present" or _RANK.index(report.state) <= _RANK.index(best.state)


def _ask_one(
    look: Trace, tool: str, program: str, how: tuple[tuple[tuple[str, ...], ...], _Parse, float]
) -> ToolReport:
    calls, parse, until = how
    report = ToolReport("absent", tool=tool)
    for arguments in calls:
        left_s = until - look.machine.clock()
        if left_s <= 0:
            break
        result = look.machine.run([program, *arguments], deadline_s=left_s)
        report = judge(tool, result, parse)
        look.saw(
            tool, report.state, f"{tool} {' '.join(arguments)}", report.detail, code=result.code
        )
        if report.state in ("present", "timeout"):
            break
    return report


def judge(tool: str, result: CommandResult, parse: _Parse) -> ToolReport:
    """The tool's answer. Its exit code says little: one value that a card lacks makes it 2."""
    if result.state == "timeout":
        return ToolReport("timeout", (), tool, "it gave no answer before its deadline")
    if result.state != "present":
        return ToolReport(result.state, (), tool, kept(result.text) or "it cannot be started")
    cards = parse(result.stdout)
    if cards:
        return ToolReport("present", cards, tool, counted(len(cards), "card"))
    text = result.text
    if (cards is not None and result.ok) or rocm_smi.says_nothing(text):
        return ToolReport("absent", (), tool, kept(text) or "it lists no card")
    return ToolReport(
        "error", (), tool, kept(text) or f"it printed nothing (exit code {result.code})"
    )


def last_words(report: ToolReport) -> str:
    """What a tool said in the end, for a sentence; half a JSON text says nothing."""
    lines = (report.detail or "").strip().splitlines()
    if not lines or (report.detail or "").lstrip()[:1] in ("{", "["):
        return "its answer cannot be understood"
    return lines[-1].strip()[:_LONGEST]


def _filled(cards: Iterable[ToolCard], others: Iterable[ToolCard]) -> tuple[ToolCard, ...]:
    """The first tool's cards with what only the second one knows of them."""
    by_address = {card.address: card for card in others if card.address}
    found = []
    for card in cards:
        other = by_address.get(card.address or "", card)
        found.append(
            replace(
                card,
                name=card.name or other.name,
                memory_bytes=card.memory_bytes or other.memory_bytes,
                unique_id=card.unique_id or other.unique_id,
                target=card.target or other.target,
                driver_version=card.driver_version or other.driver_version,
                device_id=card.device_id or other.device_id,
            )
        )
    return tuple(found)
