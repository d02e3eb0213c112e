#!/usr/bin/env bash
# bench.sh PACKAGE BENCH [ARGUMENT...]: runs a bench with the peers it is compared with.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc wrk h2load nginx
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
exec cargo bench --locked -p "$1" --bench "$2" "${@:3}"
