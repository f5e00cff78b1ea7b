"""The search box of the site tells the causes that `dshpc explain` tells: both are asked about each text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from dshpc_setup.pasted import exported, told
from tests.unit.diagnose.kernel_texts import POSTED, RAS

ROOT = Path(__file__).parents[2]
_ASKED = """
const asked = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(asked.texts.map((text) => dshpcExplain(asked.rules, text))));
"""


def texts() -> list[str]:
    """What people posted, and lines of the kernel's log; with what a terminal and a web page do to them."""
    posted = [
        json.loads(line)["text"]
        for name in ("first", "second", "later")
        for line in (ROOT / f"tests/messages/{name}.jsonl").read_text("utf-8").splitlines()
    ]
    logs = [each.text for each in POSTED] + [line for line, _ in RAS]
    coloured = f"\x1b[31m{posted[0]}\x1b[0m \u2018x\u2019"
    return [*posted, *logs, coloured, "x" * 40_000 + posted[0], ""]


def in_a_browser(asked: list[str]) -> list[dict[str, Any] | None]:
    script = (ROOT / "docs/assets/explain.js").read_text("utf-8") + _ASKED
    done = subprocess.run(
        ["node", "-e", script],
        input=json.dumps({"rules": exported.rules(), "texts": asked}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: list[dict[str, Any] | None] = json.loads(done.stdout)
    return found


def test_it_tells_the_causes_that_explain_tells() -> None:
    asked = texts()
    wrong = []
    for text, there in zip(asked, in_a_browser(asked), strict=True):
        here = told(text)
        expected = None if here is None else [here.finding, *here.besides]
        found = None if there is None else [there["finding"], *there["besides"]]
        if found != expected:
            wrong.append(f"{found} for {expected}: {text[:200]}")
    assert len(asked) > 400
    assert wrong == []
