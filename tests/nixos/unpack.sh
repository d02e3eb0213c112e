# Debian's packages as one of nixpkgs': usr/ at the top, one bin, one lib, valid links, and programs that find their
# libraries in the store. `debs`, `libraries` (those they may need), `loader` and `openedLibraries` (those they open by
# name while they run) come from debian.nix.

mkdir -p tree "$out"/{bin,lib}
for deb in $debs; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner --no-same-permissions -C tree
done
rm -rf tree/usr/share/{bug,doc,doc-base,info,lintian,locale,man} tree/usr/lib64 tree/lib64

# merge FROM TO: moves what is in FROM, where both may have it.
merge() {
    [[ -d tree/$1 ]] || return 0
    mkdir -p "$out/$2"
    # Some have a link to bin/NAME as sbin/NAME: the first stays.
    cp -a -n "tree/$1/." "$out/$2/"
    rm -rf "tree/$1"
}
for top in "" usr/; do
    merge "${top}bin" bin
    merge "${top}sbin" bin
    merge "${top}lib/x86_64-linux-gnu" lib
    merge "${top}lib" lib
done
merge usr/libexec libexec
merge usr/share share
merge etc etc
ln -s bin "$out/sbin"

# The targets of links: absolute ones into the package, and none through the directory that was removed.
find "$out" -type l -print0 | while IFS= read -r -d '' link; do
    to=$(readlink "$link")
    new=$(sed -E "s#^/(usr/)?(s?bin|lib|share|libexec|etc)/#$out/\2/#; s#x86_64-linux-gnu/##" <<<"$to")
    [[ $new == "$to" ]] || ln -sfn "$new" "$link"
done
chmod -R u+w "$out"
find "$out/bin" -type f -exec sed -i -E "1s,^#! */(usr/)?bin/(ba)?sh\>,#!$interpreter," {} +

runHook postUnpack

# Links into packages that aren't in this one.
find "$out" -xtype l ! -lname '/nix/store/*' -delete

[[ -n ${loader:-} ]] || return 0
own=$(find "$out" -name "*.so*" -printf "%h\n" | sort -u | paste -sd:)
search=$own
for library in $libraries; do search+=:$library/lib:$library/lib/systemd; done
opened=
for library in $openedLibraries; do opened+=:$library/lib; done
find "$out" -type f \( -perm -100 -o -name '*.so*' \) -print0 | while IFS= read -r -d '' file; do
    [[ $(head -c 4 "$file" | tail -c 3) == ELF ]] || continue
    # Neither static programs nor those of the firmware or the kernel.
    needed=$(patchelf --print-needed "$file" 2>/dev/null) || continue
    interpreter=$(patchelf --print-interpreter "$file" 2>/dev/null) || interpreter=
    if [[ -n $interpreter ]]; then patchelf --set-interpreter "$loader" "$file"; fi
    if [[ -n $needed ]]; then
        patchelf --set-rpath "$search" "$file"
        patchelf --shrink-rpath "$file"
        if [[ -n $opened ]]; then patchelf --add-rpath "${opened#:}" "$file"; fi
        # Whatever it is linked against is there, or else the build ends here rather than in a guest.
        found=$(patchelf --print-rpath "$file" | tr : '\n')
        for name in $needed; do
            [[ $name == ld-linux* ]] && continue
            for directory in $found; do [[ -e $directory/$name ]] && continue 2; done
            echo "error: $file is linked against $name, which no package of debian.txt that it depends on has" >&2
            exit 1
        done
    fi
done
