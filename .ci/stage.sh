#!/usr/bin/env bash
# stage.sh PROGRAMS DESTDIR PREFIX: installs the programs from the directory PROGRAMS below DESTDIR/PREFIX, with their
# manual pages, completions, units and users, and their settings into DESTDIR/etc/linerate, unless there are some
# already.
set -euo pipefail
programs=$(realpath "$1") destination=$2 prefix=$3
cd "$(dirname "$0")/.."
if [[ $prefix != /* || $prefix == */../* ]]; then
    echo "error: PREFIX has to be an absolute path, not '$prefix'" >&2
    exit 2
fi
target=$destination$prefix
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for name in linerate linerate-links linerate-files linerate-api; do
    install -D -m 755 "$programs/$name" "$target/bin/$name"
    # Each prints its own.
    "$programs/$name" man "$work/man" >/dev/null
    "$programs/$name" completions bash >"$work/bash"
    "$programs/$name" completions fish >"$work/fish"
    "$programs/$name" completions zsh >"$work/zsh"
    install -D -m 644 "$work/bash" "$target/share/bash-completion/completions/$name"
    install -D -m 644 "$work/fish" "$target/share/fish/vendor_completions.d/$name.fish"
    install -D -m 644 "$work/zsh" "$target/share/zsh/site-functions/_$name"
done
for page in "$work"/man/*.1; do
    gzip --no-name --best "$page"
    install -D -m 644 "$page.gz" "$target/share/man/man1/$(basename "$page").gz"
done

python3 -B .ci/units.py "$prefix" "$work/units"
for unit in "$work"/units/*; do
    install -D -m 644 "$unit" "$target/lib/systemd/system/$(basename "$unit")"
done
install -D -m 644 .ci/dist/sysusers.conf "$target/lib/sysusers.d/linerate.conf"
install -D -m 644 .ci/dist/tmpfiles.conf "$target/lib/tmpfiles.d/linerate.conf"
install -D -m 644 LICENSE "$target/share/doc/linerate/copyright"
for settings in .ci/dist/etc/*.toml; do
    place=$destination/etc/linerate/$(basename "$settings")
    [[ -e $place ]] || install -D -m 644 "$settings" "$place"
done
