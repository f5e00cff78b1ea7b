"""The two shell scripts that run as root to make a base image, and to clean up after it."""

from __future__ import annotations

from dshpc_setup.image.mirror import RELEASE

# Run in the new root. As small as the image of the same name in the registries: no caches, documents,
# translations. Without a single quote: it is a part of the script below.
SLIM = r"""
rm -f /etc/apt/sources.list /var/cache/apt/*.bin /var/cache/debconf/*-old
rm -f /var/lib/dpkg/*-old /etc/*- /var/cache/ldconfig/aux-cache /etc/hostname /etc/resolv.conf
rm -rf /debootstrap
find /var/lib/apt/lists /var/cache/apt/archives /var/log -xdev -type f -delete
find /usr/share/doc -xdev ! -type d ! -name copyright -delete
find /usr/share/man /usr/share/info /usr/share/locale /usr/share/lintian \
    -xdev -mindepth 1 -delete
find /usr/share/doc -xdev -depth -type d -empty -delete
find /run /tmp -xdev -mindepth 1 -delete
: >/etc/machine-id
{
    echo "path-exclude /usr/share/doc/*"
    echo "path-include /usr/share/doc/*/copyright"
    for what in man info locale lintian; do echo "path-exclude /usr/share/$what/*"; done
    echo force-unsafe-io
} >/etc/dpkg/dpkg.cfg.d/slim
{
    echo "Acquire::Languages \"none\";"
    echo "APT::Keep-Downloaded-Packages \"false\";"
} >/etc/apt/apt.conf.d/slim
printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d
chmod 0755 /usr/sbin/policy-rc.d
"""

# Arguments: work folder, main mirror ("" = debootstrap's own), security mirror, then debootstrap's.
MAKE = r"""
set -eu
umask 022
PATH=/usr/sbin:/usr/bin:/sbin:/bin
work=$1 main=$2 security=$3
shift 3
root=$work/root
echo $$ >"$work/pid"
if [ -f "$work/proxies" ]; then set -a; . "$work/proxies"; set +a; fi

debootstrap "$@"

main=${main:-$(sed -n 's/^deb  *\([^ ]*\) .*/\1/p' "$root/etc/apt/sources.list" | head -n 1)}
[ -n "$main" ]
# Further suites only where they are: a mirror of one site may hold the release alone.
answers() { wget -q --spider --tries=2 --timeout=15 "$1" 2>/dev/null; }
suites=SUITE
if answers "$main/dists/SUITE-updates/InRelease"; then suites="SUITE SUITE-updates"; fi
security=${security:-${main%/debian}/debian-security}
if ! answers "$security/dists/SUITE-security/InRelease"; then security=; fi
stamp=$(cat "$root"/var/lib/apt/lists/*Release | sed -n 's/^Date: //p' | head -n 1)

chroot "$root" /bin/sh -eu -c '
SLIM    entry() {
        printf "Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: %s\n\n" \
            "$1" "$2" /usr/share/keyrings/debian-archive-keyring.gpg
    }
    {
        entry "$1" "$2"
        if [ -n "$3" ]; then entry "$3" SUITE-security; fi
    } >/etc/apt/sources.list.d/debian.sources
' sh "$main" "$suites" "$security"

set -- --numeric-owner --one-file-system --exclude='./dev/*' --exclude='./proc/*' \
    --exclude='./sys/*' -C "$root" -cf "$work/base.tar"
if tar --version | grep -q GNU; then
    set -- --sort=name --clamp-mtime --mtime="@$(date -d "$stamp" +%s)" "$@"
fi
tar "$@" .
chmod 0644 "$work/base.tar"
""".replace("SUITE", RELEASE).replace("SLIM", SLIM)

# Argument: the work folder. Ends what still runs in it, unmounts what is mounted there, removes it.
CLEAN = r"""
set -u
PATH=/usr/sbin:/usr/bin:/sbin:/bin
work=$1
[ -f "$work/.dshpc-base" ] || exit 1
pid=$(cat "$work/pid" 2>/dev/null)
if [ -n "$pid" ] && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF -- "$work"; then
    kill -KILL -- "-$(cut -d ' ' -f 5 "/proc/$pid/stat")" 2>/dev/null
fi
for link in /proc/[0-9]*/root; do
    case $(readlink "$link" 2>/dev/null) in
    "$work"/*) of=${link%/root}; kill -KILL "${of#/proc/}" 2>/dev/null ;;
    esac
done
mounted() { cut -d ' ' -f 5 /proc/self/mountinfo | grep -F -- "$work/"; }
mounted | sort -r | while read -r at; do umount "$at" 2>/dev/null || umount -l "$at"; done
if mounted >&2; then exit 1; fi
rm -rf --one-file-system -- "$work"
"""
