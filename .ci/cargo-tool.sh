#!/usr/bin/env bash
# cargo-tool.sh NAME VERSION [FLAG...]: makes sure that this version of a program from the registry is in
# ~/.cache/linerate/cargo-tools/bin, and prints its path. It is built once, without optimisation, which takes a minute
# or two, while a run takes seconds either way; the flags are cargo install's.
set -euo pipefail
tools=${XDG_CACHE_HOME:-$HOME/.cache}/linerate/cargo-tools
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
name=$1 version=$2
shift 2
if [[ $("$tools/bin/$name" --version 2>/dev/null) != "$name "?(v)"$version" ]]; then
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked --root "$tools" "$@" "$name@$version" >&2
fi
echo "$tools/bin"
