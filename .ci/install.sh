#!/usr/bin/env bash
# install.sh PROGRAM...: sees to it that each of these can be run. Root on Debian gets what is
# missing by apt; anybody else is told what to install.
set -euo pipefail

# The Debian package of a program, where it has another name.
package() {
    case $1 in
        cc) echo gcc libc6-dev ;;
        h2load) echo nghttp2-client ;;
        ip) echo iproute2 ;;
        man) echo man-db ;;
        mdir) echo mtools ;;
        mke2fs) echo e2fsprogs ;;
        musl-gcc) echo musl-tools ;;
        nft) echo nftables ;;
        node) echo nodejs ;;
        nginx) echo nginx-light ;;
        cargo | rustc) echo rustup ;;
        go) echo golang-go ;;
        python3) echo python3 python3-venv ;;
        nix) echo nix-bin ;;
        blkid | setpriv | unshare) echo util-linux ;;
        dpkg-deb) echo dpkg ;;
        sfdisk) echo fdisk ;;
        strip) echo binutils ;;
        xz) echo xz-utils ;;
        postgres) echo postgresql ;;
        *) echo "$1" ;;
    esac
}

# nginx is in /usr/sbin, which is not in everybody's PATH; rustup's programs are in the home; each version
# of PostgreSQL has a directory of its own.
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
for directory in /usr/lib/postgresql/*/bin; do
    PATH=$PATH:$directory
done

missing=()
for program in "$@"; do
    if [[ $program == cargo ]] && ! command -v cargo >/dev/null; then
        echo "error: cargo is missing: install Rust 1.95 or later, by the package rustup and" \
            "'rustup default stable', or as https://rustup.rs says" >&2
        exit 1
    fi
    command -v "$program" >/dev/null || missing+=("$program")
    # Debian has the part that makes virtual environments in a package of its own.
    if [[ $program == python3 ]] && command -v python3 >/dev/null && ! python3 -c 'import ensurepip' 2>/dev/null; then
        missing+=(python3)
    fi
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

# shellcheck disable=SC2046 # one program may be several packages
set -- $(for program in "${missing[@]}"; do package "$program"; done)
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "error: ${missing[*]} missing: install (Debian's names) $*" >&2
    exit 1
fi
echo "installing $*"
export DEBIAN_FRONTEND=noninteractive
# A package that starts its daemon would take ports; this keeps it from starting, in this run only.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt-get update -qq </dev/null
apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null
