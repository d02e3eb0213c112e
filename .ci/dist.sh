#!/usr/bin/env bash
# dist.sh [PROFILE]: makes pkgs/target/dist/linerate-VERSION-ARCH-linux.tar.xz, static programs with everything that
# belongs to them, and linerate_VERSION_ARCH.deb, the same as a Debian package. Packing adds no time and no name of
# whoever does it.
#
# With LINERATE_PROGRAMS, the programs in that directory are packed, and nothing is built; LINERATE_DIST is the target
# directory.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh dpkg-deb git python3 xz
profile=${1:-release}
machine=$(uname -m)
triple=$machine-unknown-linux-musl
programs=${LINERATE_PROGRAMS:-${CARGO_TARGET_DIR:-pkgs/target}/$triple/$profile}
if [[ -z ${LINERATE_PROGRAMS:-} ]]; then
    .ci/install.sh cargo cc musl-gcc
    PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
    if command -v rustup >/dev/null; then
        rustup --quiet target add "$triple"
    fi
    (cd pkgs && cargo build --profile "$profile" --locked --target "$triple" \
        --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api)
fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pkgs/Cargo.toml | head -n 1)
epoch=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH=$epoch
output=${LINERATE_DIST:-${CARGO_TARGET_DIR:-pkgs/target}/dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$output"

# The archive goes into /usr/local; its settings are examples there, which still have to be copied.
name=linerate-$version-$machine-linux
.ci/stage.sh "$programs" "$work/archive" /usr/local
mkdir -p "$work/$name"
mv "$work"/archive/usr/local/* "$work/$name"
mkdir -p "$work/$name/share/doc/linerate/examples"
mv "$work"/archive/etc/linerate/* "$work/$name/share/doc/linerate/examples"
cp docs/without-nix.md "$work/$name/share/doc/linerate/README.md"
tar --create --directory "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" "$name" |
    xz --threads=1 >"$output/$name.tar.xz"

# The package.
.ci/stage.sh "$programs" "$work/package" /usr
# Where Debian's zsh looks.
mv "$work/package/usr/share/zsh/site-functions" "$work/package/usr/share/zsh/vendor-completions"
cp docs/without-nix.md "$work/package/usr/share/doc/linerate/README.md"
mkdir "$work/package/DEBIAN"
case $machine in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) architecture=$machine ;;
esac
cat >"$work/package/DEBIAN/control" <<END
Package: linerate
Version: $version
Architecture: $architecture
Maintainer: linerate maintainers <maintainers@linerate.invalid>
Installed-Size: $(du --summarize --block-size=1024 --exclude=DEBIAN "$work/package" | cut -f 1)
Depends: systemd | systemd-standalone-sysusers
Section: httpd
Priority: optional
Description: short links, files and a JSON API at the limit of the machine
 A URL shortener, a zero-copy file server and a JSON REST API, each by HTTP/1.1,
 HTTP/2, HTTP/3 and TLS, and a command line that places the queues of network
 cards and says what keeps a machine from its line rate.
END
(cd "$work/package" && find etc -type f -printf '/%p\n' | sort) >"$work/package/DEBIAN/conffiles"
install -m 755 .ci/dist/postinst .ci/dist/prerm .ci/dist/postrm "$work/package/DEBIAN"
find "$work/package" -exec touch --no-dereference --date="@$epoch" {} +
dpkg-deb --root-owner-group -Zxz --build "$work/package" "$output/linerate_${version}_$architecture.deb" >/dev/null
ls -l "$output"
