#!/usr/bin/env bash
# bench-router.sh [FILTER]: the router compared with its peers. The bench is a separate workspace, so that nothing else
# has to build them.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
export CARGO_TARGET_DIR=$PWD/pkgs/target/router-bench
cd pkgs/router/bench
exec cargo bench --locked --bench routes -- "$@"
