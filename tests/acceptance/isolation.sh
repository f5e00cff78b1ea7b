#!/bin/bash
# The isolation tier "enforced" on cgroup v2: what jobs can really open, use and keep.
# Runs as root in the guest, with a checkout and a base image handed in:
#   tests/acceptance/guest run --carry-base tests/acceptance/isolation.sh
# The GPUs are device nodes with numbers that no driver has: an open that is allowed
# ends with "No such device or address", one that is refused with "Operation not permitted".
# The deadlines of the cluster's start are for real machines: run it on a host that is
# otherwise idle.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh

PROJECT=/srv/dshpc
NODES=/srv/nodes
NAME=enforced
ALLOWED="No such device or address"
REFUSED="Operation not permitted"
# shellcheck disable=SC2016  # the job's shell expands it
LOOK='for n in 0 1; do (exec 3<>/dev/nvidia$n) 2>&1 | sed "s/.*: //"; done; echo "gpus=$CUDA_VISIBLE_DEVICES"'

lines() { printf '%s\n' "$@"; }
in_slurm() { timeout 240 docker exec "$NAME" "$@"; }

start() { # start [docker option...]
    docker rm -f "$NAME" >/dev/null 2>&1
    # shellcheck disable=SC2046  # an option a word
    docker run -d --name "$NAME" --hostname node --cap-drop ALL --security-opt no-new-privileges \
        $(printf -- '--cap-add %s ' CHOWN DAC_OVERRIDE FOWNER KILL SETGID SETUID) \
        --device "$NODES/0:/dev/nvidia0" --device "$NODES/1:/dev/nvidia1" \
        --env DSHPC_PREFIX=node --env DSHPC_SIMULATE=h100:2 --env DSHPC_ISOLATION=enforced \
        "$@" "$image" >/dev/null
}

ready() { in_slurm dshpc-node wait --timeout 200 >/dev/null || { docker logs --tail 30 "$NAME"; return 1; }; }

beyond_memory() { # a job that takes more than it asked for is ended by the kernel
    local said
    said=$(in_slurm srun --mem=60 python3 -c 'len(bytearray(300 << 20))' 2>&1) && return 1
    echo "$said"
    grep -q 'oom_kill event' <<<"$said"
}

run_job() { # run_job MEMORY_MB SCRIPT: a job as `dshpc run --wait` submits and follows it; the last lines
    local answer number
    answer=$(docker exec -i "$NAME" sh -c 'mkdir -p /tmp/w && exec dshpc-node job submit' <<END
{"schema": "dshpc.job-request/1", "kind": "command", "name": "test", "argv": ["python3", "-c", "$2"],
 "work": "/tmp/w", "resources": {"memory_mb": $1}, "parameters": [{}], "inputs": [], "targets": []}
END
    )
    number=$(grep -o '"job_id": "[0-9]*"' <<<"$answer" | head -n 1 | tr -dc 0-9)
    [ -n "$number" ] || { echo "$answer"; return 1; }
    in_slurm dshpc-node job follow "$number" --work /tmp/w 2>&1 | tail -n 6
    in_slurm dshpc-node job show "$number" --work /tmp/w --json | grep -E '"(out_of_memory|state|exit_code|signal)"'
}

told() { # told MEMORY_MB: the launcher says that its job was ended for its memory
    local said
    said=$(run_job "$1" 'len(bytearray(2000 << 20))')
    echo "$said"
    grep -q 'the kernel ended it, for the memory' <<<"$said" && grep -q '"out_of_memory": "host"' <<<"$said"
}

not_told() { # a job that ends itself by the same signal was not
    local said
    said=$(run_job 200 'import os; os.kill(os.getpid(), 9)')
    echo "$said"
    grep -q '"out_of_memory": null' <<<"$said" && grep -q SIGKILL <<<"$said"
}

refused() { # refused COMMAND...: it ends with a refusal of the kernel's
    local said
    said=$(in_slurm "$@" 2>&1) && return 1
    echo "$said"
    grep -qiE 'Operation not permitted|permission denied' <<<"$said"
}

