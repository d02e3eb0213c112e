#!/usr/bin/env bash
# console.sh [--screenshots | FILTER]: the console in a real browser, with real services. With --screenshots, it makes
# pictures instead, in docs/screenshots. LINERATE_CONSOLE_LINKS=1000000 adds that many links.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=$PWD/pkgs/console/tests/browser

# If they are missing, everything else is tested nevertheless.
if ! .ci/install.sh node npm chromium openssl; then
    echo "console: skipped: there is no node, npm, chromium or openssl here, so no browser has seen the console"
    exit 0
fi
if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)'; then
    echo "console: skipped: node $(node --version) is older than 18, so no browser has seen the console"
    exit 0
fi
# Installs what `package-lock.json` lists, verified by digest, from the registry that npm is configured for. Installing
# runs no scripts of the packages.
lock=$(sha256sum "$tests/package-lock.json" | cut -d ' ' -f 1)
if [[ $(cat "$tests/node_modules/.lock" 2>/dev/null) != "$lock" ]]; then
    if ! (cd "$tests" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error </dev/null); then
        echo "console: skipped: npm cannot fetch what the browser is driven by, so no browser has seen the console"
        exit 0
    fi
    echo "$lock" >"$tests/node_modules/.lock"
fi
# Programs that were built for other tests, if they are named.
if [[ -z ${LINERATE_PROGRAMS-} ]]; then
    .ci/install.sh cargo cc
    PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
    (cd pkgs && cargo build --locked --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api)
    LINERATE_PROGRAMS=$(cd pkgs && realpath "${CARGO_TARGET_DIR:-target}/debug")
    export LINERATE_PROGRAMS
fi
cd "$tests"
if [[ ${1-} == --screenshots ]]; then
    exec node screenshots.mjs ../../../../docs/screenshots
fi
# The first file takes five minutes on two CPUs; one that hangs is ended, and reported as unfinished.
seconds=2400
if [[ ${LINERATE_UNTIL:-} ]]; then
    left=$((${LINERATE_UNTIL%.*} - $(date +%s) - 60))
    seconds=$((left < seconds ? (left > 60 ? left : 60) : seconds))
fi
exec node --test --test-timeout=${seconds}000 --test-reporter=spec ${1:+--test-name-pattern="$1"} console.test.mjs sign_in.test.mjs
