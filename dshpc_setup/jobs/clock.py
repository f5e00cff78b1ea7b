"""Times as the people who ask have them: the container's clock may be of another zone than theirs."""

from __future__ import annotations

import os
import re
import time

# Set by cli/exec.py: what the caller's clock is before UTC now, in seconds, and the name of its zone
OFFSET, ZONE = "DSHPC_UTC_OFFSET_S", "DSHPC_TZ"


def told(seconds: float) -> str:
    """Seconds since 1970 as "2026-11-22 07:42:02"."""
    offset = os.environ.get(OFFSET, "")
    here = (
        time.gmtime(seconds + int(offset))
        if re.fullmatch(r"-?[0-9]{1,5}", offset, re.ASCII)
        else time.localtime(seconds)
    )
    return time.strftime("%Y-%m-%d %H:%M:%S", here)


def of_text(text: str) -> str:
    """The same of "2026-11-22T06:42:02Z" or another zone's; a text that is no such time, as it is."""
    from datetime import datetime  # imports are counted

    try:
        there = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return text
    return told(there.timestamp()) if there.tzinfo else text


def variables() -> dict[str, str]:
    """What gives a program, and the job that it submits, the caller's clock."""
    zone = os.environ.get(ZONE)
    return {"TZ": zone} if zone else {}
