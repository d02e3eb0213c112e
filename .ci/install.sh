#!/usr/bin/env bash
# install.sh PROGRAM...: makes sure that each of these can be run. Root on Debian gets missing programs with apt; others
# are told what to install. versitygw, which no distribution has, is built into ~/.cache/linerate with Go, whose
# checksum database vouches for its source.
set -euo pipefail

# The Debian package of a program, if it has another name.
package() {
    case $1 in
        aarch64-linux-gnu-gcc) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross ;;
        bird) echo bird2 ;;
        cc) echo gcc libc6-dev ;;
        h2load) echo nghttp2-client ;;
        ip) echo iproute2 ;;
        man) echo man-db ;;
        mdir) echo mtools ;;
        mke2fs) echo e2fsprogs ;;
        musl-gcc) echo musl-tools ;;
        nft) echo nftables ;;
        pkill) echo procps ;;
        psql) echo postgresql-client ;;
        node) echo nodejs ;;
        nginx) echo nginx-light ;;
        cargo | rustc) echo rustup ;;
        go) echo golang-go ;;
        python3) echo python3 python3-venv ;;
        nix) echo nix-bin ;;
        blkid | setpriv | unshare) echo util-linux ;;
        dpkg-deb) echo dpkg ;;
        sbsiglist | sbvarsign | sbverify) echo sbsigntool ;;
        sfdisk) echo fdisk ;;
        strip) echo binutils ;;
        veritysetup) echo cryptsetup-bin ;;
        xz) echo xz-utils ;;
        postgres) echo postgresql ;;
        qemu-system-aarch64) echo qemu-system-arm ;;
        etcd) echo etcd-server ;;
        *) echo "$1" ;;
    esac
}

# The gateway that tests use as S3, and its module's checksum from sum.golang.org.
versitygw=v1.8.0
versitygw_sum=h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=

# Builds versitygw, once for each version.
build_versitygw() {
    local directory=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/linerate/versitygw-$versitygw work sum
    [[ ! -x $directory/versitygw ]] || return 0
    if ! command -v go >/dev/null; then
        "$0" go || return
    fi
    echo "building versitygw $versitygw"
    work=$(mktemp -d)
    # Checksums are always verified, whatever the environment says. If this Go is too old, it fetches a newer one as a
    # module.
    export GOFLAGS=-modcacherw GONOSUMDB='' GOPRIVATE='' GONOSUMCHECK='' GOSUMDB=sum.golang.org GOTOOLCHAIN=auto
    export GOPATH=$work/path GOCACHE=$work/cache GOBIN=$work/bin
    if sum=$(cd "$work" && go mod download -json "github.com/versity/versitygw@$versitygw" </dev/null |
        sed -nE 's/^.*"Sum": "(.*)".*$/\1/p') &&
        [[ $sum == "$versitygw_sum" ]] &&
        go install "github.com/versity/versitygw/cmd/versitygw@$versitygw" </dev/null; then
        mkdir -p "$directory"
        # The rename is atomic, since another build may be running.
        cp "$work/bin/versitygw" "$directory/.versitygw.$$"
        mv "$directory/.versitygw.$$" "$directory/versitygw"
        rm -rf "$work"
    else
        rm -rf "$work"
        echo "error: versitygw $versitygw cannot be built${sum:+ (its checksum is $sum)}" >&2
        return 1
    fi
}

# nginx is in /usr/sbin, which isn't in everybody's PATH; rustup's programs are in the home directory; each version of
# PostgreSQL has its own directory.
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
for directory in /usr/lib/postgresql/*/bin; do
    PATH=$PATH:$directory
done

# What a PostgreSQL with fail-over needs.
[[ " $* " != *" fleet "* ]] || set -- "${@/#fleet/postgres}" etcd haproxy ip pgbouncer pkill psql python3 setpriv

missing=()
for program in "$@"; do
    if [[ $program == versitygw ]]; then
        build_versitygw
        continue
    fi
    if [[ $program == cargo ]] && ! command -v cargo >/dev/null; then
        echo "error: cargo is missing: install Rust 1.95 or later, by the package rustup and" \
            "'rustup default stable', or as https://rustup.rs says" >&2
        exit 1
    fi
    command -v "$program" >/dev/null || missing+=("$program")
    # Debian has the part that makes virtual environments in a separate package.
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
# Parts of `make test` run concurrently, but only one apt can run at a time, and it doesn't wait for the lock on its
# lists.
exec 9>/run/lock/linerate-apt
flock 9
export DEBIAN_FRONTEND=noninteractive
# A package that starts its daemon would occupy ports. This policy prevents the start, during this run only.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
apt-get update -qq </dev/null
apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null
