#!/bin/bash
# Proves the guest itself, without the project: it is fresh, it has systemd,
# cgroup v2 and the network, and an engine installed there runs a container.
#   tests/acceptance/guest run --no-repo --carry-base tests/acceptance/guest-selftest.sh
set -euo pipefail

started=$(date +%s)
step() { printf '\n== %4d s  %s\n' "$(($(date +%s) - started))" "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

step "what this machine is"
head -n 1 /etc/os-release
uname -r
uptime -p
echo "HOME=$HOME USER=$USER PATH=$PATH"
[ ! -t 1 ] || fail "stdout is a terminal"
[ "$(ps -o comm= -p 1)" = systemd ] || fail "process 1 is not systemd"
[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || fail "no cgroup v2"
cat /sys/fs/cgroup/cgroup.controllers
for tool in docker dockerd python3 curl debootstrap; do
    if command -v "$tool"; then fail "$tool is here already: not a fresh machine"; fi
done
if env | grep -E '^(PIP|SSL|CURL|REQUESTS|GIT_SSL)_'; then fail "environment is not a fresh machine's"; fi
systemctl list-units --failed --no-pager
[ "$(systemctl list-units --failed --plain --no-legend | wc -l)" = 0 ] || fail "units failed"

step "apt-get update"
apt-get update

step "install an engine"
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends docker.io docker-cli
systemctl is-active docker || systemctl start docker

step "docker info"
docker info
[ "$(docker info --format '{{.CgroupVersion}} {{.CgroupDriver}}')" = "2 systemd" ] || fail "not cgroup v2 by systemd"

step "a container from a carried base"
base=/var/lib/acceptance/in/base.tar
[ -e "$base" ] || fail "no base.tar was handed in: give --carry-base"
docker import "$base" selftest:base
docker run --rm selftest:base sh -c 'head -n 1 /etc/os-release; id -u'
docker run --rm -v /etc/apt:/etc/apt:ro selftest:base sh -c 'apt-get update -q && echo "network in a container: fine"'

step "a user in the docker group"
usermod -aG docker researcher
runuser --login researcher --command 'docker run --rm selftest:base true && sudo -n true && id -un'

step "pip trusts the system's bundle alone"
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-venv >/dev/null
python3 -m venv /tmp/venv
/tmp/venv/bin/pip download -q --no-deps -d /tmp/wheels jinja2
ls /tmp/wheels

cp /var/log/dpkg.log /var/lib/acceptance/out/
step "done"
