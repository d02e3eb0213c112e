#!/usr/bin/env bash
# portable.sh [NAME...]: boots the rendered hosts on Debian 13 in QEMU, and runs the scripts of tests/vm there: all of
# them, or the named ones. `portable.sh --boot HOST` boots a host to look around in.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(id -u) != 0 ]]; then
    said="skipped: all VM tests: only root may make the guests' file system and network"
    echo "$said"
    [[ -z ${LINERATE_SKIPS:-} ]] || echo "$said" >>"$LINERATE_SKIPS"
    exit 0
fi
.ci/install.sh cargo cc go ip mke2fs mmdebstrap python3 setpriv strip xz
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
exec python3 -B tests/portable "$@"
