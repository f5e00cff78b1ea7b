"""The rules of `told` as data, for the site's search box, which tells causes in the browser. Pure.

What is decided by the machine of which nothing is known is decided here. Of the kernel's log go along the
words that alone make a fault (`Check.in_log`): what a later line takes back is told as a fault there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from dshpc_setup import pasted
from dshpc_setup.checkup.kernel import ABOUT
from dshpc_setup.diagnose import catalogue
from dshpc_setup.passthrough.causes import RULES
from dshpc_setup.passthrough.rules import Refusal
from dshpc_setup.pasted.signs import FIRST, LAST, NEXT, Sign

# One token of a pattern: an escape, a class, a named group, an inline flag, or a letter.
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<|\(\?m\)|.", re.DOTALL)
_IN_BROWSERS = {
    r"\A": r"(?<![^])",
    r"\Z": r"(?![^])",
    "(?P<": "(?<",
    "(?m)": "",
    ".": r"[^\n]",
}


def rules() -> dict[str, Any]:
    """Patterns are a browser's, to be used with its flag `i` alone."""
    checks = catalogue()
    return {
        "titles": {check.id: check.fault_title for check in checks},
        "first": _signs(FIRST),
        "log": [
            {
                "finding": check.id,
                "because": check.because,
                "words": pattern(said.words),
                "unless": pattern(said.unless),
            }
            for check in checks
            for said in check.in_log
        ],
        "about": pattern(ABOUT.pattern),
        "next": _signs((*NEXT, *pasted.of_vendors())),
        "refusals": [
            {
                "finding": rule.finding,
                "words": pattern(rule.pattern),
                "holds": rule.when(Refusal(pasted.unknown_machine(), "none")),
                "general": rule.finding in pasted.GENERAL,
            }
            for rule in RULES
            if rule.finding not in pasted.IN_A_TEST_ALONE
        ],
        "ofEngines": pattern(pasted.OF_ENGINES.pattern),
        "last": _signs(LAST),
        "numbered": pattern(pasted.NUMBERED.pattern),
        "again": pattern(pasted.AGAIN.pattern),
        "escapes": pattern(pasted.ESCAPES.pattern),
        "most": pasted.MOST,
        "shown": pasted.SHOWN,
    }  # fmt: skip


def _signs(signs: Iterable[Sign]) -> list[dict[str, Any]]:
    return [
        {"findings": each.findings, "words": pattern(each.words), "also": pattern(each.also)}
        for each in signs
    ]


def pattern(python: str) -> str:
    r"""The pattern as browsers write it, without Python's flags. `\w` is ASCII's there."""
    by_line = "(?m)" in python
    return "".join(_token(found[0], by_line) for found in _TOKEN.finditer(python))


def _token(text: str, by_line: bool) -> str:
    if text == "$":
        return r"(?=\n|(?![^]))" if by_line else r"(?=\n?(?![^]))"
    if text == "^":
        return r"(?<=\n|(?<![^]))" if by_line else r"(?<![^])"
    return _IN_BROWSERS.get(text, text)
