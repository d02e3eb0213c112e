#!/usr/bin/env bash
# Builds the services and runs them together, with what they keep in pkgs/target/up.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
programs=(linerate linerate-links linerate-files linerate-api)
# By packages: without them every member of the workspace has a say in what its dependencies are built with.
cargo build --profile try --locked --bins $(printf -- '--package %s ' "${programs[@]}")
exec target/try/linerate up --data target/up "$@"
