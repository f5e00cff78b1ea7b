# shellcheck shell=sh
# A checkout, or an environment of one, that belongs to another user: what of it is used, and by whom.
# Sourced after scripts/launch.sh. The rules are those of ssh (StrictModes), as dshpc_setup/project/trust.py has
# them for project folders: docs/decisions/0032-one-environment.md.

# dshpc_judge VENV: it belongs to root or to whose program this is, and nobody else can write there or
# in a folder above. Leaves in dshpc_unused and dshpc_unused_fix why not, and what its owner can do.
dshpc_judge() {
    : "${dshpc_root:?}"
    dshpc_judged=$(CDPATH='' cd -P -- "$1" 2>/dev/null && pwd -P) || dshpc_judged=
    if [ -z "$dshpc_judged" ] || [ ! -r "$dshpc_judged/.dshpc/stamp" ]; then
        dshpc_refuse_environment "$1 is not readable for you." "chmod -R go+rX $(dshpc_quoted "$1")"
        return 1
    elif [ ! -x "$dshpc_judged/bin/python" ]; then
        dshpc_refuse_environment "the Python that it was made with cannot be run by you." \
            "rm -r $(dshpc_quoted "$1") && $(dshpc_quoted "$dshpc_root/dshpc") --version"
        return 1
    fi
    dshpc_owners="0 $(dshpc_owner_of "$dshpc_root/dshpc")"
    [ ! -O / ] || dshpc_owners="$dshpc_owners ${SUDO_UID:-}"
    set --
    for dshpc_part in '' /bin /lib /pyvenv.cfg /.dshpc /.dshpc/stamp; do
        set -- "$@" "$dshpc_judged$dshpc_part"
    done
    dshpc_part=$dshpc_judged
    while [ -n "$dshpc_part" ]; do
        dshpc_part=${dshpc_part%/*}
        set -- "$@" "${dshpc_part:-/}"
    done
    dshpc_seen=$(LC_ALL=C ls -ldn "$@" 2>/dev/null) || return 1 # it is being made anew
    while read -r dshpc_mode dshpc_links dshpc_uid dshpc_gid dshpc_size dshpc_a dshpc_b dshpc_c dshpc_path; do
        dshpc_judge_part || return 1
    done <<END
$dshpc_seen
END
}

# Of one line of ls: in dshpc_mode, dshpc_uid, dshpc_gid and dshpc_path.
dshpc_judge_part() {
    case " $dshpc_owners " in
        *" $dshpc_uid "*) ;;
        *)
            [ -O "$dshpc_path" ] && return 0
            dshpc_refuse_environment "$dshpc_path belongs to user $dshpc_uid." ''
            return 1
            ;;
    esac
    case $dshpc_mode in
        d????????[tT]*) # from a sticky folder above nobody takes what is another's
            case $dshpc_path in "$dshpc_judged" | "$dshpc_judged"/*) ;; *) return 0 ;; esac
            ;;
    esac
    case $dshpc_mode in
        ????????w*) ;;
        ?????w*) ! dshpc_is_private_group || return 0 ;;
        [d-]?????????*) return 0 ;;
    esac
    dshpc_refuse_environment "$dshpc_path can be written by others (mode $dshpc_mode)." \
        "chmod -R go-w $(dshpc_quoted "$dshpc_path")"
    return 1
}

# Debian and Fedora make a group for each user, with a umask of 002; an access list names more users.
dshpc_is_private_group() {
    case $dshpc_mode in *+) return 1 ;; esac
    command -v getent >/dev/null || return 1
    dshpc_line=$(getent passwd "$dshpc_uid") || return 1
    IFS=: read -r dshpc_name dshpc_a dshpc_b dshpc_primary dshpc_c <<END
$dshpc_line
END
    dshpc_line=$(getent group "$dshpc_gid") || return 1
    IFS=: read -r dshpc_group dshpc_a dshpc_b dshpc_members <<END
$dshpc_line
END
    [ "$dshpc_primary:$dshpc_group" = "$dshpc_gid:$dshpc_name" ] || return 1
    [ -z "$dshpc_members" ] || [ "$dshpc_members" = "$dshpc_name" ]
}

dshpc_refuse_environment() {
    dshpc_unused=$1
    dshpc_unused_fix=$2
    dshpc_unused_place=$dshpc_venv
}

# What may not be used is not built upon either. In somebody else's checkout an environment of one's own
# lies in one's own home: what root or a member of the group left there would be in its owner's way at
# the next update.
dshpc_choose_own_place() {
    if [ -n "$dshpc_unused" ] && [ "$dshpc_unused_place" = "${dshpc_second_place:-$dshpc_place}" ]; then
        dshpc_say "an environment that is not safe to use lies in $dshpc_unused_place." "$dshpc_unused" \
            'Remove it, or name a folder of your own for another one: DSHPC_VENV=DIR'
        exit 2
    fi
    if [ -z "$dshpc_unused" ] && [ -O / ] && [ "$(dshpc_owner_of "$dshpc_root")" = "${SUDO_UID:-}" ]; then
        return 0 # environment.py gives it to its owner
    fi
    if [ -n "$dshpc_second_place" ]; then
        dshpc_place=$dshpc_second_place
        dshpc_second_place=
    fi
    [ -z "$dshpc_unused" ] || dshpc_say "the environment of this checkout is not used: $dshpc_unused" \
        ${dshpc_unused_fix:+"Its owner can change that: $dshpc_unused_fix"}
}

# Root who runs another user's program runs what that user can change at any time.
dshpc_warn_root() {
    dshpc_owner=$(dshpc_owner_of "$dshpc_root/dshpc")
    [ "$dshpc_owner" = "${SUDO_UID:-}" ] || dshpc_say \
        "$dshpc_root belongs to user $dshpc_owner, who can change what root runs here." \
        "Use a checkout of root's own, or run it as that user: sudo -u '#$dshpc_owner' $dshpc_root/dshpc"
}

# dshpc_owner_of PATH: prints its owner's number.
dshpc_owner_of() {
    dshpc_line=$(LC_ALL=C ls -ldn "$1") || return 1
    read -r dshpc_mode dshpc_links dshpc_uid dshpc_rest <<END
$dshpc_line
END
    printf '%s\n' "$dshpc_uid"
}

# dshpc_quoted PATH: prints it as a word of a shell.
dshpc_quoted() {
    case $1 in
        *[!A-Za-z0-9_/.+-]*) printf "'%s'\n" "$1" ;;
        *) printf '%s\n' "$1" ;;
    esac
}
