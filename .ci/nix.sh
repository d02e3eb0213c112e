#!/usr/bin/env bash
# nix.sh check [NIXPKGS]|render|options|host: the Nix half, without building anything.
#
# `check` formats and lints every .nix file, evaluates every output of the flake, and fails on failed assertions, on
# warnings, on hosts that render differently than in tests/rendered/, and on units that systemd objects to. `render`
# writes tests/rendered/ and docs/reference/options.md, `options` only the latter. `host NAME DIRECTORY` writes a host
# there with NixOS's own units and scripts, which this repository doesn't store, or exits with 3 if there is no nixpkgs:
# `companions` is tests/companions.nix, and so are `console` and `late`.
#
# The inputs are those in flake.lock if the network has them, or else a nixpkgs and a crane below
# ~/.cache/linerate/inputs. If there are neither, it prints what it skips. advisory-db may be missing there: nothing is
# built, so nobody reads it. `check NIXPKGS` takes the directory of another nixpkgs instead, such as a newer release's,
# which may need a newer Nix first in PATH; it fails if it can't evaluate with it.
set -euo pipefail
cd "$(dirname "$0")/.."

# skip NAME REASON: records a skipped check, since a machine without nixpkgs can still test everything else. `make test`
# counts these at its end, from the file that LINERATE_SKIPS names.
skip() {
    local said="skipped: $1: $2"
    echo "$said"
    [[ -z ${LINERATE_SKIPS:-} ]] || echo "$said" >>"$LINERATE_SKIPS"
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/linerate
# The directory of another nixpkgs, if there is one.
other=

# nixpkgs' formatter nixfmt, in a version written in Rust, and a linter for unused names. They take a minute to compile,
# so they are only installed if nixpkgs is there too.
tools() {
    local bin=$cache/nix-tools
    PATH=$bin/bin:$PATH
    if ! command -v nixfmt deadnix >/dev/null; then
        [[ -d $cache/inputs ]] || return 1
        .ci/install.sh cargo cc
        PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
        cargo install --quiet --locked --root "$bin" nixfmt_rs@0.5.3 deadnix@1.3.1
    fi
}

lint() {
    if ! tools; then
        skip "lint of .nix files" "nixfmt and deadnix are missing"
        return
    fi
    mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.nix')
    nixfmt --check "${files[@]}"
    deadnix --fail "${files[@]}"
    echo "nix-check: ${#files[@]} files are formatted and linted"
}

# Sets `inputs` to the arguments that name them; fails if there are none.
inputs() {
    local name path sources=${other:-$cache/inputs/nixpkgs}
    # Nix 2.8, which Debian 12 has, crashes if it collects garbage while it copies sources into the store. With this
    # setting, it reserves that much memory and doesn't collect before the memory is used up.
    export GC_INITIAL_HEAP_SIZE=4G
    inputs=()
    nixpkgs=
    if [[ -d $sources && -d $cache/inputs/crane ]]; then
        .ci/install.sh nix
        # Nothing is built, so nothing has to be fetched.
        export NIX_CONFIG="experimental-features = nix-command flakes
build-users-group =
eval-cache = false
sandbox = false
substituters =
warn-dirty = false"
        mkdir -p "$cache/inputs/advisory-db"
        for name in nixpkgs crane advisory-db; do
            # A path outside the store would be hashed in every evaluation.
            path=$cache/inputs/$name
            [[ $name != nixpkgs ]] || path=$sources
            path=$(nix store add-path --name source "$path")
            [[ $name != nixpkgs ]] || nixpkgs=$path
            inputs+=(--override-input "$name" "path:$path")
        done
        inputs+=(--no-write-lock-file)
    else
        command -v nix >/dev/null || return 1
        export NIX_CONFIG="experimental-features = nix-command flakes
warn-dirty = false"
        # Fetches what flake.lock names: about 40 MB, once.
        timeout 300 nix flake archive >/dev/null 2>&1 || return 1
        [[ -n $other ]] || return 0
        nixpkgs=$(nix store add-path --name source "$other")
        inputs=(--override-input nixpkgs "path:$nixpkgs" --no-write-lock-file)
    fi
}

# Runs a command, and shows its stderr only if it fails.
quietly() {
    local said
    said=$(mktemp)
    if ! "$@" 2>"$said"; then
        cat "$said" >&2
        rm -f "$said"
        return 1
    fi
    rm -f "$said"
}

rendered() {
    local evaluated
    # Also evaluates two boxes of a fleet and one with a console, which aren't hosts of the flake.
    evaluated=$(quietly nix eval "${inputs[@]}" --json .#nixosConfigurations --apply "hosts:
        let of = number: hosts.vm.extendModules { modules = [ (($(cat tests/fleet.nix)) number) ]; };
            console = hosts.vm.extendModules { modules = [ ($(cat tests/console.nix)) ]; };
        in ($(cat tests/render.nix)) \"\" (hosts // { inherit console; fleet-1 = of 1; fleet-2 = of 2; })")
    python3 tests/rendered.py "$1" tests/rendered <<<"$evaluated"
}

# Checks that bash can parse the script that builds the installer's system, which isn't a host of the flake.
installer() {
    evaluate packages.x86_64-linux.tengbe-installer 'image: {
        "what builds the installer" = builtins.unsafeDiscardStringContext image.config.system.build.toplevel.buildCommand;
    }' | python3 tests/rendered.py scripts
    echo "nix-check: bash reads what builds the installer"
}

