#!/bin/bash
# What a new user of a fresh machine does, and what has to be true afterwards.
# Runs as root in the guest; nothing of the project was ever installed there.
#   --as-user   a user with sudo types it; where there is no engine yet it goes on
#               through sudo by itself, for who installs one is not in its group
#               until the next login
# Every check runs, so that one failure does not hide another; any makes it 1.
set -uo pipefail

. /var/lib/acceptance/in/checks.sh

PROJECT=/srv/dshpc
CONTAINER=dshpc-slurm
CALLER=root
if [ "${1:-}" = --as-user ]; then
    CALLER=researcher
fi

as_caller() { # a login of the caller's, in the project folder
    runuser --login "$CALLER" --command "cd $PROJECT && $1"
}

in_slurm() { timeout 180 docker exec "$CONTAINER" "$@"; }

# json FILE CODE: CODE sees the document as r and ends with an assert.
json() { python3 -c "import json, sys; r = json.load(open(sys.argv[1])); $2" "$1"; }

configure() { # configure NAME: stdout to $OUT/NAME.json, stderr shown as it comes
    local begin code=0
    begin=$(date +%s)
    echo "\$ ./configure-environment --yes --simulate h100:2 --json    # as $CALLER"
    as_caller "./configure-environment --yes --simulate h100:2 --json" >"$OUT/$1.json" || code=$?
    cat "$OUT/$1.json"
    echo "   exit code $code after $(($(date +%s) - begin)) s"
    return "$code"
}

finish() {
    step "collecting"
    docker logs "$CONTAINER" >"$OUT/container.log" 2>&1
    docker inspect "$CONTAINER" >"$OUT/inspect.json" 2>&1
    journalctl --no-pager -b -u docker >"$OUT/docker.journal" 2>&1
    cp -r "$PROJECT/config" "$PROJECT/docker-compose.yml" "$OUT/" 2>&1
    conclude
}

carry_base_in() { # the shorter path: an engine and a base image are there already
    step "carrying in the base image (not the path of a new user: see README.md)"
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends docker.io docker-cli
    # Who installs an engine for a user also lets the user use it.
    [ "$CALLER" = root ] || usermod -aG docker "$CALLER"
    check "base image imported" docker import "$IN/base.tar" debian:trixie-slim
}

machine_is_fresh() {
    local tool
    for tool in docker dockerd python3 pip curl debootstrap slurmd; do
        if command -v "$tool"; then return 1; fi
    done
    [ ! -e /var/lib/docker ]
}

two_at_once() { # two GPU jobs hold both GPUs, a third waits, and then runs
    local third i jobs=()
    # shellcheck disable=SC2016  # the job's shell expands it
    for i in 1 2; do
        in_slurm srun --gres=gpu:1 sh -c 'echo "$CUDA_VISIBLE_DEVICES"; sleep 45' >"/tmp/gpu-of-$i" &
        jobs+=($!)
    done
    for i in $(seq 60); do
        [ "$(in_slurm squeue -h -t running -o %i | wc -l)" = 2 ] && break
        sleep 1
    done
    third=$(in_slurm sbatch --parsable --gres=gpu:1 -o /dev/null --wrap true)
    sleep 3
    in_slurm squeue -o '%i %T %r %b'
    [ "$(in_slurm squeue -h -j "$third" -o %T)" = PENDING ] || { echo "the third does not wait"; return 1; }
    wait "${jobs[@]}"
    cat /tmp/gpu-of-1 /tmp/gpu-of-2
    [ "$(sort /tmp/gpu-of-1 /tmp/gpu-of-2 | tr '\n' ' ')" = "0 1 " ] || { echo "not 0 and 1"; return 1; }
    for i in $(seq 60); do
        [ -z "$(in_slurm squeue -h -j "$third" 2>/dev/null)" ] && return 0
        sleep 1
    done
    echo "the third never ran"
    return 1
}

batch_prints() { # batch_prints GRES: what CUDA_VISIBLE_DEVICES a batch job sees
    in_slurm sh -c "sbatch --wait --quiet --gres=$1 --open-mode=truncate -o /tmp/batch.out --wrap 'printenv CUDA_VISIBLE_DEVICES' >&2 && cat /tmp/batch.out"
}

# Unpacks the image's layers as the engine exports them, so that what a later
# layer deleted is looked at too.
unpack_image() { # unpack_image FOLDER: one listing per layer in FOLDER/listings
    local image layer
    image=$(docker inspect --format '{{.Config.Image}}' "$CONTAINER") || return 1
    mkdir -p "$1/layers" "$1/listings"
    docker image save "$image" | tar -C "$1/layers" -xf - || return 1
    while IFS= read -r layer; do
        tar -tf "$layer" >"$1/listings/$(echo "$layer" | tr / _)" 2>/dev/null
    done < <(find "$1/layers" -type f)
    # Else every search below would succeed by finding nothing.
    grep -qsE 'usr/lib/os-release$' -r "$1/listings" || { echo "no layer could be read"; return 1; }
    grep -aqrF 'ID=debian' "$1/layers" || { echo "layers cannot be searched"; return 1; }
}

image_has_no_key() {
    ! grep -rhE '(munge\.key|slurm\.key|slurm\.jwks|jwt[^/]*\.key|/ssl/private/.+)$' /tmp/image/listings
}

