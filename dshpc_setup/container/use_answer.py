"""`dshpc-node use`: what jobs of this node have used, for the host's dshpc."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Any

from dshpc_setup.usage import ledger, live

SCHEMA = "dshpc.node-use/1"


def tell(*, live_only: bool, folder: str = ledger.FOLDER) -> None:
    """One JSON object on stdout: jobs that run, and sums of those that have ended."""
    told: dict[str, Any] = {"schema": SCHEMA, "live": asdict(live.read(None, folder))}
    if not live_only:
        told["sums"] = [asdict(each) for each in ledger.all_sums(None, folder)]
    sys.stdout.write(json.dumps(told) + "\n")
