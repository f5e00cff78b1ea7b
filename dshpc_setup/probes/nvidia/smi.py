"""nvidia-smi, asked where NVML's library cannot be: for each of its lists, the fullest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dshpc_setup.facts import State
from dshpc_setup.machine import CommandResult, Reply
from dshpc_setup.probes.nvidia import smi_csv as nvidia_smi
from dshpc_setup.probes.nvidia import smi_xml as nvidia_xml
from dshpc_setup.probes.trace import Trace, counted, kept

_WORDS = 2000  # what it has to say stands at the beginning
_SENTENCE = 160
_POORER = tuple(map(nvidia_smi.query, nvidia_smi.POORER))
_LISTS: tuple[tuple[tuple[str, ...], Callable[[str], dict[str, Any] | None]], ...] = (
    (nvidia_xml.ARGUMENTS, nvidia_xml.parse),
    (nvidia_xml.PLAIN_ARGUMENTS, nvidia_xml.parse),
    (nvidia_smi.ARGUMENTS, nvidia_smi.parse),
    *(
        (nvidia_smi.query(fields), partial(nvidia_smi.parse, columns=fields))
        for fields in nvidia_smi.POORER
    ),
    (nvidia_smi.LIST_ARGUMENTS, nvidia_smi.parse_list),
)
# After these words no other list says more.
_FINAL = re.compile(
    r"NVIDIA-SMI has failed|No devices were found|Failed to initialize NVML"
    r"|couldn't find libnvidia-ml",
    re.IGNORECASE,
)
# What it says where it has nothing to list because there is no GPU.
_NO_GPU = "no devices were found"
# What else it says in place of a list, with NVML's code for it.
_REFUSALS: tuple[tuple[str, State, int], ...] = (
    ("insufficient permissions", "denied", 4),
    ("driver/library version mismatch", "error", 18),
    ("couldn't communicate with the nvidia driver", "error", 9),
    ("driver not loaded", "error", 9),
    ("couldn't find libnvidia-ml", "error", 12),
    ("gpu is lost", "error", 15),
    ("operating system", "error", 17),
    ("unknown error", "error", 999),
)


def ask(look: Trace, program: str, until: float) -> Reply:
    """Its list in NVML's shape, an empty one where it says so, or why there is none, by NVML's code.

    An old nvidia-smi knows no XML, and one that fails for one GPU may list the others all the same.
    A list that names fewer GPUs than it counts was cut off: another one may be whole.
    """
    results: list[CommandResult] = []
    partial: dict[str, Any] = {}
    for arguments, parse in _LISTS:
        if arguments in _POORER and crashed(results[-1]):
            continue  # not for the fields that it was asked for
        result = _run(look, (program, *arguments), until)
        if result.state == "timeout":
            return Reply("timeout", None, program, "no answer before its deadline")
        value = parse(result.stdout) and parse(result.text)  # lost cards stand in stderr
        if value is not None and _missing(value, partial):
            number = counted(len(value["devices"]), "GPU")
            _saw(look, result, "error", f"it broke off after {number}")
            partial = partial or value
            results.append(result)
            continue
        if value is not None:
            _saw(look, result, "present", counted(len(value["devices"]), "GPU"))
            if parse is nvidia_xml.parse:
                value = _with_compute(look, program, value, until)
            if arguments != nvidia_smi.LIST_ARGUMENTS and _has_mig(value):
                value = _with_instances(look, program, value, until)
            return Reply("present", value, program)
        _saw(
            look, result, "error", kept(result.text) or f"it ended as {result.state}, with no word"
        )
        results.append(result)
        if gives_up(result):
            break
    if partial:
        return Reply("present", partial, program)
    answer = _refusal(program, results)
    if answer.state != "error" or answer.code is not None:  # it named a cause
        look.saw("nvidia-answer", answer.state, program, answer.detail, answer.code)
    return answer


def _missing(value: Mapping[str, Any], partial: Mapping[str, Any]) -> bool:
    """Whether GPUs are missing in a list that were counted, by itself or by one before it."""
    counts = (each.get("count") for each in (value, partial))
    return any(count is not None and len(value["devices"]) < count for count in counts)


def _refusal(program: str, results: list[CommandResult]) -> Reply:
    """Why there is no list: garbage and silence are no word that there is nothing."""
    said = " ".join(result.text[:_WORDS] for result in results).lower()
    first = results[0]
    if _NO_GPU in said:
        return Reply("present", {"devices": []}, program, "nvidia-smi says: No devices were found")
    for words, state, code in _REFUSALS:
        if words in said:
            return Reply(state, None, program, f"nvidia-smi says: {_short(results[-1])}", code)
    if first.state != "present":
        why = f"nvidia-smi gives no answer: {_short(first)}"
    elif not first.text.strip():
        why = f"nvidia-smi printed nothing (exit code {first.code})"
    else:
        why = f"what nvidia-smi prints is not a list of GPUs: {_short(first)}"
    return Reply("error", None, program, why)


def gives_up(result: CommandResult) -> bool:
    """Whether it would say no more if it were asked in another way."""
    return result.state != "present" or bool(_FINAL.search(result.text[:_WORDS]))


def crashed(result: CommandResult) -> bool:
    """By a signal, as the kernel or a shell in between says it."""
    return result.code is None or not 0 <= result.code < 128


def _short(result: CommandResult) -> str:
    text = " ".join(kept(result.text).split())
    return text if len(text) <= _SENTENCE else f"{text[:_SENTENCE]}..."


def _run(look: Trace, argv: tuple[str, ...], until: float) -> CommandResult:
    left_s = max(0.1, until - look.machine.clock())
    result = look.machine.run(argv, deadline_s=left_s)
    if result.state == "timeout":
        _saw(look, result, "timeout", "no answer before its deadline")
    return result


def _with_compute(look: Trace, program: str, value: dict[str, Any], until: float) -> dict[str, Any]:
    """The log leaves the compute capabilities out."""
    result = _run(look, (program, *nvidia_smi.ARGUMENTS), until)
    if result.state == "timeout":
        return value
    more = nvidia_smi.parse(result.stdout)
    state = "present" if more else "error" if crashed(result) else "unsupported"
    _saw(look, result, state, None if more else kept(result.text) or "it printed nothing")
    return nvidia_smi.fill(value, more)


def _with_instances(
    look: Trace, program: str, value: dict[str, Any], until: float
) -> dict[str, Any]:
    """MIG profiles and UUIDs stand in the short list alone."""
    result = _run(look, (program, *nvidia_smi.LIST_ARGUMENTS), until)
    listed = nvidia_smi.parse_list(result.stdout) if result.state != "timeout" else None
    if result.state != "timeout":
        _saw(look, result, "present" if listed else "error", None if listed else kept(result.text))
    return nvidia_smi.add_list(value, listed)


def _has_mig(value: Mapping[str, Any]) -> bool:
    return any(device.get("mig_mode") == 1 for device in value["devices"])


def _saw(look: Trace, result: CommandResult, state: Any, detail: str | None) -> None:
    look.saw("nvidia-smi", state, " ".join(result.argv), detail, result.code)
