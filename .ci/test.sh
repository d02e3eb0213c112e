#!/usr/bin/env bash
# Formatting, lints and all tests, on whatever machine this is.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc curl go openssl postgres python3
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
.ci/nix.sh check
tests/fallback.sh
cd pkgs
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo check -p linerate-links -p linerate-router --features linerate-links/no-tracing,linerate-router/no-tracing --locked
cargo test --workspace --locked </dev/null
# What was built for the tests is what the guests run.
exec ../.ci/portable.sh
