"""What a slurmctld that is killed knows afterwards: what it has written down by then.

It writes a few seconds after something changed, and not again until the next change: a wait for a newer
file that begins just after it has written would not end. So the wait begins with a change.
"""

from __future__ import annotations

from dshpc_setup.slurm.paths import Paths

# In the container, as root; ends once all is written that was true when it began
SAVED = f"""
seen=$(mktemp); sleep 0.02; changed=
for job in $(squeue --noheader --states=all --format=%A | sort -u); do
    if scontrol update jobid="$job" comment=saved 2>/dev/null; then changed=yes; fi
done
# jobs that have ended are not changed any more
[ "$changed" ] || scancel "$(sbatch --parsable --hold --chdir=/ --output=/dev/null --wrap=true)"
until [ {Paths().state}/slurmctld/job_state -nt "$seen" ]; do sleep 0.1; done
rm "$seen"
"""
