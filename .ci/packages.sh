#!/usr/bin/env bash
# packages.sh: tests what `make install` and `make dist` make, each in a fresh Debian of this machine's release:
# installed, used, replaced by the next version, and removed. LINERATE_PROGRAMS names the programs to pack; by default,
# those that were built for the tests.
#
# It needs root, since only root can make fresh roots. If none can be made, it prints what it skips.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "packages: skipped: $*"
    exit 0
}

[[ $(id -u) == 0 ]] || skip "fresh roots are made by root"
.ci/install.sh dpkg-deb ip make mmdebstrap python3 setpriv strip unshare xz
# Programs need libraries no older than those they were linked with.
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[[ -n $release && -e /etc/debian_version ]] || skip "it is about Debian, and this is none"

# The fresh root is made once per release.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/linerate/packages
root=$cache/$release.tar
if [[ ! -s $root ]]; then
    mkdir -p "$cache"
    mmdebstrap --quiet --variant=minbase --include=systemd-standalone-sysusers,systemd-standalone-tmpfiles \
        "$release" "$cache/part.tar" >/dev/null 2>"$cache/log" || skip "mmdebstrap: $(tail -n 1 "$cache/log")"
    mv "$cache/part.tar" "$root"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The programs without debug information, packed with fast compression, since they are unpacked in a moment.
mkdir "$work/programs"
for name in linerate linerate-links linerate-files linerate-api; do
    strip -o "$work/programs/$name" "${LINERATE_PROGRAMS:-${CARGO_TARGET_DIR:-pkgs/target}/debug}/$name"
done
XZ_OPT=-0 DPKG_DEB_COMPRESSOR_LEVEL=0 LINERATE_PROGRAMS=$work/programs LINERATE_DIST=$work/dist .ci/dist.sh >/dev/null
.ci/stage.sh "$work/programs" "$work/installed" /usr/local
# The test has its own mounts, processes and addresses, which end with it.
unshare --mount --pid --fork --kill-child --net python3 -B tests/packages.py "$root" "$work"
