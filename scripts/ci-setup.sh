#!/bin/sh
# A cluster on a runner of continuous integration, with srun, sbatch, ... for the steps after this one.
# docs/how-to/ci.md says how it is used. Prints the folder for the PATH; all else goes to stderr.
# Only what is needed to reach Python is written in shell: scripts/launch.sh.
set -eu

case $0 in
    */*) dshpc_root=$(CDPATH='' cd -P -- "${0%/*}/.." && pwd -P) ;;
    *) dshpc_root=$(CDPATH='' cd -P -- .. && pwd -P) ;;
esac
dshpc_command=ci-setup
. "$dshpc_root/scripts/launch.sh"
dshpc_locate
dshpc_find_ready || dshpc_prepare "$dshpc_command" --yes
exec "$dshpc_venv/bin/python" -I "$dshpc_root/scripts/ci_setup.py" "$@"
