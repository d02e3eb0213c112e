#!/usr/bin/env bash
# Builds the services and runs them together, with their data in pkgs/target/up.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
programs=(linerate linerate-links linerate-files linerate-api)
# By package: otherwise every member of the workspace affects the features of its dependencies.
cargo build --profile try --locked --bins $(printf -- '--package %s ' "${programs[@]}")
target=${CARGO_TARGET_DIR:-target}
exec "$target/try/linerate" up --data "$target/up" "$@"
