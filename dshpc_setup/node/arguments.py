"""What the commands of dshpc-node have in common: their arguments, and where the cluster keeps its files."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dshpc_setup.slurm.paths import Paths

HELP = """usage: dshpc-node COMMAND [ARGUMENT...]

  start                         Start the cluster in this container: its entrypoint
  wait [--timeout SECONDS]      Wait until it is ready (exit code 0) or has failed (2); 3 in between
  status                        Show how the start went, as a JSON object
  health                        Check that Slurm answers: the container's health check
  doctor [-v|--json]            Find what is wrong, and show why and how to fix it
  reconfigure                   Detect, render and check again, while jobs keep running
  rotate-key                    Make a new key for the cluster, while jobs keep running
  saved-state check             Check that slurmctld can read the queue that it has saved
  saved-state restore|give-up   Replace a queue that it cannot read by a copy, or by an empty one
  longest-wait                  Let jobs that have waited for longest_wait come first: a service calls it
  help                          Show this

For the dshpc command on the host:
  observe                       Print what `dshpc doctor` asks, as a JSON object
  detect [OPTION...]            Print what this node sees, as `dshpc detect` has it
  backup                        Print queue, users, keys and accounting as an archive
  restore check|accept|drop     Check a backup on stdin; let the next start take it; forget it
  check                         Try whether a start here would succeed; print a JSON object
  add-user UID GID NAME [HOME]  Make a user of the host known here
  associate                     Let all known users run jobs, where accounting is on
  hold begin|renew|end          Let no job begin while those that run are waited for
  homes kept|copy UID=HOME...  Show what is kept of users, or copy it into homes of their own
  add-ground WORK UID GID       Make the folder of a user's workspaces
  forget-node NODE              Make the cluster forget a node that has left it
  join-about                    Print Slurm's version and its user, as JSON
  give-key                      Print what a machine that joins is given, as JSON: the key is in it
  take-key                      Take that, from stdin
  keep-users NODE               Take who has accounts on a node's machine, from stdin
  listen-anew                   Let slurmd listen where this machine has its address now
  collect-offers                Write down what nodes on other machines offer; print their names
  ssh-certify UID GID NAME      Certify the host key of a user's sessions, read from stdin
  use [--live]                  Print what jobs have used, or those that run, as JSON
  metrics                       Print what slurmctld says of jobs and nodes, as JSON
  sample-use                    Watch the GPUs that jobs hold: the service `use`
  carry                         Carry workspaces to nodes without the work folder: the service `carry`
  carried begin|end JOB ...     Make or remove the place of a job's workspace: Slurm's prolog and epilog
  job VERB ...                  Answer `dshpc job`, `dshpc run`, `dshpc method run` and `dshpc workflow`"""


def own_paths() -> Paths:
    from dshpc_setup.slurm.paths import Paths

    if os.environ.get("DSHPC_ROLE") != "worker":
        return Paths()
    return Paths(worker=os.environ.get("DSHPC_NODE", ""))


def for_host() -> bool:
    """Whether it is the host's dshpc that asks."""
    from dshpc_setup.slurm.paths import FROM_HOST

    return FROM_HOST.partition("=")[0] in os.environ


def no_arguments(rest: list[str]) -> None:
    if rest:
        raise wrong_usage(f"{rest[0]!r} was not expected here.")


def wrong_usage(brief: str) -> Exception:
    from dshpc_setup.errors import usage_error

    return usage_error(brief, HELP)
