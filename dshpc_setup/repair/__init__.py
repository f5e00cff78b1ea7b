"""`dshpc doctor --fix`: the safe repairs, shown, asked for, done, and checked. See docs/architecture.md.

model     a repair, and what has to be known of the machine for it: values
asked     which repairs a finding asks for, by the commands of its fixes; pure
repairs   each repair made of facts, or why it is none here: engine_repairs, cluster_repairs, node; pure
plan      all of them in the order of their dependence; pure
around    what the plan needs beside what doctor knows
backup    copies of files before a tool changes them
work      doing one repair: engine_restart
lock      one run at a time
run       showing, asking, doing, checking again
told      what was done, for people and as JSON
"""

from __future__ import annotations

from dshpc_setup.repair.model import Host, Plan, Repair
from dshpc_setup.repair.outcome import Done, Outcome
from dshpc_setup.repair.plan import plan
from dshpc_setup.repair.run import RepairOptions, repair_findings

__all__ = ["Done", "Host", "Outcome", "Plan", "Repair", "RepairOptions", "plan", "repair_findings"]
