# shellcheck shell=bash
# Checks of a script in the guest, which hands this file in: `. "$IN/checks.sh"`. Each runs, so that one failure
# does not hide another; `conclude` prints the sum and ends the script.
IN=/var/lib/acceptance/in
OUT=/var/lib/acceptance/out
by="" # the function that a command is handed to, such as one that runs it as a user

started=$(date +%s)
passed=0
failed=()

step() { printf '\n== %4d s  %s\n' "$(($(date +%s) - started))" "$*"; }
ok() { echo "   ok: $1"; passed=$((passed + 1)); }
not_ok() { echo "   NOT OK: $1"; failed+=("$1"); }

check() { # check NAME COMMAND...: its exit code decides
    local name=$1
    shift
    echo "\$ ${by:+$by: }$*"
    if ${by:+"$by"} "$@" 2>&1; then ok "$name"; else not_ok "$name (exit code $?)"; fi
}

prints() { # prints NAME EXPECTED COMMAND...: it ends well, and its standard output is exactly EXPECTED
    local name=$1 expected=$2 got code=0
    shift 2
    echo "\$ ${by:+$by: }$*"
    got=$(${by:+"$by"} "$@") || code=$?
    echo "$got"
    if [ "$code" = 0 ] && [ "$got" = "$expected" ]; then
        ok "$name"
    else
        not_ok "$name (exit code $code; wanted '$expected')"
    fi
}

conclude() {
    printf '\n%d checks passed, %d failed\n' "$passed" "${#failed[@]}"
    [ "${#failed[@]}" -gt 0 ] || exit 0
    printf '  NOT OK: %s\n' "${failed[@]}"
    exit 1
}
