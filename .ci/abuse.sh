#!/usr/bin/env bash
# abuse.sh [FILTER...]: what drips, stalls, floods and nests, against the real programs.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
# All test targets of the workspace, for that builds its programs with them, in the profile of the tests: what 'make
# test' has built is not built again.
cargo test --workspace --locked --no-run
# Conversations nobody has held before, beside those that "make test" holds.
export LINERATE_ABUSE_SEED=${LINERATE_ABUSE_SEED:-random}
# The names of the files: of no other crate are there tests of these names, but for the seeds'.
exec cargo test --workspace --locked --test abuse -- "$@" </dev/null
