#!/usr/bin/env bash
# bench-console.sh [--quick] [--strict]: what the console costs. Builds the programs with PROFILE, release by default,
# or uses those in LINERATE_PROGRAMS.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh python3 wrk
if [[ -z ${LINERATE_PROGRAMS-} ]]; then
    .ci/install.sh cargo cc
    PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
    profile=${PROFILE:-release}
    (cd pkgs && cargo build --profile "$profile" --locked --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api)
    LINERATE_PROGRAMS=${CARGO_TARGET_DIR:-pkgs/target}/$profile
fi
exec python3 -B pkgs/console/benches/console.py "$LINERATE_PROGRAMS" "$@"
