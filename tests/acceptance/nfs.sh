#!/bin/bash
# Folders on NFS, as this kernel's own server and client have them (systemd, cgroup v2):
#   tests/acceptance/guest run tests/acceptance/nfs.sh [home|join]
# First the home of a user without Docker and sudo lies on NFS, where root is squashed, without a range of ids and
# with one. Then a second machine (namespaces of network and mounts) joins a cluster whose work folder is not
# shared, the lines are typed that it is told, and it joins again.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh
by=as_user

NAME=plain
SERVER=10.9.0.1
OTHER=10.9.0.2
part=${1:-all}

folder="~/dshpc" variables=""
as_user() {
    timeout 1500 runuser --login "$NAME" --command "cd $folder && export LANG=C.UTF-8 $variables && $1"
}

home() { # home WHICH: from nothing to nothing
    step "$1: a home on NFS"
    check "$1: set-up" "~/dshpc/configure-environment --yes --simulate h100:2 --engine builtin"
    prints "$1: a job has a GPU" 0 "~/dshpc/dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
    check "$1: a job's file is the caller's" "~/dshpc/dshpc srun sh -c 'echo x >made' && test -O work/made"
    check "$1: a job has a home" "~/dshpc/dshpc srun sh -c 'echo y >~/result'"
    # With one id alone the homes are the cluster's own
    [ "$1" = single ] || check "$1: which is this one" "test -O ~/result"
    check "$1: doctor" "~/dshpc/dshpc doctor"
    check "$1: a job by dshpc run" "~/dshpc/dshpc run --gpus 1 --wait -- true"
    check "$1: down and up" "~/dshpc/dshpc down --yes && ~/dshpc/dshpc up && ~/dshpc/dshpc srun sh -c 'grep -x y ~/result'"
    check "$1: destroy" "~/dshpc/dshpc destroy --yes --image"
    if pgrep -u "$NAME" -f builtin; then not_ok "$1: no process stays"; else ok "$1: no process stays"; fi
    check "$1: nothing stays in the cache" "! find \${XDG_CACHE_HOME:-~/.cache}/dshpc -name rootfs | grep ."
}

step "the machine"
apt-get -q -y --no-install-recommends install python3 python3-venv git nfs-kernel-server nfs-common >/dev/null || exit 1
ip link add one type veth peer name two && ip netns add other && ip link set two netns other
ip address add "$SERVER/24" dev one && ip link set one up
ip -n other address add "$OTHER/24" dev two && ip -n other link set two up && ip -n other link set lo up
systemctl enable --now nfs-server || exit 1

homes() {
    mkdir -p /srv/homes
    echo "/srv/homes $SERVER/24(rw,sync,no_subtree_check)" >>/etc/exports # root_squash, as it is unless told
    exportfs -ra || exit 1
    useradd --create-home --base-dir /srv/homes --shell /bin/bash "$NAME"
    usermod --home "/home/$NAME" "$NAME" && mkdir -p "/home/$NAME"
    mount -t nfs4 "$SERVER:/srv/homes/$NAME" "/home/$NAME" || exit 1
    stat -fc %T "/home/$NAME"
    sed -i "/^$NAME:/d" /etc/subuid /etc/subgid
    git clone -q "$IN/checkout.bundle" /tmp/dshpc-source && chmod -R a+rX /tmp/dshpc-source
    runuser --login "$NAME" --command "git config --global --add safe.directory '*' && git clone -q /tmp/dshpc-source dshpc" || exit 1

    home single
    apt-get -q -y --no-install-recommends install uidmap >/dev/null || exit 1
    usermod --add-subuids 200000-265535 --add-subgids 200000-265535 "$NAME"
    step "mapped: files of other owners cannot lie on NFS"
    check "mapped: refused with what to do" \
        "! ./configure-environment --yes --simulate h100:2 --engine builtin 2>said && grep 'export XDG_CACHE_HOME' said"
    as_user "cat said"
    variables="XDG_CACHE_HOME=/var/tmp/cache-of-$NAME" folder=/var/tmp/project
    install -d -o "$NAME" "$folder"
    home mapped
}

[ "$part" = join ] || homes

join() {
    step "a second machine without a share"
    git clone -q "$IN/checkout.bundle" /srv/lab && cd /srv/lab || exit 1
    here() { timeout 1500 bash -c "$1"; } # as root
    by=here
    check "the controller" "./configure-environment --yes --engine builtin --prefix lab --simulate h100:1 --listen $SERVER"
    token=$(./dshpc node token 2>/dev/null | grep -o 'dshpc1[^ ]*' | tail -n 1)
    [ -n "$token" ] || not_ok "a token"
    # The other machine: its own network and mounts; the first one's folders are not in it, nor is systemd, which would
    # start the container in the first one's network
    cat >/srv/other.sh <<END
set -eu
if [ ! -e /srv/lab/.other ]; then mount -t tmpfs none /run/systemd && mount -t tmpfs none /srv/lab && : >/srv/lab/.other; fi
exec bash -c "\$1"
END
    ip netns exec other unshare -m --propagation private sleep infinity &
    holder=$!
    sleep 1
    on_other() {
        timeout 1500 nsenter --net=/run/netns/other --mount="/proc/$holder/ns/mnt" \
            env XDG_CACHE_HOME=/srv/other-cache bash /srv/other.sh "$1"
    }
    git clone -q "$IN/checkout.bundle" /srv/second
    check "the image as a file" "./dshpc image save /srv/image.tar"
    check "the other machine's packages of Python, for it has no way out" "/srv/second/dshpc --version"
    command="cd /srv/second && ./configure-environment --yes --join $token --engine builtin --image-file /srv/image.tar --simulate t4:1 --node-name lab2"
    echo "\$ $command"
    on_other "$command" >/tmp/joined 2>&1 || not_ok "it joins without a share"
    cat /tmp/joined
    typed() { # typed WHERE: the command that was told for Debian
        grep -F "$1, Debian, Ubuntu: " /tmp/joined | sed 's/^.*Debian, Ubuntu: //'
    }
    at_controller=$(typed "on the controller's machine")
    at_other=$(typed "on this machine")
    [ -n "$at_controller" ] && [ -n "$at_other" ] || not_ok "the lines are told"
    step "the lines are typed"
    check "of the controller's machine" "$at_controller"
    by=on_other check "of the other one" "$at_other"
    on_other "stat -fc %T /srv/lab/work"
    step "it joins again"
    echo "\$ $command"
    if on_other "$command" >/tmp/joined 2>&1; then ok "it joins"; else not_ok "it joins"; fi
    cat /tmp/joined
    if grep -q "is the controller's" /tmp/joined; then ok "the folder is one"; else not_ok "the folder is one"; fi
    check "a job there writes here" \
        "./dshpc srun -w lab2 sh -c 'hostname >from' && grep -x lab2 work/from"
    check "a method there" "./dshpc run -t lab2 --gpus 1 --wait -- sh -c 'echo \$CUDA_VISIBLE_DEVICES'"
    check "doctor" "./dshpc doctor"
    on_other "cd /srv/second && ./dshpc destroy --yes --stop-jobs --image" || not_ok "the other one goes"
    check "destroy" "./dshpc destroy --yes --stop-jobs --image"
    kill "$holder"
}

[ "$part" = home ] || join

conclude
