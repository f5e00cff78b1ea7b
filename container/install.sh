#!/bin/sh
# What the image's stages run: `install.sh packages`, then `install.sh package` for dsHPC itself; where
# methods need packages, `debian` and `python` for these. `versions NAME...` says what Debian offers.
# Where something else has installed the packages, `finish` and `plugins` do the rest of `packages`.
# Settings by environment: GPU_TYPE, CUDA_RUNTIME, APT_MIRROR, APT_SECURITY. The site's certificates and apt
# settings, if any, lie in /run/dshpc-site; nothing of them is copied.
set -eu

site=/run/dshpc-site
apt=/run/dshpc-build/apt
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
DEBIAN_SECURITY=http://deb.debian.org/debian-security

say() { echo "dshpc: $*"; }

fail() {
    echo "dshpc: $*" >&2
    exit 1
}

# Package sources of our own for this run, so that the base image's stay as they are.
prepare_sources() {
    . /etc/os-release
    mkdir -p "$apt/sources.list.d"
    if [ -n "${APT_MIRROR:-}" ]; then
        signed=
        [ -e "$keyring" ] && signed="[signed-by=$keyring] "
        suite=${VERSION_CODENAME:?}
        echo "deb $signed$APT_MIRROR $suite main contrib non-free" >"$apt/sources.list"
        # Without this suite the image would keep a Slurm with known holes
        for security in "${APT_SECURITY:-}" "${APT_MIRROR%/debian}/debian-security" "$DEBIAN_SECURITY"; do
            if [ -n "$security" ] && answers "$security/dists/$suite-security/InRelease"; then
                echo "deb $signed$security $suite-security main contrib non-free" \
                    >>"$apt/sources.list"
                return
            fi
        done
        say "no archive of Debian's security updates can be reached: the image is built without them." >&2
        return
    fi
    : >"$apt/sources.list"
    if [ -f /etc/apt/sources.list ]; then
        sed -E 's/^(deb .*[[:space:]])main([[:space:]].*)?$/\1main contrib non-free/' \
            /etc/apt/sources.list >"$apt/sources.list"
    fi
    for file in /etc/apt/sources.list.d/*; do
        [ -f "$file" ] || continue
        sed -E -e 's/^Components:.*/Components: main contrib non-free/' \
            -e 's/^(deb .*[[:space:]])main([[:space:]].*)?$/\1main contrib non-free/' \
            "$file" >"$apt/sources.list.d/${file##*/}"
    done
}

# Whether an archive has this file.
answers() {
    apt_tool /usr/lib/apt/apt-helper -o Acquire::Retries=0 -o Acquire::http::Timeout=15 \
        -o Acquire::https::Timeout=15 download-file "$1" "$apt/answer" >/dev/null 2>&1 </dev/null
    code=$?
    rm -f "$apt/answer"
    return "$code"
}

apt_get() { apt_tool apt-get "$@"; }

# Without the sandbox user: files that hold passwords are readable by root alone.
apt_tool() {
    tool=$1
    shift
    set -- -o "Dir::Etc::SourceList=$apt/sources.list" \
        -o "Dir::Etc::SourceParts=$apt/sources.list.d" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Languages=none \
        -o Acquire::Retries=3 -o Dpkg::Use-Pty=0 "$@"
    if [ -s "$site/apt.conf" ]; then
        set -- -c "$site/apt.conf" "$@"
    fi
    "$tool" "$@"
}

# Is there such a package for this architecture?
offered() {
    [ -n "$(apt_get --print-uris -qq download "$1" 2>/dev/null)" ]
}

# The names of the packages for the GPUs; one that Debian lacks on this architecture is left out.
gpu_packages() {
    wanted='' types='' known=no
    while read -r type packages; do # of dshpc_setup/image/context.py
        types="$types${types:+, }$type"
        [ "$type" != "$GPU_TYPE" ] || wanted=$packages known=yes
    done <"$(dirname "$0")/gpu-packages"
    [ "$known" = yes ] || fail "GPU_TYPE is '$GPU_TYPE'; it must be one of $types."
    for name in $wanted; do
        if offered "$name"; then
            echo "$name"
        else
            say "$name is not packaged for $(dpkg --print-architecture): left out." >&2
        fi
    done
}

