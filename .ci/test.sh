#!/usr/bin/env bash
# Formatting, lints and all tests, on any machine. At the end it prints how long each part took, and what was skipped,
# with names and reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
# A full disk ends this in the middle of something else.
free=$(df --output=avail -B 1G . | tail -n 1)
[[ $free -ge 30 ]] || echo "warning: only $((free)) GB are free here; from nothing, all of this takes 26, here, in the Nix store and in ~/.cache" >&2
work=$(mktemp -d)
# Tests append a line `skipped: NAME: REASON` for each thing that they couldn't test here.
export LINERATE_SKIPS=$work/skips
: >"$LINERATE_SKIPS"
: >"$work/durations"
[[ ! -t 1 ]] || export CARGO_TERM_COLOR=always
# The process groups of concurrent parts, by name.
declare -A running=()

# part NAME COMMAND...: runs it, and records how long it took.
part() {
    local name=$1 status=0 begun=$SECONDS
    shift
    echo "== $name"
    echo "$begun" >"$work/$name.begun"
    "$@" 2>&1 </dev/null | tee "$work/$name.log" || status=$?
    rm "$work/$name.begun"
    echo "$((SECONDS - begun)) $status $name" >>"$work/durations"
    return "$status"
}

# beside NAME COMMAND...: runs a part concurrently with the following parts, until `join NAME`.
beside() {
    # Its own process group, so that all of it can be ended.
    set -m
    part "$@" >/dev/null &
    set +m
    running[$1]=$!
}

# join NAME: shows the output of a concurrent part, and waits for its end.
join() {
    local group=${running[$1]} status=0
    echo "== $1"
    tail --lines=+1 --follow --sleep-interval=0.2 --pid="$group" "$work/$1.log"
    wait "$group" || status=$?
    unset "running[$1]"
    return "$status"
}

# Printed at the end, whatever the result.
report() {
    local status=$? group seconds ended name failed begun
    for group in "${running[@]}"; do
        kill -- "-$group" 2>/dev/null || true
    done
    # If somebody interrupted the run, the part that was running is probably the reason.
    for begun in "$work"/*.begun; do
        [[ -e $begun ]] || continue
        name=$(basename "$begun" .begun)
        echo "$((SECONDS - $(<"$begun"))) interrupted $name" >>"$work/durations"
    done
    echo
    echo "== durations"
    while read -r seconds ended name; do
        printf '%3d min %02d s  %s%s\n' $((seconds / 60)) $((seconds % 60)) "$name" \
            "$([[ $ended == 0 ]] || echo ": ${ended/#[0-9]*/failed}")"
    done <"$work/durations"
    printf '%3d min %02d s  all of it\n' $((SECONDS / 60)) $((SECONDS % 60))
    # Scripts print `PART: skipped: REASON`.
    {
        cat "$LINERATE_SKIPS"
        cat "$work"/*.log 2>/dev/null | sed -nE 's/^([a-z-]+): skipped:? /\1: /p'
    } | sed 's/^skipped: //' | sort -u >"$work/skipped"
    echo
    echo "== $(wc -l <"$work/skipped") skipped"
    cat "$work/skipped"
    failed=$(awk '$2 != 0 { print $3 }' "$work/durations" | xargs)
    # Repeats the end of each failed part's output, in case only the end of this output is kept.
    for name in $failed; do
        printf '\n== the last of %s\n' "$name"
        tail -n 40 "$work/$name.log" | cut -c -400
    done
    [[ $status == 0 ]] || echo "error: ${failed:-all of it} did not end well" >&2
    rm -rf "$work"
}
trap report EXIT
trap 'exit 130' INT TERM

in_pkgs() {
    (cd pkgs && "$@")
}

# The documentation of the code, as those read it who work on it: every link in it leads somewhere.
rustdoc() {
    RUSTDOCFLAGS="-D warnings --allow rustdoc::private-intra-doc-links" in_pkgs cargo doc --workspace --no-deps \
        --document-private-items --locked
}

# Every service without log statements, and with the C library of `make dist`.
no_tracing() {
    local triple target=()
    triple=$(uname -m)-unknown-linux-musl
    if command -v rustup >/dev/null && .ci/install.sh musl-gcc && rustup --quiet target add "$triple"; then
        target=(--target "$triple")
    else
        echo "no-tracing: skipped: nothing is compiled for musl, since rustup has no $triple here"
    fi
    in_pkgs cargo check --locked "${target[@]}" -p linerate-links -p linerate-files -p linerate-api \
        --features linerate-links/no-tracing,linerate-files/no-tracing,linerate-api/no-tracing
}

# Its peers belong only to this bench: they are built if `make bench-router` has built them before.
router_bench() {
    if [[ -d pkgs/target/router-bench ]]; then
        (cd pkgs/router/bench && CARGO_TARGET_DIR=../../target/router-bench cargo check --locked --benches)
    else
        echo "router-bench: skipped: pkgs/router/bench is not compiled until 'make bench-router' has built its peers"
    fi
}

# Real systems, with the programs that were built for the tests, and images of them; and our programs by crane.
nixos() {
    .ci/nixos.sh && PROFILE=dev .ci/nixos.sh --images "${CARGO_TARGET_DIR:-pkgs/target}/images" \
        aws-c6i-image tengbe-appliance tengbe-image tengbe-installer && PROFILE=dev .ci/nixos.sh --packages
}

.ci/install.sh cargo cc curl git go h2load haproxy ip man nginx openssl postgres python3 wrk
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# Nix evaluates on one CPU, and cargo often waits, so the two run concurrently.
beside nix-check .ci/nix.sh check
part structure make --no-print-directory check-structure
part format in_pkgs cargo fmt --all --check
part lints in_pkgs cargo clippy --workspace --all-targets --locked -- -D warnings
part rustdoc rustdoc
part build in_pkgs cargo test --workspace --locked --no-run
part audit .ci/audit.sh
part no-tracing no_tracing
part router-bench router_bench
join nix-check
# Tests that measure time run when nothing else does.
part tests tests/cargo.py
part training in_pkgs cargo test --workspace --locked --test training -- --ignored
# The modules' settings, compared with the programs'.
part settings in_pkgs ../tests/settings.py check "${CARGO_TARGET_DIR:-target}/debug"
# Building systems, and the guests' disks, takes one CPU each and leaves it to whoever needs it. Meanwhile parts run that
# mostly wait, and have long timeouts, and all use what was built for the tests: the manual's comparison with the
# programs and its commands; packages in fresh roots; dashboards, alert rules and the service address of several boxes;
# the console in a browser.
beside nixos nixos
beside vm-test .ci/portable.sh --when "$work/quiet"
part docs .ci/docs.sh check "${CARGO_TARGET_DIR:-pkgs/target}/debug"
part packages .ci/packages.sh
part boxes .ci/boxes.sh "${CARGO_TARGET_DIR:-pkgs/target}/debug"
part console env LINERATE_PROGRAMS="$(cd pkgs && realpath "${CARGO_TARGET_DIR:-target}/debug")" .ci/console.sh
join nixos
# Guests run when nothing else does.
touch "$work/quiet"
join vm-test
