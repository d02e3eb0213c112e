#!/usr/bin/env bash
# fuzz.sh [SECONDS [NAME...]]: runs each fuzz target for this long, 60 s by default, starting from its seeds and what
# earlier runs have found. A name is a package's (links) or a target's (links/code); without names, all run.
#
# A finding doesn't stop the others. At the end it prints how often and how long each target ran and what it found, and
# exits with 1 if any found something. $FUZZ_SANITIZER is the builds' instrumentation besides coverage: address, or
# none.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
if [[ ! $seconds =~ ^[1-9][0-9]*$ ]]; then
    echo "usage: .ci/fuzz.sh [SECONDS [PACKAGE | PACKAGE/TARGET]...]" >&2
    exit 2
fi
names=("${@:2}")
.ci/install.sh cargo cc g++
PATH=${XDG_CACHE_HOME:-$HOME/.cache}/linerate/cargo-tools/bin:$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "error: fuzzing needs a nightly toolchain: 'rustup toolchain install nightly --profile minimal'" >&2
    exit 1
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "error: fuzzing needs cargo-fuzz: 'cargo install cargo-fuzz --locked --root" \
        "${XDG_CACHE_HOME:-$HOME/.cache}/linerate/cargo-tools'" >&2
    exit 1
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
# The directory for what the targets serve and store, which they don't delete.
mkdir "$work/tmp"
export TMPDIR=$work/tmp
# Some targets run whole services: memory that their threads still hold when the target ends would count as a leak.
export ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
options=(--sanitizer "${FUZZ_SANITIZER:-address}")
failed=0

# chosen PACKAGE [TARGET]: whether it was selected.
chosen() {
    local name
    [[ ${#names[@]} -gt 0 ]] || return 0
    for name in "${names[@]}"; do
        [[ $name == "$1" || $name == "$1/${2:-${name#*/}}" ]] && return 0
    done
    return 1
}

# row TARGET RUNS SECONDS FOUND: prints it, and keeps it for the end.
row() {
    printf '%-24s %12s %8s  %s\n' "$@" | tee -a "$work/table"
}

# one PACKAGE TARGET: runs it.
one() {
    local log=$work/log begun=$SECONDS status=0 runs found=nothing
    mkdir -p "fuzz/corpus/$2"
    # The timeout is long: an input may take as long as the connection model waits for an answer, which is a finding of
    # its own.
    cargo +nightly fuzz run "${options[@]}" "$2" "fuzz/corpus/$2" "fuzz/seeds/$2" -- \
        -max_total_time="$seconds" -timeout=120 -print_final_stats=1 >"$log" 2>&1 </dev/null || status=$?
    runs=$(sed -nE 's/^stat::number_of_executed_units: +//p' "$log" | tail -n 1)
    if [[ $status != 0 ]]; then
        failed=1
        tail -n 60 "$log"
        found=$(sed -nE 's/.*Test unit written to .*(fuzz\/artifacts\/.*)/\1/p' "$log" | tail -n 1)
        found=${found:+pkgs/$1/$found}
        found=${found:-it ended with $status}
    fi
    row "$1/$2" "${runs:-?}" $((SECONDS - begun)) "$found"
}

row target runs seconds found
ran=0
for package in pkgs/*/fuzz; do
    name=${package#pkgs/} name=${name%/fuzz}
    chosen "$name" || continue
    cd "$package/.."
    if cargo +nightly fuzz build "${options[@]}" >"$work/log" 2>&1 </dev/null; then
        for target in $(cargo +nightly fuzz list); do
            chosen "$name" "$target" || continue
            ran=$((ran + 1))
            one "$name" "$target"
        done
    else
        failed=1
        tail -n 60 "$work/log"
        row "$name" 0 0 'it does not build'
    fi
    cd - >/dev/null
done
echo
echo "== fuzzing, $ran targets"
cat "$work/table"
if [[ $ran == 0 ]]; then
    echo "error: no target ran" >&2
    exit 1
fi
exit "$failed"
