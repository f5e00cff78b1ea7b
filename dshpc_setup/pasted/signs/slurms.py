"""What Slurm's programs and daemons say, and its reasons for jobs and nodes."""

from __future__ import annotations

from dshpc_setup.pasted.signs.sign import sign

SLURM = (
    sign("SL-013 SL-036 SL-022", "gres/gpu count (?:reported lower|too low)"),
    sign(
        "SL-014",
        r"\blow (?:real_?memory|cpus|tmp_?disk|socket\*core)",
        "node configuration differs from hardware",
    ),
    sign("SL-015", r"\bkill task failed\b", "due to job not ending with signals"),
    sign("SL-016", r"\b(?:prolog|epilog) (?:error|failed)\b"),
    sign("SL-052", r"\btaskprolog failed status="),
    # job_mgr.c and job_state_reason.c (24.11); squeue writes some with underscores
    sign(
        "SL-051 SL-016",
        r"\blaunch[ _]failed[ _]requeued[ _]held\b",
        r"\blaunch failure limit exceeded requeued held\b",
        r"\bjobholdmaxrequeue\b",
    ),
    sign(
        "SL-051", r"\bjobheld(?:user|admin)\b", r"\bjob requeued in (?:held|special exit) state\b"
    ),
    sign("SL-017", "batch job complete failure"),
    # gres.c: "fatal: Invalid GRES record for gpu, count does not match File value"
    sign("FI-005 SL-010 SL-020", r"\binvalid gres record\b"),
    sign("SL-036 SL-010", r"(?:can't stat|waiting for) gres\.conf file"),
    sign(
        "SL-021",
        "configured to autodetect nvml functionality, but",
        "built without gpu support",
        r"plugin (?:name )?for gpu/(?:nvml|rsmi|oneapi)\b",
    ),
    sign(
        "SL-020 SL-023",
        "invalid generic resource",
        "invalid gres specification",
        "gres format wrong",
        "invalid GPU specification",
    ),
    sign(
        "SL-030 SL-026",
        "incompatible versions of client and server",
        "credential data mismatch",
        "invalid job credential",
    ),
    # dbd_conn.c and sacctmgr (24.11, 26.05): slurmdbd is away
    sign(
        "SL-057",
        r"\bslurmdbd\(\w+\) at \S+ is down\b",
        r"\bsending persistinit msg: (?:connection|no route|operation timed)",
        "association database appears down",
    ),
    sign(
        "SL-028 SL-026",
        r"\b(?:expired|rewound) credential",
        "credential expired",
        "out of sync clocks",
    ),
    sign(
        "SL-026 SL-028",
        "munge[ _](?:encode|decode) failed",
        r"\bmunged?: error:",
        r"\bmunge\.socket\.2\b.{0,80}(?:no such file|permission denied|refused)",
        "zero bytes were transmitted or received",
        r"\bmunged? communication error",
        "protocol authentication error",
        "invalid authentication credential",
        "has authentication error",
    ),
    sign("SL-037 SL-025 SL-004", r"\binvoked oom-killer\b"),
    sign(
        "SL-025 SL-037 SL-024",
        r"\boom.?kill event",
        "exceeded (?:job|step) memory limit",
        r"\bOUT_OF_MEMORY\b",
        r"\btasks? [\d,-]+: out of memory",
    ),
    sign("SL-025 SL-037 SL-004", "DefaultCPUAllocator: (?:can't|not enough).{0,20} memory"),
    sign("SL-037 SL-025 SL-004", "out of memory: killed process", r"\boom-kill:constraint"),
    sign("SL-004 SL-037", r"\bOOMKilled\b"),
    sign(
        "SL-046",
        "fork: (?:retry: )?resource temporarily unavailable",
        "pthread_create failed",
        r"\bcannot fork\b",
        "can't start new thread",
        "fork rejected by pids controller",
    ),
    sign(
        "SL-009 SL-008",
        r"\bslurmctld is stopped",
        r"stopping slurmctld: \[failed\]",
        "slurmctld: fatal:",
        r"\bslurmctld: error \(spawn error\)",
        r"\bslurmctld\.service(?: failed|: (?:failed|start operation timed out|main process exited))",
        "failed to start slurm controller daemon",
        r"\bslurmctld (?:is in the|entered) FATAL state",
        r"\bslurmctld is not (?:available|running)\b",
        "waiting for slurmctld",
        r"\bslurmctld version .{1,2000}\bfatal:",
        r"cannot find \w{1,20} plugin for \w{1,20}/munge",
    ),
    sign(
        "SL-032 SL-010",
        r"\bslurm.{0,200}(?:unable to resolve .{1,80}unknown host|name or service not known)",
    ),
    sign(
        "SL-010 SL-036",
        "slurmd: fatal:",
        "slurmd initialization failed",
        r"\bslurmd\.service(?: failed|: (?:failed|start operation timed out|main process exited))",
        "failed to start slurm node daemon",
        "failed to fetch remote configs",
        r"\bslurmd: error \(spawn error\)",
        r"\bslurmd (?:is in the|entered) FATAL state",
        r"\bslurmd version .{1,2000}\bfatal:",
        r"(?:cannot|can't|couldn't) (?:create|load|initialize|find) .{0,60}"
        r"\b(?:proctrack|task|cgroup)(?:/\w+| plugin)",
    ),
    sign(
        "SL-008 SL-009 SL-001",
        "unable to contact slurm controller",
        r"\b(?:slurm\w*|s(?:run|batch|alloc|info|queue|control)): .{0,80}socket timed out on send/recv",
        r"slurmctld\(primary\).{0,80}is down",
    ),
    sign(
        "SL-018 SL-010",
        r"nodes? \S{1,80} not responding",
        r"\bnot responding, setting down",
        "node unexpectedly rebooted",
    ),
    sign(
        "SL-023 SL-020",
        "requested node configuration is not available",
        "memory specification can not be satisfied",
        "more processors requested than permitted",
        "CPU count per node can not be satisfied",
        "memory required by task is not available",
        "node count specification invalid",
        r"\bdependencyneversatisfied",
    ),
    sign("SL-012 SL-002", r"\bnode \S{1,80} is (?:being )?(?:drained|draining)\b"),
    sign("SL-018 SL-002 SL-010", r"\bnode \S{1,80} is down\W"),
    sign(
        "SL-012 SL-018 SL-002",
        r"\bReqNodeNotAvail\b",
        "nodes required for job are down, drained or reserved",
        "required nodes? not available",
    ),
    sign("SL-019 SL-013 SL-014", r"\bCoreSpec differ\b", r"\bINVALID_REG\b", r"\bstate to INVAL\b"),
)
