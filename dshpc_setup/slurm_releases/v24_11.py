"""Slurm 24.11, of Debian 13: each text with the file of its source that prints it."""

from __future__ import annotations

from dshpc_setup.slurm_releases.model import (
    Defaults,
    JobReasons,
    NodeReasons,
    Options,
    Package,
    Phrases,
    Release,
)

# slurmctld's node_mgr.c, gres.c, agent.c and job_mgr.c, slurmd's req.c, slurmstepd's mgr.c
NODE = NodeReasons(
    fewer_gres=r"gres/\w+ count (?:reported lower|too low)",
    too_little=r"Low (?:RealMemory|TmpDisk|CPUs|socket\*core)",
    restarted=r"Not responding|Node unexpectedly rebooted|gres/gpu|Duplicate|Reboot ASAP",
    former_run=r"Duplicate jobid",
    kill_failed=r"Kill task failed",
    program_failed=r"(Prolog|Epilog) error\b",
    launch_failed=r"batch job complete failure",
    # stepd_drain_node and step_terminate_monitor in slurmstepd, slurm_errno.c
    of_slurmstepd=("Kill task failed", "Job step not running"),
)

JOBS = JobReasons(
    waits={
        "": "first_look",
        "None": "first_look",
        "Priority": "turn",
        "Resources": "resources",
        "BadConstraints": "unfit",
        "Dependency": "dependency",
        "DependencyNeverSatisfied": "never",
        "BeginTime": "time",
        "PartitionTimeLimit": "time_limit",
        "JobArrayTaskLimit": "array",
        "Licenses": "licenses",
        "Reservation": "reservation",
        "Prolog": "prolog",
        "Cleaning": "cleaning",
        "ReqNodeNotAvail": "node",
    },
    # Reasons, and the texts that job_mgr.c has in their place
    held={
        "JobHeldUser": "person",
        "JobHeldAdmin": "administrator",
        "JobHoldMaxRequeue": "launches",
        "launch failure limit exceeded requeued held": "launches",
        "launch failed requeued held": "launch",
        "job requeued in held state": "requeue",
        "job requeued in special exit state": "special_exit",
        "SpecialExit": "special_exit",
        "ReservationDeleted": "lost_reservation",
    },
    passes=r"|None|Priority|Resources|Dependency|BeginTime|Licenses|Reservation|Prolog|Cleaning|SchedDefer"
    r"|JobArrayTaskLimit|FedJobLock|BurstBuffer.*|ReqNodeNotAvail.*|Nodes_required_for_job_are_DOWN.*"
    r"|(?:Assoc|QOS)Grp.*|QOSMax.*PerUser.*|(?:QOS)?Max.*PerAccount",
    no_rival=frozenset(
        "BadConstraints BeginTime Dependency DependencyNeverSatisfied JobArrayTaskLimit PartitionDown "
        "PartitionInactive PartitionNodeLimit PartitionTimeLimit Reservation".split()
    ),
)

SAYS = Phrases(
    # slurm_errno.c. Not "(connect failure)", where nothing was sent
    answer_lost=r"Socket timed out on send/recv operation|Zero Bytes were transmitted or received"
    r"|Message (?:send|receive) failure|Communication shutdown failure"
    r"|controller \((?:send|receive|shutdown) failure\)"
    r"|Header lengths are longer than data received|Received zero length message"
    r"|Failed to send entire message",
    full=r"temporarily unable to accept job",  # at each try: no error of its own
    no_such_job=r"(?i)Invalid job id specified",
    must_wait=r"Unable to allocate resources",
    not_here_now=r"configuration not available now",
    complaint=r"(?:^|\s)(?:error|fatal): (.*)",
    controller_up=r" is UP",
    controller_down=r" is DOWN",
    controller_serves=r"Running as primary controller",
    gpu_without_file=r"warning: (Ignoring file-less .*)",
    # exec_task in src/slurmd/slurmstepd/task.c: the last words of a task that was not begun
    task_prolog_failed=r"error: TaskProlog failed status=(\d{1,3})\b",
    program_ended=r"\b(prolog|epilog) failed status=(\d+):(\d+)",  # slurmd's req.c
    unknown_key=r"unrecognized key: (\S+)",
    not_parsed=r"Parse error in file (\S+) line (\d+)",
    not_included=r"cannot stat file \S*?([^/\s]+):",
    harmless=r"Could not open .* state file|_prepare_run_dir|Waiting for gres.conf file"
    r"|Configured MailProg|Job accounting information|Database settings not recommended",
    job_with_invalid_gres=r"(?i)(?:_rpc_|JobId|_job_).*invalid (?:generic resource|gres)",
    about_gres=r"(?i)invalid (?:generic resource|gres)|Ignoring file-less GPU|gres\.conf",
)

DEFAULTS = Defaults(
    array_size=1001,
    job_count=10_000,
    controller_port=6817,
    node_port=6818,
    token_s=60,  # DEFAULT_TTL of auth_slurm.h
    requeue_delay_s=120,  # batch_requeue_fini in job_mgr.c
    unlimited_minutes=365 * 24 * 60,
)

# Tried one by one: `sbatch --help` has some wrong
OPTIONS = Options(
    sbatch=frozenset(
        "contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue oom-kill-step "
        "overcommit oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job "
        "test-only usage use-min-nodes verbose version wait".split()
    ),
    sbatch_short="hHkOQsvVW",
    srun=frozenset(
        "bell compress disable-status exact immediate interactive kill-command kill-on-bad-exit label "
        "multi-prog no-allocate no-bell no-shell overlap preserve-env pty quit-on-interrupt send-libs "
        "unbuffered".split()
    ),
    srun_short="hHkOQsvVEIKluXZ",
)

# security-tracker.debian.org/tracker/source-package/slurm-wlm
PACKAGE = Package(
    version="24.11.5",
    fixed=(4, 1),
    fixed_text="24.11.5-4+deb13u1",
    holes="CVE-2026-65107, CVE-2026-65108, CVE-2026-65109, CVE-2026-65138",
)

# RELEASE_NOTES of 24.11: daemons of 23.02 and above
RELEASE = Release((24, 11), NODE, JOBS, SAYS, DEFAULTS, OPTIONS, (23, 2), PACKAGE)