cuda_packages() {
    case "$CUDA_RUNTIME" in
    no) return ;;
    yes) ;;
    *) fail "CUDA_RUNTIME is '$CUDA_RUNTIME'; it must be yes or no." ;;
    esac
    while read -r name; do # of dshpc_setup/image/context.py
        offered "$name" ||
            fail "CUDA_RUNTIME=yes, but $name is not packaged for $(dpkg --print-architecture)."
        echo "$name"
    done <"$(dirname "$0")/cuda-packages"
}

# Manuals and translations are not even unpacked; the licences stay.
skip_manuals() {
    cp /run/dshpc-build/dpkg-small.cfg /etc/dpkg/dpkg.cfg.d/dshpc-small
    find /usr/share/doc ! -type d ! -name copyright -delete
    rm -rf /usr/share/man/* /usr/share/info/* /usr/share/locale/* \
        /usr/share/lintian/* /usr/share/bash-completion/*
}

clean() {
    apt-get clean
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/debconf/*-old /var/log/*.log \
        /var/log/apt /var/lib/dpkg/*-old /var/lib/systemd /tmp/* /var/tmp/*
}

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    skip_manuals
    prepare_sources
    apt_get update
    gpu=$(gpu_packages)
    cuda=$(cuda_packages)
    [ -z "${RENEWED:-}" ] || apt_get upgrade -y # the base image may have been here for long
    # mariadb-server itself would bring Perl, Galera and its own way to be started.
    # sshd's and Slurm's packages want systemd, or the one program of it that makes users: 17 MB less
    # shellcheck disable=SC2086 # one package a word
    apt_get install -y --no-install-recommends \
        slurmctld slurmd slurm-client slurmrestd slurm-wlm-jwt-plugin slurmdbd mariadb-server-core \
        s6 python3 procps openssh-server rsync systemd-standalone-sysusers tcc $gpu $cuda
    make_plugins
    finish_packages
}

# What slurmctld and the jobs' daemons load. tcc is all that takes, and half a megabyte; it goes again.
make_plugins() {
    mkdir -p /usr/local/lib/dshpc
    lib=/usr/local/lib/dshpc build=/run/dshpc-build
    sh $build/compile.sh $build/durable.c $lib/durable.so
    sh $build/compile.sh $build/owner.c $lib/owner.so
    sh $build/compile.sh $build/sshd_of_root.c $lib/sshd-of-root.so
    sh $build/compile.sh $build/task_exit.c $lib/task-exit.so
    sh $build/compile.sh $build/task_init.c $lib/task-init.so
    sh $build/compile.sh $build/task_place.c $lib/task-place.so
    sh $build/compile.sh $build/task_use.c $lib/task-use.so
    dpkg --purge tcc
}

# What is done with them once they are installed, whoever has done that.
finish_packages() {
    # munge's package makes a key as it is installed: every user of this image would share it. We
    # use auth/slurm, whose key is made anew for every deployment.
    rm -f /etc/munge/munge.key
    # Neither root nor Slurm's user: what slurmrestd may, comes with each request
    useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin slurmrest
    # openssh-server's makes host keys: a user has one of their own (dshpc_setup/ssh), made in the cluster
    rm -f /etc/ssh/ssh_host_*
    [ -e /usr/bin/python ] || ln -s python3 /usr/bin/python
    printf '%s\n' "$GPU_TYPE" >/etc/dshpc-gpu-type
    # Read by `dshpc doctor`: how old they are, and whether this Slurm has holes that are known
    { date -u +%F && dpkg-query -W -f '${Version}\n' slurmctld; } >/etc/dshpc-packages
    clean
    # These are the deployment's: /etc/slurm becomes a link that is swapped as a whole.
    rm -rf /etc/slurm /etc/machine-id /var/lib/dbus/machine-id /var/lib/slurm /var/log/slurm
    : >/etc/machine-id
}

# The packages of Debian that methods need, each as NAME=VERSION.
install_debian() {
    export DEBIAN_FRONTEND=noninteractive
    prepare_sources
    apt_get update
    # shellcheck disable=SC2046 # one package a word
    apt_get install -y --no-install-recommends --allow-downgrades \
        $(cat /run/dshpc-build/environment/debian)
    clean
}

# The Python packages that methods need, from a tree that is laid over the image.
install_python() {
    layer=/run/dshpc-layer
    into=$(python3 -c 'import site; print(site.getsitepackages()[0])')
    python3 -m compileall -q -j 0 -s "$layer" "$layer$into" ||
        say "Some files of these packages are not for this Python; that is how they come."
    # Their commands, where the image has none of that name.
    mkdir -p "$layer/usr/local/bin"
    for file in "$layer$into"/bin/*; do
        case "${file##*/}" in
        '*' | dshpc*) continue ;;
        esac
        command -v "${file##*/}" >/dev/null || mv "$file" "$layer/usr/local/bin/"
    done
    rm -rf "$layer$into/bin"
}

