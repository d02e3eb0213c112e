# The machine's compiler linked what is in $out against the machine's libraries; in the store it finds Debian 13's.
linkAgainstStore() {
    local file
    find "$out" -type f -perm -100 -print0 | while IFS= read -r -d '' file; do
        [[ $(head -c 4 "$file" | tail -c 3) == ELF ]] || continue
        patchelf --set-interpreter @loader@ --set-rpath @libraries@ "$file"
        patchelf --shrink-rpath "$file"
    done
}
postFixupHooks+=(linkAgainstStore)
