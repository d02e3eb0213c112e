#!/usr/bin/env bash
# fleet.sh: services on a PostgreSQL that fails over: Patroni with three servers, etcd, HAProxy and pgbouncer, with TLS.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc fleet
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
# Builds all test targets of the workspace, which includes the programs, in the tests' profile: so nothing is built
# again that 'make test' has built.
cargo test --workspace --locked --no-run
exec cargo test --workspace --locked --test fleet </dev/null
