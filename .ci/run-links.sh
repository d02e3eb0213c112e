#!/usr/bin/env bash
# Builds links and serves it, with a token for whoever started it.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cd pkgs
exec cargo run --release --locked --bin linerate-links -- serve --print-token
