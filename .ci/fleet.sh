#!/usr/bin/env bash
# fleet.sh: services on a PostgreSQL that fails over: Patroni with three servers, etcd, HAProxy and pgbouncer, by TLS.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc fleet
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
# All test targets of the workspace, for that builds its programs with them, in the profile of the tests: what 'make
# test' has built is not built again.
cargo test --workspace --locked --no-run
exec cargo test --workspace --locked --test fleet </dev/null
