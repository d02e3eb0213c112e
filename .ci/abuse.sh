#!/usr/bin/env bash
# abuse.sh [FILTER...]: clients that drip, stall, flood and nest, against the real programs.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
# Builds all test targets of the workspace, which includes the programs, in the tests' profile: so nothing is built
# again that 'make test' has built.
cargo test --workspace --locked --no-run
# New random conversations, in addition to those of "make test".
export LINERATE_ABUSE_SEED=${LINERATE_ABUSE_SEED:-random}
# By file name: no other crate has tests with these names, except the seeds'.
exec cargo test --workspace --locked --test abuse -- "$@" </dev/null