# What apt would install: a line for each name that there is.
show_versions() {
    prepare_sources
    apt_get update </dev/null >&2
    for name in "$@"; do
        version=$(apt_tool apt-cache policy "$name" </dev/null |
            sed -n 's/^  Candidate: //p')
        case "$version" in
        '' | '(none)') ;;
        *) echo "dshpc-version $name $version" ;;
        esac
    done
}

install_package() {
    mkdir -p /opt/dshpc/lib /etc/dshpc /var/lib/dshpc/state /var/lib/dshpc/key
    mv /etc/dshpc-gpu-type /etc/dshpc/gpu-type
    mv /etc/dshpc-packages /etc/dshpc/packages
    for wheel in /run/dshpc-build/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" /opt/dshpc/lib
    done
    # Compiled now, and never compared with their sources again: start-up counts milliseconds.
    python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/dshpc/lib
    mkdir -p /usr/local/share/dshpc
    ln -s /opt/dshpc/lib/dshpc_setup/_share/methods /usr/local/share/dshpc/methods
    chmod 755 /usr/local/bin/dshpc-node /usr/local/lib/dshpc/init /usr/local/lib/dshpc/health \
        /usr/local/lib/dshpc/as-user /usr/local/lib/dshpc/task-prolog \
        /usr/local/lib/dshpc/user-prolog /usr/local/lib/dshpc/follow-address \
        /usr/local/lib/dshpc/job-epilog \
        /usr/local/lib/dshpc/carried \
        /usr/local/lib/dshpc/task-epilog /usr/local/lib/dshpc/job \
        /usr/local/lib/dshpc/ssh-enter /usr/local/lib/dshpc/ssh-listen \
        /usr/local/lib/dshpc/stop /usr/local/lib/dshpc/end-jobs \
        /usr/local/lib/dshpc/confined /usr/local/lib/dshpc/shared-memory \
        /usr/local/lib/dshpc/free-traced \
        /usr/local/lib/dshpc/services/*/run \
        /usr/local/lib/dshpc/services/*/finish \
        /usr/local/lib/dshpc/services/slurmctld/register
    chmod 700 /var/lib/dshpc/key
    /usr/local/bin/dshpc-node help >/dev/null
}

case "${1:-}" in
packages) install_packages ;;
finish)
    skip_manuals
    finish_packages
    ;;
plugins)
    make_plugins
    clean
    ;;
package) install_package ;;
debian) install_debian ;;
python) install_python ;;
versions)
    shift
    show_versions "$@"
    ;;
*) fail "usage: install.sh packages|finish|plugins|package|debian|python|versions" ;;
esac
