"""Settings that cannot be used: those of dshpc.yaml, and those that stand elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from dshpc_setup.diagnose.files_known import there
from dshpc_setup.diagnose.model import CheckInput, Verdict, fault, fine
from dshpc_setup.errors import Fix
from dshpc_setup.settings.wrong import WrongSetting


def settings_file(known: CheckInput) -> Verdict:
    """Where the settings are wrong elsewhere, as in the environment, another check says it."""
    wrong = [each for each in known.observed.settings_wrong if each.in_own_file]
    if not wrong:
        return fine()
    names = dict.fromkeys(each.setting for each in wrong if each.setting and each.kind != "twice")
    plain = any(each.setting is None or each.kind == "twice" for each in wrong)
    editor = Fix(f"Correct what is named with an editor, {there(known)}")
    return fault(
        "dshpc.yaml cannot be used: nothing can be planned or written before it is corrected.",
        *told_settings(wrong),
        fix=(
            *([editor] if plain else []),
            *(Fix(f"Take {name} out", f"dshpc config unset {shlex.quote(name)}") for name in names),
            Fix(
                "Or set it again; all settings are listed by",
                "dshpc config set --help",
                step="alternative",
            ),
        ),
    )


def settings_elsewhere(known: CheckInput) -> Verdict:
    """Settings that stand anywhere but in dshpc.yaml, of which DSH-FI-011 speaks."""
    wrong = [each for each in known.observed.settings_wrong if not each.in_own_file]
    if not wrong:
        return fine()
    return fault(
        "A setting cannot be used, so that it is not known what the cluster is to be.",
        *told_settings(wrong),
        fix=tuple(_settings_fixes(wrong)),
    )


def _settings_fixes(wrong: Sequence[WrongSetting]) -> Iterator[Fix]:
    variables = [each.where for each in wrong if each.origin == "environment"]
    if variables:
        yield Fix(
            "See which variables of this shell are settings", "env | grep DSHPC_", step="look"
        )
        yield Fix("Take out what is wrong", f"unset {shlex.join(variables)}")
    remembered = [each.setting for each in wrong if each.origin == "remembered" and each.setting]
    if remembered:
        command = f"dshpc config unset {shlex.join(remembered)}"
        yield Fix("Forget what a flag of an earlier run chose", command)
    for each in wrong:
        if each.origin != "environment" and not (each.origin == "remembered" and each.setting):
            yield Fix(each.remedy)


def told_settings(wrong: Sequence[WrongSetting]) -> Iterator[str]:
    """What is wrong with each, in the order of the file, and why below it."""
    for each in sorted(wrong, key=lambda item: item.place):
        first, *more = each.lines
        yield first
        yield from (f"  {line}" for line in more)
