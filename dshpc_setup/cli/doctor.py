"""The checks on the screen."""

from __future__ import annotations

from dshpc_setup.cli.console import as_called
from dshpc_setup.diagnose import Finding

_MARKS = {"ok": "ok", "info": "--", "warn": "!", "error": "!!", "skipped": "..", "crashed": "??"}


def print_findings(findings: tuple[Finding, ...]) -> None:
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(section)
        print(f"  {_MARKS[finding.state]:<3}{finding.id}  {finding.title}")
        if finding.state in ("ok", "skipped"):
            continue
        for line in (finding.cause, *finding.evidence):
            if line:
                print(f"       {line}")
        for fix in finding.fix:
            step = fix.text + (f": {fix.command}" if fix.command else "")
            print(f"       -> {as_called(step)}")
