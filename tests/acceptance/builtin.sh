#!/bin/bash
# The built-in engine on a machine with systemd and cgroup v2, typed by a user who has neither Docker nor sudo:
#   tests/acceptance/guest run tests/acceptance/builtin.sh
# First without a range of ids, then with one; at last by root, who has no Docker either. Of Debian it takes Python
# and git, which the machine's owner has installed; the image is made from Debian's packages by the user.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh
by=as_user

NAME=plain # and root

as_user() { timeout 1500 runuser --login "$NAME" --command "cd dshpc && $1"; }

cluster() { # cluster WHICH [ENGINE]: from nothing to nothing
    step "$1: from nothing"
    check "$1: set-up with engine: ${2:-auto}" "./configure-environment --yes --simulate h100:2 ${2:+--engine $2}"
    prints "$1: the built-in engine was chosen" builtin \
        "python3 -c 'import json; print(json.load(open(\".dshpc/runtime.json\"))[\"engine\"])'"
    prints "$1: a job has a GPU" 0 "./dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
    check "$1: a job's file" "./dshpc srun sh -c 'echo x >made' && test -O work/made"
    check "$1: doctor" "./dshpc doctor"
    check "$1: a method" "./dshpc method run gpu-report --gpus 1 --wait"
    step "$1: it outlives the login"
    if pgrep -u "$NAME" -f builtin >/dev/null; then ok "$1: it runs"; else not_ok "$1: it runs"; fi
    prints "$1: from another login" idle "./dshpc sinfo -h -o %T"
    [ "$1" = single ] || kept "$1"
    step "$1: to nothing"
    check "$1: destroy" "./dshpc destroy --yes --image"
    if pgrep -u "$NAME" -f builtin; then not_ok "$1: no process stays"; else ok "$1: no process stays"; fi
}

kept() { # kept WHICH: its supervisor is a service of the user's manager, which outlives his logins
    step "$1: killed, and started again by systemd"
    local units="XDG_RUNTIME_DIR=/run/user/$(id -u "$NAME") systemctl --user"
    [ "$NAME" != root ] || units=systemctl
    check "$1: a service" "$units list-units --no-legend 'dshpc-*' | grep running"
    check "$1: killed" "kill -9 \$($units show --property=MainPID --value 'dshpc-*')"
    check "$1: it is back" "for try in \$(seq 60); do ./dshpc srun true && exit 0; sleep 2; done; exit 1"
    check "$1: down" "./dshpc down --yes"
    check "$1: no service is left" "! $units list-units --all --no-legend 'dshpc-*' | grep dshpc"
    check "$1: up" "./dshpc up"
}

step "the machine"
stat -fc %T /sys/fs/cgroup
apt-get -q -y --no-install-recommends install python3 python3-venv git >/dev/null || exit 1
useradd --create-home --shell /bin/bash "$NAME"
sed -i "/^$NAME:/d" /etc/subuid /etc/subgid
git clone -q "$IN/checkout.bundle" "/home/$NAME/dshpc" && chown -R "$NAME:" "/home/$NAME/dshpc"
command -v docker newuidmap && not_ok "neither Docker nor newuidmap is here"

cluster single
apt-get -q -y --no-install-recommends install uidmap >/dev/null || exit 1
loginctl enable-linger "$NAME"
usermod --add-subuids 200000-265535 --add-subgids 200000-265535 "$NAME"
cluster mapped

NAME=root
git clone -q "$IN/checkout.bundle" /root/dshpc
cluster root builtin

conclude