# Executes the scripts of the unit that updates a box every night: NixOS's and ours.
nightly() {
    local flake=git+https://git.example/boxes
    evaluate nixosConfigurations.tengbe "host: let
        updated = host.extendModules { modules = [ { linerate.appliance.update.flake = \"$flake\"; } ]; };
        unit = updated.config.systemd.services.nixos-upgrade;
    in {
        flake = \"$flake\";
        inherit (unit) postStart script;
        serviceConfig = { inherit (unit.serviceConfig) StateDirectory Type; };
    }" | python3 -B tests/nightly.py
    echo "nix-check: a nightly update is booted where anything of the system has changed"
}

# What the manual says about the modules' options: check or write it.
options() {
    evaluate packages.x86_64-linux.options 'one: { inherit (one) options release; }' | python3 -B docs/reference.py options "$1"
}

# Renders the host NAME into DIRECTORY.
host() {
    local host others evaluated system
    case $1 in
        companions)
            host="hosts.vm.extendModules { modules = [ ($(cat tests/companions.nix)) ]; }"
            others='acme-.*|postgresql[.]service|prometheus-(node|postgres)-exporter[.]service'
            ;;
        console | late)
            host="hosts.vm.extendModules { modules = [ ($(cat "tests/$1.nix")) ]; }"
            others='postgresql[.]service'
            ;;
    esac
    evaluated=$(quietly nix eval "${inputs[@]}" --json .#nixosConfigurations \
        --apply "hosts: ($(cat tests/render.nix)) \"$others\" { $1 = $host; }")
    python3 tests/rendered.py write "$2" <<<"$evaluated"
    system=$(python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]]["system"])' "$1" <<<"$evaluated")
    quietly nix show-derivation --recursive "$system" | python3 tests/rendered.py texts "$2/$1"
}

# Messages of an older systemd about correct units: it doesn't know these newer names, and ignores them.
known_complaints=(
    # Since systemd 254.
    "Unknown key( name)? '(RestartSteps|RestartMaxDelaySec)' in section \[?.?Service.?\]?, ignoring"
    # In the list of system calls.
    'System call cachestat is not known, ignoring'
)

# judge HOST DIRECTORY UNIT: whether systemd accepts a unit, given the other units in this directory. systemd-analyze
# exits with 0 if it only prints a warning, so both its exit code and its output count.
judge() {
    local said status=0 pattern
    said=$(SYSTEMD_UNIT_PATH=$2: systemd-analyze verify --man=no "$3" 2>&1) || status=$?
    for pattern in "${known_complaints[@]}"; do
        said=$(grep --invert-match --extended-regexp "$pattern" <<<"$said" || true)
    done
    # Messages about this machine's own units don't count.
    said=$(grep --extended-regexp "^$2/|^[^/ ]*linerate-" <<<"$said" || true)
    if [[ $status -ne 0 || -n $said ]]; then
        echo "error: $1: $(basename "$3"): systemd-analyze verify ends with $status: $said" >&2
        return 1
    fi
}

# Checks that `judge` refuses wrong units.
judge_refuses() {
    local unit=$1/linerate-wrong.service text
    for text in '[Service]\nType=simple' '[Service]\nExecStart=/bin/true\nProtectSystem=strictly' \
        '[Unit]\nRequires=linerate-nowhere.service\n[Service]\nExecStart=/nowhere'; do
        printf "$text\n" >"$unit"
        if judge test "$1" "$unit" 2>/dev/null; then
            echo "error: systemd-analyze takes a unit that is wrong: $text" >&2
            return 1
        fi
    done
    rm "$unit"
}