fills_shared_memory() { # files in /dev/shm outlive the small processes that wrote them
    # shellcheck disable=SC2016  # the job's shell expands it
    local fill='head -c 300M /dev/zero >/dev/shm/$SLURM_JOB_ID' said
    said=$(in_slurm timeout 120 srun --mem=60 sh -c "$fill; $fill; exit 1" 2>&1) && return 1
    echo "$said"
    grep -q 'Out Of Memory' <<<"$said" || return 1
    in_slurm sbatch -J fills -D / -o /dev/null --mem=60 --wrap "$fill; $fill; $fill" || return 1
    timeout 120 sh -c "until docker exec $NAME squeue -h -a -t all -n fills -o %T | grep -x OUT_OF_MEMORY; do sleep 1; done"
}

none_left() { # what such a job leaves takes up no memory
    timeout 60 sh -c "until [ -z \"\$(docker exec $NAME ls /dev/shm)\" ]; do sleep 1; done"
}

step_daemon_apart() { # slurmstepd is not in a group of the job whose memory it watches; the task is
    local said
    # shellcheck disable=SC2016  # the job's shell expands it
    said=$(in_slurm srun sh -c 'cat /proc/$PPID/cgroup /proc/self/cgroup /proc/self/oom_score_adj')
    echo "$said"
    [ "$(sed -n 1p <<<"$said")" = 0::/init ] && [ "$(sed -n 3p <<<"$said")" = 500 ] &&
        sed -n 2p <<<"$said" | grep -q '/job_.*/task_0'
}

half_of_the_processes() { # a job that forks without an end has half of what the container may have
    local fork job group said
    fork='exec python3 -c "
import os, time
try:
    for _ in range(900):
        os.fork() or time.sleep(120)
except OSError as error:
    print(error.strerror, flush=True)
time.sleep(120)"'
    job=$(in_slurm "${as_ada[@]}" sbatch --parsable -D / -o /tmp/forks --wrap "$fork") || return 1
    timeout 120 sh -c "until docker exec $NAME grep -q 'temporarily unavailable' /tmp/forks; do sleep 1; done"
    group=$(in_slurm find /sys/fs/cgroup -type d -name "job_$job")
    echo "$group: $(in_slurm cat "$group/cgroup.controllers")"
    in_slurm sh -c 'cd /sys/fs/cgroup && head -n 9 cgroup.subtree_control system.slice/cgroup.subtree_control system.slice/*/cgroup.subtree_control pids.max'
    said="$(in_slurm cat "$group/pids.max") $(in_slurm "${as_ada[@]}" srun -D / echo begins)"
    echo "$said"
    in_slurm scancel "$job"
    [ "$said" = "300 begins" ]
}

goes_on() { # a job goes on while slurmd is killed, and one after that is constrained as well
    in_slurm sbatch -J long -D / -o /tmp/long.out --gres=gpu:1 --wrap "sleep 30; $LOOK" || return 1
    until [ "$(in_slurm squeue -h -n long -o %T)" = RUNNING ]; do sleep 1; done
    in_slurm pkill -KILL -x slurmd || return 1
    sleep 5
    in_slurm srun -D / true || return 1
    while [ -n "$(in_slurm squeue -h -n long)" ]; do sleep 1; done
    [ "$(in_slurm cat /tmp/long.out)" = "$(lines "$ALLOWED" "$REFUSED" gpus=0)" ]
}

no_group_left() { # no_group_left ID
    [ -n "$1" ] && [ -z "$(find /sys/fs/cgroup -name "*$1*" -print -quit)" ]
}

no_daemon() { ! in_slurm pgrep -x 'slurmd|slurmctld'; }

step "this machine"
check "it has version 2 alone" test "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs
apt-get update -q >/dev/null
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    docker.io docker-cli apparmor python3 python3-venv >/dev/null
docker info --format '{{.ServerVersion}} {{.CgroupVersion}} {{.CgroupDriver}} {{.SecurityOptions}}'
check "base image imported" docker import "$IN/base.tar" debian:trixie-slim

