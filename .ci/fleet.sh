#!/usr/bin/env bash
# fleet.sh: services on a PostgreSQL that fails over: Patroni with three servers, etcd, HAProxy and pgbouncer, with TLS.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc fleet
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
# All test targets of the workspace, since that builds its programs too, in the tests' profile: what 'make test' has
# built isn't built again.
cargo test --workspace --locked --no-run
exec cargo test --workspace --locked --test fleet </dev/null
