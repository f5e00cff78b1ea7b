# shellcheck shell=sh disable=SC2119,SC2120
# From a bare machine to the package's entry points, in POSIX sh (dash, busybox, ksh, bash, zsh's sh).
#
# Sourced by ./configure-environment, ./dshpc and ./run-tests with dshpc_root set to the checkout.
# Every name here begins with dshpc_: a variable that the user exported under a plain name would be
# changed for the program that we hand over to. Everything that is said goes to stderr, because
# stdout belongs to --json.

# dshpc_launch COMMAND ARGUMENT...: run COMMAND of the private environment, made first if need be.
dshpc_launch() {
    : "${dshpc_root:?}"
    dshpc_command=$1
    shift
    dshpc_locate
    dshpc_find_ready || dshpc_prepare "$dshpc_command" "$@"
    if [ -O / ] && [ ! -O "$dshpc_root/dshpc" ]; then
        . "$dshpc_root/scripts/others.sh"
        dshpc_warn_root
    fi
    # what the program's words call it by: a checkout is on nobody's PATH, but a link to it may be
    DSHPC_COMMAND=$dshpc_root/dshpc
    export DSHPC_COMMAND
    case ":$PATH:" in *":${0%/*}:"*) export DSHPC_ON_PATH=yes ;; esac
    exec "$dshpc_venv/bin/python" -I "$dshpc_venv/bin/$dshpc_command" "$@"
}

# Sets dshpc_inputs, what an environment must have been made from (the checkout's path included), and
# dshpc_place and dshpc_second_place, where it may lie. One process: this is paid at every start.
dshpc_locate() {
    dshpc_inputs=$(cksum "$dshpc_root/requirements.lock" "$dshpc_root/pyproject.toml") || {
        dshpc_say "$dshpc_root is not a whole checkout: a file that it needs cannot be read." \
            "Clone the project again, or restore the file: git checkout -- requirements.lock pyproject.toml"
        exit 2
    }
    dshpc_second_place=
    case ${DSHPC_VENV:-} in
        '')
            dshpc_place=$dshpc_root/.venv
            # For a checkout that this user cannot write to; the path inside keeps checkouts apart.
            dshpc_data=${XDG_DATA_HOME:-${HOME:+$HOME/.local/share}}
            [ -z "$dshpc_data" ] || dshpc_second_place=$dshpc_data/dshpc/environments$dshpc_root
            ;;
        /*) dshpc_place=$DSHPC_VENV ;;
        *) dshpc_place=$(pwd)/$DSHPC_VENV ;;
    esac
}

# Sets dshpc_venv to the environment that was finished and made from what lies here now. Another
# user's is taken where it is as safe as the program itself: docs/decisions/0032-one-environment.md.
dshpc_find_ready() {
    dshpc_unused=
    for dshpc_venv in "$dshpc_place" ${dshpc_second_place:+"$dshpc_second_place"}; do
        [ -d "$dshpc_venv" ] || continue
        dshpc_may_use "$dshpc_venv" || continue
        { IFS= read -r dshpc_line1 && IFS= read -r dshpc_line2; } <"$dshpc_venv/.dshpc/stamp" || continue
        [ "$dshpc_line1
$dshpc_line2" = "$dshpc_inputs" ] && return 0
    done
    return 1
}

# dshpc_may_use VENV: it can be used, and nobody else than its owner and root can have written it.
dshpc_may_use() {
    if [ ! -O "$1" ]; then # nearly always one's own: that costs no process
        . "$dshpc_root/scripts/others.sh"
        dshpc_judge "$1" || return 1
    fi
    [ -x "$1/bin/python" ] && [ -r "$1/.dshpc/stamp" ]
}
# dshpc_prepare COMMAND ARGUMENT...: make the environment and set dshpc_venv, or say why not and exit.
dshpc_prepare() {
    if ! dshpc_find_python; then
        . "$dshpc_root/scripts/packages.sh"
        dshpc_install_python "$@"
    fi
    if [ ! -O "$dshpc_root" ] || [ -n "$dshpc_unused" ]; then
        . "$dshpc_root/scripts/others.sh"
        dshpc_choose_own_place
    fi
    dshpc_make_environment
}

# dshpc_make_environment [--dev]: make the environment and set dshpc_venv, or exit. Hands over to Python
# as early as can be: locks, deadlines and error texts are better kept there.
dshpc_make_environment() {
    dshpc_venv=$("$dshpc_python" -I "$dshpc_root/scripts/environment.py" --root "$dshpc_root" \
        --inputs "$dshpc_inputs" --place "$dshpc_place" \
        ${dshpc_second_place:+--place "$dshpc_second_place"} "$@") || exit $?
}

# Sets dshpc_python to the first Python 3.10 or later that can make environments; without one, leaves
# what was found and why it was not taken in dshpc_refused, and the version that lacks only the venv
# package in dshpc_incomplete.
dshpc_find_python() {
    dshpc_refused=
    dshpc_incomplete=
    for dshpc_name in python3 python3.20 python3.19 python3.18 python3.17 python3.16 python3.15 \
        python3.14 python3.13 python3.12 python3.11 python3.10 python /usr/libexec/platform-python; do
        dshpc_python=$(command -v "$dshpc_name") || continue
        # Without Apple's developer tools this one opens a window and asks; with them it is 3.9.
        [ "$dshpc_python" = /usr/bin/python3 ] && [ "$(uname -s)" = Darwin ] && continue
        # A version manager's shim for a version that is not active fails: it is not a Python.
        dshpc_answer=$("$dshpc_python" -I -c '
import sys
state = "old"
if sys.version_info >= (3, 10):
    try:
        import ensurepip, venv
        state = "good"
    except ImportError:
        state = "incomplete"
print("%d.%d %s" % (sys.version_info[0], sys.version_info[1], state))
' </dev/null 2>/dev/null) || continue
        case $dshpc_answer in
            *' good') return 0 ;;
            *' incomplete')
                dshpc_incomplete=${dshpc_incomplete:-${dshpc_answer% *}}
                dshpc_refuse "$dshpc_python is ${dshpc_answer% *}, but has no venv or ensurepip module"
                ;;
            *' old') dshpc_refuse "$dshpc_python is ${dshpc_answer% *}, too old" ;;
        esac
    done
    dshpc_python=
    return 1
}

dshpc_refuse() {
    dshpc_refused="${dshpc_refused:+$dshpc_refused; }$1"
}

# dshpc_say WHAT LINE...: one message in the form that all of the project's messages have.
dshpc_say() {
    printf '%s: %s\n' "${dshpc_command:-dshpc}" "$1" >&2
    shift
    [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
}
