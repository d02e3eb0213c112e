#!/usr/bin/env bash
# audit.sh: no dependency has a known vulnerability or a licence that we don't allow, or comes from anywhere but the
# registry. cargo-deny checks all of it, with pkgs/deny.toml; for vulnerabilities it reads the same database as
# cargo-audit, so that needn't be built too.
#
# The database is a git checkout of RustSec/advisory-db: $LINERATE_ADVISORY_DB, or ~/.cache/linerate/inputs/advisory-db,
# or a clone that is made if the network allows it. Without one, everything else is checked, with a message.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc git
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
cache=${XDG_CACHE_HOME:-$HOME/.cache}/linerate
tools=$(.ci/cargo-tool.sh cargo-deny 0.20.2)
PATH=$tools:$PATH

# Prints the database's directory; fails if there is none.
database() {
    local place
    for place in "${LINERATE_ADVISORY_DB:-$cache/inputs/advisory-db}" "$cache/advisory-db"; do
        # cargo-deny uses git to find out how old the database is.
        if [[ -e $place/.git && -d $place/crates ]]; then
            realpath "$place"
            return
        fi
    done
    rm -rf "$cache/advisory-db"
    GIT_TERMINAL_PROMPT=0 timeout 60 git clone --quiet --depth 1 https://github.com/RustSec/advisory-db \
        "$cache/advisory-db" >/dev/null 2>&1 || return 1
    echo "$cache/advisory-db"
}

if [[ -n ${LINERATE_ADVISORY_DB:-} && ! (-e $LINERATE_ADVISORY_DB/.git && -d $LINERATE_ADVISORY_DB/crates) ]]; then
    echo "error: LINERATE_ADVISORY_DB=$LINERATE_ADVISORY_DB is no checkout of RustSec/advisory-db" >&2
    exit 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
checks=(bans licenses sources)
if place=$(database); then
    checks+=(advisories)
    # The name that cargo-deny gives this database in a directory of several.
    ln -s "$place" "$work/advisory-db-3157b0e258782691"
    echo "audit: vulnerabilities known on $(git -C "$place" log -1 --format=%cs)"
else
    echo "audit: skipped: no checkout of RustSec/advisory-db is at hand, so nobody looked for known vulnerabilities"
fi
cd pkgs
# Only the directory of the database differs from machine to machine.
sed "/^\[advisories\]/a db-path = \"$work\"" deny.toml >"$work/deny.toml"
# One platform at a time: with two, cargo would ask for the crates of all others as well.
for target in x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu; do
    if ! cargo fetch --locked --quiet --target "$target"; then
        [[ $target != x86_64-* ]] || exit 1
        echo "audit: skipped: crates of $target are neither at hand nor in reach, so nobody looked at them"
        continue
    fi
    echo "audit: $target"
    cargo deny --frozen --config "$work/deny.toml" --target "$target" check --hide-inclusion-graph "${checks[@]}"
done
