"""Each kind of repair as it is done on this machine, or why it is not. Pure.

What goes into a command comes from facts, never from the text of a finding, and is one argument of it.
"""

from __future__ import annotations

from collections.abc import Callable

from dshpc_setup.diagnose import CheckInput
from dshpc_setup.errors import Want
from dshpc_setup.repair import cluster_repairs, engine_repairs
from dshpc_setup.repair.model import Host, Kind, Made


def make(want: Want, known: CheckInput, here: Host) -> Made:
    """The repairs of that kind."""
    kind, about = want
    return _MAKERS[kind](known, here, about)


_MAKERS: dict[Kind, Callable[[CheckInput, Host, str], Made]] = {
    "load-uvm": engine_repairs.load_uvm,
    "start-engine": engine_repairs.start_engine,
    "register-runtime": engine_repairs.register,
    "enable-cdi": engine_repairs.enable_cdi,
    "write-cdi": engine_repairs.write_cdi,
    "restart-engine": engine_repairs.restart_engine,
    "restrict-env": cluster_repairs.restrict_env,
    "start-cluster": cluster_repairs.start_cluster,
    "restrict-key": cluster_repairs.restrict_key,
    "start-daemon": cluster_repairs.start_daemon,
    "restart-cluster": cluster_repairs.restart_cluster,
    "resume-node": cluster_repairs.resume,
    "reconfigure": cluster_repairs.reconfigure,
    "render": cluster_repairs.render,
}
