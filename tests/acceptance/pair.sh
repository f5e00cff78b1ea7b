#!/bin/bash
# Two machines of one cluster (systemd, cgroup v2), on a network of their own:
#   tests/acceptance/guest pair --carry IMAGE tests/acceptance/pair.sh [mapped]
# IMAGE is of `dshpc image save` on this host: image.tar.xz, say. The first has Docker, as root. The second is an
# ordinary user's, without Docker and sudo, with the built-in engine: it joins by a token, is restarted, killed and
# removed, and is added over ssh. That user has no range of ids, and the node takes this user's jobs alone; with
# `mapped` there is one, and it takes all jobs. All is typed on the first, for the second over ssh.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh

side=$1 way=${2:-single}
FIRST=10.77.0.1 SECOND=10.77.0.2
OWNER=ada OTHER=bob # of the second machine; of the first alone
NODE=bench
END=/root/end READY=/root/ready

has() { apt-get -q -y --no-install-recommends install "$@" >/dev/null || exit 1; }

machine() { # machine NAME ADDRESS
    hostnamectl hostname "$1" && sed -i "s/fresh-debian/$1/" /etc/hosts
    printf 'auto eth1\niface eth1 inet static\n    address %s/24\n' "$2" >>/etc/network/interfaces
    ifup eth1 || exit 1
    useradd --create-home --shell /bin/bash --uid 1101 "$OWNER"
}

if [ "$side" = second ]; then
    if [ ! -e "$READY" ]; then # else it is this machine's second start
        machine "$NODE" "$SECOND"
        has openssh-server python3 python3-venv
        sed -i "/^$OWNER:/d" /etc/subuid /etc/subgid
        if [ "$way" = mapped ]; then
            has uidmap
            usermod --add-subuids 200000-265535 --add-subgids 200000-265535 "$OWNER"
        fi
        loginctl enable-linger "$OWNER"
        install -d -o "$OWNER" /srv/lab /srv/lab/work
        for home in /root "/home/$OWNER"; do
            install -d -m 700 -o "$(stat -c %U "$home")" "$home/.ssh"
            install -m 600 -o "$(stat -c %U "$home")" "$IN/key.pub" "$home/.ssh/authorized_keys"
        done
        cp "$IN"/image.* "/home/$OWNER/" && chown "$OWNER" "/home/$OWNER"/image.*
        git clone -q "$IN/checkout.bundle" "/home/$OWNER/dshpc" && chown -R "$OWNER:" "/home/$OWNER/dshpc"
        [ "$way" = mapped ] || ! command -v docker newuidmap || exit 1
        touch "$READY"
    fi
    until [ -e "$END" ]; do sleep 1; done
    exit 0
fi

# --- the first ---------------------------------------------------------------------------------------------------

by=here
here() { timeout 1500 runuser --login "${as:-root}" --command "cd /srv/lab && export LANG=C.UTF-8 && $1"; }
there() { timeout 1500 ssh "$OWNER@$SECOND" "cd ${folder:-dshpc} && $1"; }
root_there() { timeout 60 ssh "root@$SECOND" "$1"; }

refused() { # refused NAME COMMAND WORD...: it fails, and each of these words is said
    local name=$1 command=$2 said code=0 word
    echo "\$ $command"
    said=$(here "$command" 2>&1) || code=$?
    echo "$said"
    [ "$code" != 0 ] || { not_ok "$name: it is not refused"; return; }
    shift 2
    for word; do
        grep -qF -- "$word" <<<"$said" || { not_ok "$name: '$word' is not said"; return; }
    done
    ok "$name"
}

listed() { # listed CODE: `node list --json` with CODE, which sees the second node as n
    here "./dshpc node list --json" | python3 -c "
import json, sys
r = json.load(sys.stdin)
assert r['schema'] == 'dshpc.nodes/1', r
by_name = {each['name']: each for each in r['nodes']}
n = by_name.get('$NODE')
print(n)
$1"
}