# The site's certificates are in no layer (a certificate's third line is as good
# as a fingerprint), and its apt settings are not those of the image.
image_is_clean_of_the_site() {
    local certificate needles=()
    for certificate in /usr/local/share/ca-certificates/*.crt; do
        [ -e "$certificate" ] && needles+=(-e "$(sed -n 3p "$certificate")")
    done
    echo "looking for $((${#needles[@]} / 2)) certificate(s)"
    if [ ${#needles[@]} -gt 0 ] && grep -arlF "${needles[@]}" /tmp/image/layers; then return 1; fi
    in_slurm apt-config dump >/tmp/apt-of-image || return 1
    ! grep -E 'Check-(Valid-Until|Date) "false"|Proxy "' /tmp/apt-of-image
}

trap finish EXIT

step "the machine"
grep PRETTY_NAME /etc/os-release
if [ -e "$IN/base.tar" ]; then carry_base_in; else check "nothing is installed beforehand" machine_is_fresh; fi

step "git clone"
check "clone" git clone -q "$IN/checkout.bundle" "$PROJECT"
[ -x "$PROJECT/configure-environment" ] || { not_ok "configure-environment is in the clone"; exit; }
if [ "$CALLER" != root ]; then
    chown -R "$CALLER:" "$PROJECT"
fi

step "the first command"
if configure first; then ok "first command"; else not_ok "first command (exit code $?)"; exit; fi
check "exit_code 0, schema" json "$OUT/first.json" 'assert (r["schema"], r["exit_code"]) == ("dshpc.configure/1", 0)'
check "no step failed, none missing" json "$OUT/first.json" '
print({s["name"]: s["ms"] for s in r["steps"]})
assert [s["name"] for s in r["steps"]] == "probe base passthrough plan render build start verify".split()
assert all(s["state"] in ("ok", "skipped") for s in r["steps"])'
check "every file created" json "$OUT/first.json" '
assert {f["action"] for f in r["files"]} == {"created"}, r["files"]
assert {"config/slurm.conf", "config/gres.conf", "config/cgroup.conf", "docker-compose.yml"} <= {f["path"] for f in r["files"]}'
check "cluster ready, node idle, two GPUs" json "$OUT/first.json" '
print(r["cluster"])
assert r["cluster"]["ready"] is True
(node,) = r["cluster"]["nodes"]
assert node["state"] == "idle" and node["gres"].startswith("gpu:h100:2"), node'
check "labelled as simulated" grep -i simulat "$PROJECT/config/gres.conf"
prints ".env is private, and the caller's" "600 $CALLER" stat -c '%a %U' "$PROJECT/.env"
prints "everything rendered is the caller's" "" find "$PROJECT/config" "$PROJECT/docker-compose.yml" ! -user "$CALLER"

step "jobs with GPUs"
prints "any GPU" 0 in_slurm srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES
prints "GPU by vendor" 0 in_slurm srun --gres=gpu:nvidia:1 printenv CUDA_VISIBLE_DEVICES
prints "GPU by model" 0 in_slurm srun --gres=gpu:h100:1 printenv CUDA_VISIBLE_DEVICES
prints "both GPUs" 0,1 in_slurm srun --gres=gpu:2 printenv CUDA_VISIBLE_DEVICES
prints "GPU by vendor in sbatch" 0 batch_prints gpu:nvidia:1
prints "GPU by model in sbatch" 0 batch_prints gpu:h100:1
check "two at once, a third waits" two_at_once
check "python runs" in_slurm srun python -c 'print("python in a job")'

step "the node"
in_slurm sinfo -o "%n %G %T"
check "sinfo names the GPUs" sh -c "timeout 60 docker exec $CONTAINER sinfo -h -o '%n %G' | grep -E '^[^ ]+ gpu:h100:2(\(|$)'"

step "least privilege"
docker inspect "$CONTAINER" >"$OUT/inspect.json"
check "not privileged, no-new-privileges, capabilities dropped" json "$OUT/inspect.json" '
host = r[0]["HostConfig"]
print({k: host[k] for k in ("Privileged", "CapAdd", "CapDrop", "SecurityOpt", "PidMode", "IpcMode", "NetworkMode")})
known = {"SETUID", "SETGID", "CHOWN", "FOWNER", "DAC_OVERRIDE", "KILL"}
assert host["Privileged"] is False
assert [c.upper() for c in host["CapDrop"]] == ["ALL"]
assert {c.removeprefix("CAP_") for c in host["CapAdd"] or ()} <= known
assert any(o.split(":")[0].split("=")[0] == "no-new-privileges" and not o.endswith("false") for o in host["SecurityOpt"])
assert host["PidMode"] != "host" and host["NetworkMode"] != "host"'
check "no engine socket inside" json "$OUT/inspect.json" 'assert not [m for m in r[0]["Mounts"] if "docker.sock" in m["Source"]]'
prints "a job cannot gain privileges" "NoNewPrivs:	1" in_slurm srun grep NoNewPrivs /proc/self/status

step "what the image must not hold"
check "its layers can be read" unpack_image /tmp/image
check "no key in any layer" image_has_no_key
check "nothing of this site in any layer" image_is_clean_of_the_site
rm -rf /tmp/image

step "the second run"
before=$(docker inspect --format '{{.Id}} {{.State.StartedAt}}' "$CONTAINER")
if configure second; then ok "second run"; else not_ok "second run (exit code $?)"; fi
check "every file unchanged" json "$OUT/second.json" '
print(r["files"])
assert r["files"] and all(f["action"] == "unchanged" for f in r["files"])
assert r["cluster"]["ready"] is True'

prints "the container was left alone" "$before" docker inspect --format '{{.Id}} {{.State.StartedAt}}' "$CONTAINER"

step "a user in the docker group"
usermod -aG docker researcher
as_researcher() { timeout 180 runuser --login researcher --command "$1"; }
prints "docker exec" 0 as_researcher "docker exec $CONTAINER srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
prints "dshpc srun" 0 as_researcher "cd $PROJECT && ./dshpc srun --gres=gpu:1 printenv CUDA_VISIBLE_DEVICES"
prints "dshpc srun is the calling user" researcher as_researcher "cd $PROJECT && ./dshpc srun id -un"
