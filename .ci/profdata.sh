#!/usr/bin/env bash
# profdata.sh: makes sure that this toolchain has llvm-profdata, rustup's component llvm-tools, and prints its path. It
# reads only what its own version of LLVM has written.
set -euo pipefail
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
host=$(rustc --version --verbose | sed -n 's/^host: //p')
program=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
if [[ ! -x $program ]] && command -v rustup >/dev/null; then
    rustup --quiet component add llvm-tools >&2 || true
fi
if [[ ! -x $program ]]; then
    version=$(rustc --version --verbose | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
    program=$(command -v "llvm-profdata-$version") || {
        echo "error: llvm-profdata of LLVM $version is missing: rustup's component llvm-tools, or the package llvm-$version" >&2
        exit 1
    }
fi
echo "$program"
