# shellcheck shell=sh
# Which package of this distribution brings a Python or a C compiler, and its installation.
# Sourced, where something is missing, after scripts/launch.sh.

# dshpc_install_python ARGUMENT...: install a Python where the arguments hold --yes, else say how; sets
# dshpc_python or exits with 2.
dshpc_install_python() {
    : "${dshpc_root:?}"
    if [ -n "$dshpc_incomplete" ]; then
        dshpc_what="Python $dshpc_incomplete is here, but the part of it that makes environments is not."
    else
        dshpc_what='there is no Python 3.10 or later on this machine.'
    fi
    dshpc_why="Found: ${dshpc_refused:-no Python at all}."
    if ! dshpc_choose_manager; then
        dshpc_say "$dshpc_what" "$dshpc_why" \
            'Install Python 3.10 or later with its venv module, put it on PATH, and run this again.'
        exit 2
    fi
    dshpc_choose_python_packages
    if ! dshpc_agreed "$@"; then
        dshpc_say "$dshpc_what" "$dshpc_why" \
            "Install it:            $(dshpc_show_install)" \
            "or have it installed:  $dshpc_root/configure-environment --yes"
        exit 2
    fi
    dshpc_say "$dshpc_what" "Installing, because of --yes: $(dshpc_show_install)"
    dshpc_install || exit 2
    hash -r
    dshpc_find_python && return 0
    dshpc_say "the packages were installed ($dshpc_packages), and there is still no fitting Python." \
        "Found: ${dshpc_refused:-no Python at all}." \
        "This distribution's Python is older than 3.10: use a newer release of it, or put another Python 3.10 or later on PATH."
    exit 2
}

# dshpc_agreed ARGUMENT...: the user's arguments allow to change the system.
dshpc_agreed() {
    dshpc_yes=1
    for dshpc_argument; do
        case $dshpc_argument in
            --) break ;;
            --dry-run) return 1 ;;
            --yes | -y) dshpc_yes=0 ;;
        esac
    done
    return "$dshpc_yes"
}

dshpc_choose_manager() {
    for dshpc_manager in apt-get dnf microdnf yum zypper pacman apk brew; do
        ! command -v "$dshpc_manager" >/dev/null || return 0
    done
    return 1
}

# Sets dshpc_packages. Old releases of these keep a python3 that is too old, and newer ones beside it:
# RHEL 8 and 9, their rebuilds and Amazon Linux 2023 have python3.12, SUSE 15 has python311.
dshpc_choose_python_packages() {
    dshpc_release=$(
        ID='' VERSION_ID=''
        # shellcheck disable=SC1091
        [ ! -r /etc/os-release ] || . /etc/os-release
        printf '%s %s' "$ID" "${VERSION_ID%%.*}"
    )
    case $dshpc_manager in
        apt-get) dshpc_packages="python3 ${dshpc_incomplete:+python$dshpc_incomplete-venv }python3-venv" ;;
        dnf | microdnf | yum)
            case $dshpc_release in
                'fedora '* | *' 10') dshpc_packages=python3 ;;
                *) dshpc_packages=python3.12 ;;
            esac
            ;;
        zypper)
            case $dshpc_release in
                *' 15') dshpc_packages=python311 ;;
                *) dshpc_packages=python3 ;;
            esac
            ;;
        pacman | brew) dshpc_packages=python ;;
        apk) dshpc_packages=python3 ;;
    esac
}

# The command for a person to copy.
dshpc_show_install() {
    case $dshpc_manager in
        apt-get) dshpc_shown="apt-get install -y $dshpc_packages" ;;
        dnf | microdnf | yum) dshpc_shown="$dshpc_manager install -y $dshpc_packages" ;;
        zypper) dshpc_shown="zypper install $dshpc_packages" ;;
        pacman) dshpc_shown="pacman -S --needed $dshpc_packages" ;;
        apk) dshpc_shown="apk add $dshpc_packages" ;;
        brew) dshpc_shown="brew install $dshpc_packages" ;;
    esac
    if [ "$dshpc_manager" = brew ] || [ "$(id -u)" -eq 0 ]; then
        printf '%s' "$dshpc_shown"
    else
        printf 'sudo %s' "$dshpc_shown"
    fi
}

# Installs dshpc_packages. Waits for another package manager, but not for ever, and never for input.
dshpc_install() {
    dshpc_choose_root || return 1
    # The list is split into words on purpose.
    # shellcheck disable=SC2086
    case $dshpc_manager in
        apt-get)
            # An old list of packages may be good enough: what counts is whether the install works.
            dshpc_as_root apt-get -q -o DPkg::Lock::Timeout=300 update ||
                dshpc_say 'the list of packages could not be renewed; trying with the one that is here.'
            dshpc_as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
                install -y --no-install-recommends $dshpc_packages
            ;;
        dnf | microdnf | yum) dshpc_as_root "$dshpc_manager" install -y $dshpc_packages ;;
        zypper)
            dshpc_as_root env ZYPP_LOCK_TIMEOUT=300 zypper --non-interactive install $dshpc_packages
            ;;
        pacman)
            # Only a machine that never had one gets a new database: renewing it without upgrading
            # everything is what Arch asks people not to do.
            set -- /var/lib/pacman/sync/*.db
            [ -e "$1" ] || dshpc_as_root pacman -Sy --noconfirm
            dshpc_as_root pacman -S --noconfirm --needed $dshpc_packages
            ;;
        apk) dshpc_as_root apk add $dshpc_packages ;;
        brew) brew install $dshpc_packages ;;
    esac </dev/null >&2 || {
        dshpc_say "the installation failed: $dshpc_packages" \
            'The package manager says why, above. Once that is fixed, run this again.'
        return 1
    }
}

# Sets dshpc_sudo to how a command becomes root, or says what to do and fails.
dshpc_choose_root() {
    dshpc_sudo=
    [ "$dshpc_manager" != brew ] || return 0
    [ "$(id -u)" -ne 0 ] || return 0
    if command -v sudo >/dev/null; then
        # Without a terminal nobody can type a password.
        if sudo -n true 2>/dev/null; then
            dshpc_sudo='sudo -n'
            return 0
        elif [ -t 0 ] && [ -t 2 ] && sudo -v; then
            dshpc_sudo=sudo
            return 0
        fi
    fi
    dshpc_say 'installing packages needs root, and this user cannot become root here without a password.' \
        "As root, or in a terminal: $(dshpc_show_install)"
    return 1
}

dshpc_as_root() {
    # Nothing, or "sudo -n": split on purpose.
    # shellcheck disable=SC2086
    $dshpc_sudo "$@"
}
