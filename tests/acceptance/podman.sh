#!/bin/bash
# Debian's own Podman on a machine with systemd and cgroup v2, without Docker:
#   tests/acceptance/guest run tests/acceptance/podman.sh
# By a user without sudo, for whom `engine: auto` has to choose it, and as root. The image is made from
# Debian's packages. The machine's owner has installed Podman with what its package recommends.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh
by=as_them

NAME=plain

# Of a user with a systemd of his own, as after a login: it gives his containers control groups
as_them() {
    if [ "$who" = root ]; then
        (cd /root/dshpc && timeout 1500 bash -c "$1")
    else
        timeout 1500 runuser --login "$NAME" --command \
            "export XDG_RUNTIME_DIR=/run/user/$uid DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$uid/bus; cd dshpc && $1"
    fi
}

cluster() { # cluster WHO ARGUMENTS: from nothing to nothing
    who=$1
    step "$who: from nothing"
    check "$who: set-up" "./configure-environment --yes --simulate h100:2 $2"
    prints "$who: Podman runs it" podman \
        "python3 -c 'import json; print(json.load(open(\".dshpc/runtime.json\"))[\"engine\"])'"
    prints "$who: a job has a GPU" 0 "./dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
    prints "$who: a job has both" 0,1 \
        "./dshpc srun --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES"
    check "$who: a job's file is the caller's" "./dshpc srun sh -c 'echo x >made' && test -O work/made"
    check "$who: the log lies in the work folder" \
        "cd work && ../dshpc sbatch --wait --wrap='echo here' --output=log.txt && grep -q here log.txt"
    check "$who: processes are limited (cgroup v2)" "grep -q pids_limit docker-compose.yml"
    check "$who: doctor" "./dshpc doctor"
    check "$who: a method" "./dshpc method run gpu-report --gpus 1 --wait"
    check "$who: fewer GPUs" "./configure-environment --yes --simulate h100:1"
    check "$who: it has one" "./dshpc status | grep -q 'gpu:h100 0 of 1 in use'"
    prints "$who: slurmd comes back" 0 \
        "podman exec dshpc-slurm pkill -KILL -f '^slurmd -D'; sleep 5; ./dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
    check "$who: restart" "./dshpc restart"
    check "$who: down and up" "./dshpc down && ./dshpc up"
    step "$who: to nothing"
    check "$who: destroy" "./dshpc destroy --yes --image"
    prints "$who: nothing is left" "" "podman ps -aq; podman volume ls -q; podman images -q"
}

step "the machine"
stat -fc %T /sys/fs/cgroup
apt-get -q -y install python3 python3-venv git podman uidmap passt dbus-user-session >/dev/null || exit 1
podman --version
command -v docker && not_ok "Docker is not here"
useradd --create-home --shell /bin/bash "$NAME"
grep -q "^$NAME:" /etc/subuid || usermod --add-subuids 200000-265535 --add-subgids 200000-265535 "$NAME"
loginctl enable-linger "$NAME"
uid=$(id -u "$NAME")
timeout 60 sh -c "until [ -S /run/user/$uid/bus ]; do sleep 1; done" || not_ok "the user has a systemd of his own"
git clone -q "$IN/checkout.bundle" "/home/$NAME/dshpc" && chown -R "$NAME:" "/home/$NAME/dshpc"
git clone -q "$IN/checkout.bundle" /root/dshpc

cluster user ""
cluster root "--engine podman"

conclude