# Has systemd verify the rendered units, with /bin/true in place of programs from the store.
units() {
    if ! command -v systemd-analyze >/dev/null; then
        skip "units by systemd-analyze" "it is missing"
        return
    fi
    local directory host unit threshold
    directory=$(mktemp -d)
    # shellcheck disable=SC2064 # what it is now
    trap "rm -rf '$directory'" RETURN
    judge_refuses "$directory"
    for host in tests/rendered/*/; do
        host=$(basename "$host")
        mkdir "$directory/$host"
        for unit in tests/rendered/"$host"/systemd/system/*; do
            sed -E 's#^(Exec[A-Za-z]*=)/nix/store/[^ ]*#\1/bin/true#' "$unit" >"$directory/$host/$(basename "$unit")"
        done
        for unit in "$directory/$host"/linerate-*; do
            judge "$host" "$directory/$host" "$unit" || return 1
        done
        for unit in "$directory/$host"/linerate-{links,files,api,doctor,nic-*@}.service; do
            [[ -e $unit ]] || continue
            # The limit for the exposure level, in tenths. It is higher for units that place and inspect queues: they
            # run as root, in the host's network, and use /proc and /sys.
            case $unit in
                *linerate-nic-* | *linerate-doctor*) threshold=25 ;;
                *) threshold=15 ;;
            esac
            systemd-analyze security --offline=true --threshold=$threshold --no-pager "$unit" >"$unit.exposure" 2>&1 || {
                cat "$unit.exposure" >&2
                return 1
            }
            echo "nix-check: $host: $(grep -oE 'Overall exposure level.*[0-9.]+ [A-Z]+' "$unit.exposure")"
        done
    done
}

# Verifies the units that `make install` and `make dist` derive from these.
units_without_nix() {
    command -v systemd-analyze >/dev/null || return 0
    local directory unit
    directory=$(mktemp -d)
    # shellcheck disable=SC2064 # what it is now
    trap "rm -rf '$directory'" RETURN
    python3 -B .ci/units.py /usr "$directory"
    sed -i -E 's#^(Exec[A-Za-z]*=)/usr/[^ ]*#\1/bin/true#' "$directory"/*
    for unit in "$directory"/*; do
        judge "a Linux without Nix" "$directory" "$unit" || return 1
    done
    echo "nix-check: the units for a Linux without Nix are right"
}

# The kernel's own parser, which only root may use.
tables() {
    if ! nft --check list ruleset >/dev/null 2>&1; then
        skip "tables by nft" "it is missing or not allowed"
        return
    fi
    local host table
    for host in tests/rendered/*/; do
        for table in "$host"nftables/*; do
            printf 'table inet %s {\n%s\n}\n' "$(basename "$table")" "$(cat "$table")" | nft --check --file -
        done
    done
    echo "nix-check: nft takes all tables"
}

# Writes the value of a flake output, after applying a function, as JSON.
evaluate() {
    quietly nix eval "${inputs[@]}" --json ".#$1" --apply "$2"
}

# Evaluates what `nix flake check --no-build` evaluates, in several processes. Its single process keeps everything that
# it has evaluated: the VM tests are about thirty systems, and all at once they took 18 GB and more.
outputs() {
    local of='builtins.mapAttrs (_: one: one.drvPath)' system name names others
    # Names are read without any input: `nix flake show` evaluates all VM tests for them.
    others=$(quietly nix eval --raw --file flake.nix outputs --apply 'of: toString (builtins.attrNames (removeAttrs
        (of (builtins.mapAttrs (_: _: throw "names read no input") (builtins.functionArgs of)))
        [
            "nixosConfigurations" "nixosModules" "overlays" "templates"
            # Nix takes it as it is. The template uses it.
            "lib"
            # These are evaluated below.
            "apps" "checks" "devShells" "formatter" "packages"
        ]))')
    if [[ -n $others ]]; then
        echo "error: Nix has no use for these outputs, or outputs() evaluates none of them: $others" >&2
        return 1
    fi
    evaluate templates 'builtins.mapAttrs (_: one: one.description)' >/dev/null
    for system in aarch64-linux x86_64-linux; do
        evaluate "packages.$system" "$of" >/dev/null
        evaluate "devShells.$system" "$of" >/dev/null
        evaluate "formatter.$system" 'one: one.drvPath' >/dev/null
        evaluate "apps.$system" 'builtins.mapAttrs (_: app: assert app.type == "app"; app.program)' >/dev/null
        names=$(evaluate "checks.$system" builtins.attrNames | python3 -c 'import json, sys; print(*json.load(sys.stdin))')
        for name in $names; do
            # `types` evaluates these.
            [[ $name == vm-* ]] || evaluate "checks.$system.$name" 'one: one.drvPath' >/dev/null
        done
    done
    echo "nix-check: every output of the flake evaluates"
}

# Evaluates the VM tests, and checks their scripts against the types of the test driver, since an evaluation accepts any
# text.
types() {
    local venv=$cache/nix-tools/mypy directory test name driver=$nixpkgs/nixos/lib/test-driver machine=Machine
    # Newer releases have another path for the driver, and another name for a machine, since a machine may be a
    # container there.
    [[ ! -d $driver/src ]] || driver+=/src
    ! grep -q QemuMachine "$nixpkgs/nixos/lib/test-script-prepend.py" 2>/dev/null || machine=QemuMachine
    if [[ -z $nixpkgs ]]; then
        skip "types of the VM tests' scripts" "the source of NixOS's driver is not at hand"
    else
        if ! cmp --quiet .ci/mypy.txt "$venv/mypy.txt"; then
            .ci/install.sh python3
            python3 -m venv --clear "$venv"
            "$venv/bin/pip" install --quiet --requirement .ci/mypy.txt
            cp .ci/mypy.txt "$venv"
        fi
        (cd tests/portable && "$venv/bin/mypy" --strict --no-incremental --no-error-summary ./*.py)
        (cd tests/fleet && "$venv/bin/mypy" --strict --no-incremental --no-error-summary ./*.py)
        "$venv/bin/mypy" --strict --no-incremental --no-error-summary tests/structure.py tests/test_structure.py \
            tests/repeats.py tests/test_repeats.py tests/locks.py tests/test_locks.py tests/features.py \
            tests/test_features.py tests/cargo.py docs/*.py .ci/units.py
    fi
    directory=$(mktemp -d)
    # shellcheck disable=SC2064 # what it is now
    trap "rm -rf '$directory'" RETURN
    for test in tests/vm/*.nix; do
        name=$(basename "$test" .nix)
        evaluate "checks.x86_64-linux.vm-$name" \
            'one: { inherit (one) drvPath; machines = builtins.attrNames one.nodes; script = one.driver.testScript; }' \
            >"$directory/$name.json"
        [[ -n $nixpkgs ]] || continue
        python3 -c '
import json, sys
test = json.load(sys.stdin)
print(open(sys.argv[1]).read())
print("\n".join(f"{machine}: {sys.argv[2]}" for machine in test["machines"]))
print(test["script"])' "$nixpkgs/nixos/lib/test-script-prepend.py" $machine <"$directory/$name.json" >"$directory/$name.py"
        # Messages about the driver itself don't matter here. So the messages about the script count, and not the exit
        # code.
        if (MYPYPATH=$driver "$venv/bin/mypy" --ignore-missing-imports --no-incremental \
            "$directory/$name.py" || true) | grep -F "$name.py:" >&2; then
            echo "error: the script of $test does not fit the driver" >&2
            return 1
        fi
    done
    echo "nix-check: every VM test evaluates${nixpkgs:+, and its script fits the driver of NixOS}"
}

case ${1:-} in
    check)
        if [[ $# -gt 1 ]]; then
            other=$(cd "$OLDPWD" && realpath "$2")
            if [[ ! -d $other/nixos ]]; then
                echo "error: $2 is no directory of a nixpkgs" >&2
                exit 2
            fi
        fi
        python3 -B tests/test_rendered.py
        tests/trial.sh
        tests/prune.sh
        tests/keep.sh
        tests/reboot.sh
        tests/choose.sh
        tests/health.sh
        lint
        units
        units_without_nix
        tables
        if ! inputs; then
            if [[ -n $other ]]; then
                echo "error: $other needs Nix, and crane in ~/.cache/linerate/inputs or in reach" >&2
                exit 1
            fi
            skip "evaluation of the flake" "nixpkgs is neither in ~/.cache/linerate/inputs nor in reach"
            exit 0
        fi
        rendered check
        echo "nix-check: all hosts render as kept, without warnings"
        options check
        echo "nix-check: the manual has every option as the modules have it"
        installer
        nightly
        outputs
        types
        ;;
    render)
        if ! inputs; then
            echo "error: nixpkgs is neither in ~/.cache/linerate/inputs nor in reach" >&2
            exit 1
        fi
        rendered write
        options write
        ;;
    options)
        inputs || exit 3
        options write
        ;;
    host)
        inputs || exit 3
        host "$2" "$3"
        ;;
    *)
        echo "usage: nix.sh check [NIXPKGS]|render|options|host NAME DIRECTORY" >&2
        exit 2
        ;;
esac
