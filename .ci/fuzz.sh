#!/usr/bin/env bash
# fuzz.sh [SECONDS]: runs each fuzz target for so long, 60 s unless given, from the seeds and what earlier
# runs have found.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc g++
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
    echo "error: fuzzing needs a nightly toolchain ('rustup toolchain install nightly') and cargo-fuzz" \
        "('cargo install cargo-fuzz')" >&2
    exit 1
fi
for package in pkgs/*/fuzz; do
    cd "$package/.."
    for target in $(cargo +nightly fuzz list); do
        mkdir -p "fuzz/corpus/$target"
        cargo +nightly fuzz run "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- -max_total_time="${1:-60}"
    done
    cd - >/dev/null
done