step "the image"
git clone -q "$IN/checkout.bundle" "$PROJECT"
(cd "$PROJECT" && ./configure-environment --yes --no-start --json --simulate h100:2 >/tmp/configure.json)
image=$(docker images --format '{{.Repository}}:{{.Tag}}' | grep -m 1 slurm)
check "it is built" test -n "$image"
mkdir -p "$NODES"
for n in 0 1; do mknod -m 666 "$NODES/$n" c 195 "$n"; done

step "without the rights nothing starts"
start
in_slurm dshpc-node wait --timeout 200 >/dev/null
check "it says why" grep -q 'isolation = enforced cannot be kept' <(docker logs "$NAME" 2>&1)
check "no daemon runs" no_daemon
check "it is unhealthy" test "$(in_slurm /usr/local/lib/dshpc/health >/dev/null; echo $?)" = 1

step "with them it does"
PYTHONPATH=$PROJECT python3 -c 'from dshpc_setup.render import seccomp; print(seccomp.profile(2))' >/srv/seccomp.json
start --cap-add SYS_ADMIN --security-opt apparmor=unconfined --security-opt seccomp=/srv/seccomp.json --shm-size 1g \
    --pids-limit 600
check "ready" ready
prints "the processes have a leaf" 0::/init in_slurm cat /proc/1/cgroup
prints "docker exec follows them" 0::/init in_slurm cat /proc/self/cgroup
check "healthy" in_slurm /usr/local/lib/dshpc/health
check "the controller says so" grep -qE '^ConstrainDevices *= yes' <(in_slurm scontrol show config)

step "what a job can open"
prints "no GPU" "$(lines "$REFUSED" "$REFUSED" gpus=)" in_slurm srun bash -c "$LOOK"
prints "its own" "$(lines "$ALLOWED" "$REFUSED" gpus=0)" in_slurm srun --gres=gpu:1 bash -c "$LOOK"
prints "both" "$(lines "$ALLOWED" "$ALLOWED" gpus=0,1)" in_slurm srun --gres=gpu:2 bash -c "$LOOK"
prints "a user's" "$(lines "$ALLOWED" "$REFUSED" gpus=0)" \
    in_slurm /usr/local/lib/dshpc/as-user t 4242 4242 ada -- srun -D / --gres=gpu:1 bash -c "$LOOK"
check "memory" beyond_memory
check "memory in files" fills_shared_memory
check "which are removed" none_left
check "slurmstepd is apart" step_daemon_apart
as_ada=(/usr/local/lib/dshpc/as-user t 4242 4242 ada --)
check "no namespace in a user's job" refused "${as_ada[@]}" srun -D / unshare -Ur id
check "no namespace in root's job" refused srun unshare -Ur id
check "no namespace in a session" refused "${as_ada[@]}" unshare -Ur id
check "no mount in root's job" refused srun mount -o remount,bind,rw /proc/sys
check "two filters in a job" grep -q '^Seccomp:.*2' <(in_slurm srun grep Seccomp: /proc/self/status)
check "half of the processes" half_of_the_processes
check "memory, as the job's log tells it" told 60
check "what was not the memory's" not_told
check "jobs go on while slurmd is killed" goes_on
prints "the processes stay in their leaf" 0::/init in_slurm cat /proc/1/cgroup

step "restart and removal"
docker restart -t 10 "$NAME" >/dev/null
check "ready again" ready
prints "its own" "$(lines "$ALLOWED" "$REFUSED" gpus=0)" in_slurm srun --gres=gpu:1 bash -c "$LOOK"
number=$(docker inspect --format '{{.Id}}' "$NAME")
docker logs "$NAME" >/var/lib/acceptance/out/container.log 2>&1
docker rm -f "$NAME" >/dev/null
check "no group is left" no_group_left "$number"

step "the default tier, in a container that is short of memory"
# shellcheck disable=SC2046  # an option a word
docker run -d --name "$NAME" --hostname node --cap-drop ALL --security-opt no-new-privileges \
    $(printf -- '--cap-add %s ' CHOWN DAC_OVERRIDE FOWNER KILL SETGID SETUID) \
    --memory 700m --memory-swap 700m --env DSHPC_PREFIX=node "$image" >/dev/null
check "ready" ready
check "memory, as the job's log tells it" told 400
check "what was not the memory's" not_told
docker rm -f "$NAME" >/dev/null

conclude
