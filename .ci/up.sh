#!/usr/bin/env bash
# Builds the services and runs them together, with what they keep in pkgs/target/up.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
programs=(linerate linerate-links linerate-files linerate-api)
cargo build --profile try --locked $(printf -- '--bin %s ' "${programs[@]}")
exec target/try/linerate up --data target/up "$@"