has_node() { # has_node HOW: the second takes its owner's jobs, and those of others where it can
    by=listed_idle check "$1: node list" "./dshpc node list --json"
    as=$OWNER prints "$1: a job of the owner has a GPU there" "0 $NODE" \
        "./dshpc srun -w $NODE --gres=gpu:1 sh -c 'echo \$CUDA_VISIBLE_DEVICES \$(hostname)'"
    as=$OWNER check "$1: a workspace goes there and comes back" \
        "cd work && ../dshpc run -t $NODE --gpus 1 --wait -- sh -c 'hostname >from' && find jobs -name from -exec grep -x $NODE {} +"
    if [ "$way" = mapped ]; then
        as=$OTHER prints "$1: a job of another user there" "$OTHER" "./dshpc srun -w $NODE id -un"
    else
        as=$OTHER refused "$1: another user there" "./dshpc srun -w $NODE -t 1 true" "$NODE takes the jobs of" alone /etc/subuid
    fi
    as=$OTHER prints "$1: another user elsewhere" lab "./dshpc srun --gres=gpu:h100:1 hostname"
    check "$1: doctor" "./dshpc doctor"
    by=there check "$1: doctor there" "./dshpc doctor"
}

listed_idle() {
    listed "assert (n['role'], n['state'], n['address']) == ('worker', 'idle', '$SECOND'), n
assert n['gres'].startswith('gpu:t4:1'), n"
}

is_back() { # is_back SECONDS: the node takes a job again within that time
    local until=$(($(date +%s) + $1))
    until listed_idle >/dev/null 2>&1 && as=$OWNER here "timeout 60 ./dshpc srun -w $NODE true" >/dev/null 2>&1; do
        [ "$(date +%s)" -lt "$until" ] || return 1
        sleep 2
    done
    echo "back after $(($(date +%s) - until + $1)) s"
}

finish() {
    ssh "root@$SECOND" "touch $END"
    conclude
}

step "the machines"
machine first "$FIRST"
useradd --create-home --shell /bin/bash --uid 1102 "$OTHER"
has openssh-client python3 python3-venv
install -d -m 700 /root/.ssh && install -m 600 "$IN/key" /root/.ssh/id_ed25519
until ssh -o StrictHostKeyChecking=accept-new -o ConnectTimeout=5 "root@$SECOND" "test -e $READY" 2>/dev/null; do
    sleep 2
done
trap finish EXIT
apart=$(($(date +%s%3N) - $(root_there "date +%s%3N")))
if [ "${apart#-}" -lt 5000 ]; then ok "the clocks are $apart ms apart"; else not_ok "the clocks are $apart ms apart"; fi

step "the controller"
git clone -q "$IN/checkout.bundle" /srv/lab
check "set-up" "./configure-environment --yes --simulate h100:1 --prefix lab --listen $FIRST --image-file $IN/image.*"
usermod -aG docker "$OWNER" && usermod -aG docker "$OTHER"

step "by a token"
token=$(here "./dshpc node token" 2>/dev/null | grep -o 'dshpc1[^ ]*' | tail -n 1)
by=there check "it joins" "./configure-environment --yes --join $token --engine builtin --image-file ~/image.* --simulate t4:1"
has_node token

step "the second is restarted"
boot="cat /proc/sys/kernel/random/boot_id"
before=$(root_there "$boot")
root_there "systemctl reboot"
until after=$(root_there "$boot" 2>/dev/null) && [ "$after" != "$before" ]; do sleep 2; done
by=is_back check "it is back by itself" 400
as=$OWNER prints "under its name" "$NODE" "./dshpc srun -w $NODE hostname"

step "its power is cut"
as=$OWNER here "cd work && ../dshpc run -t $NODE -- sh -c 'sleep 20; hostname >cut'" && sleep 10 # it runs
before=$(root_there "$boot")
root_there "echo b >/proc/sysrq-trigger" # at once: nothing is written, nobody is told
until after=$(root_there "$boot" 2>/dev/null) && [ "$after" != "$before" ]; do sleep 2; done
by=is_back check "it is back by itself" 400
as=$OWNER check "what ran there runs again" \
    "for try in \$(seq 150); do find work/jobs -name cut -exec grep -x $NODE {} + && exit 0; sleep 2; done; exit 1"

step "its engine is killed"
root_there "pkill -KILL -u $OWNER -f supervisor"
by=is_back check "it is back by itself" 200
check "doctor" "./dshpc doctor"

step "removed, and over ssh"
check "removed" "./dshpc node remove --yes $NODE"
by=there check "nothing stays there" "./dshpc destroy --yes --stop-jobs --image && ! ls ~/.config/systemd/user | grep dshpc"
by=listed check "it is no node" "assert n is None"
check "added" "./dshpc node add $OWNER@$SECOND -- --simulate t4:1"
folder=dshpc-lab
has_node ssh

step "to nothing"
check "removed" "./dshpc node remove --yes $NODE"
by=there check "destroyed there" "./dshpc destroy --yes --stop-jobs --image"
check "destroyed" "./dshpc destroy --yes --stop-jobs --image"
