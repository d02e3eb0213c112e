#!/usr/bin/env bash
# Formatting, lints and all tests, on any machine. At the end it prints how long each part took, and what was skipped,
# with names and reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
# A full disk ends this in the middle of something else.
free=$(df --output=avail -B 1G . | tail -n 1)
[[ $free -ge 25 ]] || echo "warning: only $((free)) GB are free here; from nothing, all of this takes about 20, here and in the Nix store" >&2
work=$(mktemp -d)
# Tests append a line `skipped: NAME: REASON` for each thing that they couldn't test here.
export LINERATE_SKIPS=$work/skips
: >"$LINERATE_SKIPS"
: >"$work/durations"
[[ ! -t 1 ]] || export CARGO_TERM_COLOR=always
running=()

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

# beside NAME COMMAND...: runs a part concurrently with the following parts; `join` shows its output.
beside() {
    # Its own process group, so that all of it can be ended.
    set -m
    part "$@" >/dev/null &
    set +m
    running+=("$! $1")
}

# Waits for the concurrent part, and shows its output.
join() {
    local one status=0
    for one in "${running[@]}"; do
        wait "${one%% *}" || status=$?
        echo "== ${one#* }"
        cat "$work/${one#* }.log"
    done
    running=()
    return "$status"
}

# Printed at the end, whatever the result.
report() {
    local status=$? one seconds ended name failed begun
    for one in "${running[@]}"; do
        kill -- "-${one%% *}" 2>/dev/null || true
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

# A release without log statements: every service.
no_tracing() {
    in_pkgs cargo check --locked -p linerate-links -p linerate-files -p linerate-api \
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

.ci/install.sh cargo cc curl git go haproxy ip man nginx openssl postgres python3 wrk
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# Nix evaluates on one CPU, and cargo often waits, so the two run concurrently. Tests run when nothing else does.
beside nix-check .ci/nix.sh check
part structure make --no-print-directory check-structure
part format in_pkgs cargo fmt --all --check
part lints in_pkgs cargo clippy --workspace --all-targets --locked -- -D warnings
part rustdoc rustdoc
part build in_pkgs cargo test --workspace --locked --no-run
part audit .ci/audit.sh
part no-tracing no_tracing
part router-bench router_bench
join
# Builds real systems with the programs that were built for the tests. This waits for disks and for its own steps, so
# parts that have their own network, directories and long timeouts run concurrently: the manual's comparison with the
# programs and its commands, and the packages in fresh roots.
beside docs .ci/docs.sh check "${CARGO_TARGET_DIR:-pkgs/target}/debug"
beside packages .ci/packages.sh
part nixos .ci/nixos.sh
part images env PROFILE=dev .ci/nixos.sh --images "${CARGO_TARGET_DIR:-pkgs/target}/images" \
    aws-c6i-image tengbe-appliance tengbe-image tengbe-installer
join
# Tests that measure time run when nothing else does.
part tests tests/cargo.py
# The modules' settings, compared with the programs'.
part settings in_pkgs ../tests/settings.py check "${CARGO_TARGET_DIR:-target}/debug"
# Makes the guests' disks while parts run that mostly wait for a browser or for routers.
beside vm-prepare .ci/portable.sh --prepare
# Dashboards, alert rules and the service address of several boxes.
part boxes .ci/boxes.sh "${CARGO_TARGET_DIR:-pkgs/target}/debug"
# The browser and the guests use what was built for the tests.
part console env LINERATE_PROGRAMS="$(cd pkgs && realpath "${CARGO_TARGET_DIR:-target}/debug")" .ci/console.sh
join
part vm-test .ci/portable.sh
