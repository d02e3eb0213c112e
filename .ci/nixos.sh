#!/usr/bin/env bash
# nixos.sh [HOST...]: builds every host's system, or the named ones, without a binary cache and without fetching:
# nixpkgs with programs from Debian 13 (tests/nixos). It compares what is in each closure with tests/nixos/closures, and
# its size with a limit. `nixos.sh --write [HOST...]` writes these lists. `nixos.sh --disks DIRECTORY GUEST...` builds
# the images of guests of tests/portable, as DIRECTORY/GUEST, with LINERATE_RELEASE from crane's programs. `nixos.sh
# --images DIRECTORY IMAGE...` builds the flake's images in the same way, as DIRECTORY/IMAGE, and checks that each is a
# disk that firmware can boot. `nixos.sh --packages [PACKAGE...]` builds the flake's packages of our programs with
# crane, the generic guided ones by default, and checks for their manuals and completions. That takes a release build
# for each kind of CPU, and one more for their profile, so `make test` builds the default with PROFILE=dev. `nixos.sh
# --systems [HOST...]` builds hosts' systems from these, vm's by default.
#
# Otherwise our programs are those that cargo has built for the tests: from $CARGO_TARGET_DIR or pkgs/target, as they
# are, or built if one is missing. Images use those of $PROFILE, by default cargo's profile `try`.
#
# If nixpkgs, crane, Debian's packages or crates aren't available, it says so and exits with 0; the file that
# LINERATE_SKIPS names gets a line.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "skipped: nixos: $*"
    [[ -z ${LINERATE_SKIPS:-} ]] || echo "skipped: nixos: $*" >>"$LINERATE_SKIPS"
    exit 0
}

cache=${XDG_CACHE_HOME:-$HOME/.cache}/linerate
[[ $(id -u) == 0 ]] || skip "only root may build without Nix's users"
[[ -x /usr/bin/dpkg-deb ]] || skip "the builds use Debian's tools"
for input in nixpkgs crane; do
    [[ -d $cache/inputs/$input ]] || skip "$input is not in ~/.cache/linerate/inputs"
done
said=$(.ci/install.sh cargo cc cpio gpg jq nix nft patchelf perl python3 sbsiglist sbvarsign setpriv sqlite3 strip xsltproc 2>&1) ||
    skip "its tools are not to be had: $(tail -n 1 <<<"$said")"
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

mode=check
known=(aws-c6i installer template tengbe vm)
case ${1:-} in
    --write)
        mode=write
        shift
        ;;
    --disks)
        mode=disks
        known=(appliance cloud cloud-appliance medium metal sealed serving sharing)
        ;;
    --images)
        mode=images
        known=(aws-c6i-appliance aws-c6i-image tengbe-appliance tengbe-image tengbe-installer)
        ;;
    --packages)
        mode=packages
        known=({linerate,linerate-api,linerate-files,linerate-links}{,-alderlake,-icelake-server}{,-guided})
        shift
        [[ $# -gt 0 ]] || set -- {linerate,linerate-api,linerate-files,linerate-links}-guided
        ;;
    --systems)
        mode=systems
        shift
        [[ $# -gt 0 ]] || set -- vm
        ;;
esac
# Whether crane builds our programs.
released=
case $mode in
    disks) released=${LINERATE_RELEASE:-} ;;
    packages | systems) released=1 ;;
esac
if [[ $mode == disks || $mode == images ]]; then
    directory=${2-}
    shift $(($# < 2 ? $# : 2))
fi
hosts=("$@")
[[ $# -gt 0 || $mode == disks || $mode == images ]] || hosts=("${known[@]}")
for host in "${hosts[@]}"; do
    [[ " ${known[*]} " == *" $host "* ]] || hosts=()
done
if [[ ${#hosts[@]} == 0 ]]; then
    echo "usage: nixos.sh [--write] [aws-c6i|installer|template|tengbe|vm]..." \
        "| --disks DIRECTORY (appliance|cloud|cloud-appliance|medium|metal|sealed|serving|sharing)..." \
        "| --images DIRECTORY (aws-c6i-appliance|aws-c6i-image|tengbe-appliance|tengbe-image|tengbe-installer)..." \
        "| --packages [linerate[-api|-files|-links][-alderlake|-icelake-server][-guided]]..." \
        "| --systems [aws-c6i|installer|template|tengbe|vm]..." >&2
    exit 2
fi
if [[ " ${hosts[*]} " == *-guided* ]]; then
    # What such programs are trained with.
    said=$({ .ci/install.sh h2load postgres wrk && .ci/profdata.sh; } 2>&1) ||
        skip "its tools are not to be had: $(tail -n 1 <<<"$said")"
fi

started=$SECONDS
# One at a time fetches, and makes the keys: several may need the same.
mkdir -p "$cache"
exec 9>"$cache/nixos.lock"
flock 9
status=0
list=$(tests/nixos/debian.py fetch) || status=$?
case $status in
    0) ;;
    3) skip "$list" ;;
    *) exit 1 ;;
esac

# The crates of NixOS's own programs: cargo has them in its cache, or fetches them once.
packages=$cache/inputs/nixpkgs/pkgs
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$packages/by-name/sw/switch-to-configuration-ng/src" "$scratch/switch"
# As in tests/nixos/switch-to-configuration.nix.
sed -i 's/^rust-ini = .*/rust-ini = { version = "=0.21.1", features = [/' "$scratch/switch/Cargo.toml"
cp -r "$packages/build-support/kernel/make-initrd-ng" "$scratch/initrd"
cp -r "$packages/by-name/ch/chroot-realpath/src" "$scratch/realpath"
natives=(switch initrd realpath)
crane=$cache/inputs/crane
if [[ $released ]]; then
    # Our crates, and those of crane's build tools.
    ln -s "$PWD/pkgs" "$scratch/ours"
    cp -r "$crane/pkgs/crane-utils" "$scratch/crane-utils"
    natives+=(ours crane-utils)
    # Nix 2.8, which Debian 12 has, lists no directory by a path that goes up from a file.
    cp -r "$crane" "$scratch/crane"
    chmod -R u+w "$scratch/crane"
    sed -i 's,rest: p + "/../${rest}";,rest: dirOf p + "/${rest}";,' "$scratch/crane/lib/mkDummySrc.nix"
    crane=$scratch/crane
fi
for program in "${natives[@]}"; do
    cargo fetch --quiet --offline --manifest-path "$scratch/$program/Cargo.toml" 2>/dev/null ||
        cargo fetch --quiet --manifest-path "$scratch/$program/Cargo.toml" ||
        skip "crates of NixOS's own programs are not to be had"
done
mkdir -p "$cache/nixos/crates"
for crate in "${CARGO_HOME:-$HOME/.cargo}"/registry/cache/*/*.crate; do
    [[ -e $cache/nixos/crates/${crate##*/} ]] || cp "$crate" "$cache/nixos/crates/"
done

# Our programs, unless crane builds them: without debug information, which makes up most of their size.
programs=
if [[ ! $released ]]; then
    built=${CARGO_TARGET_DIR:-pkgs/target}/debug
    programs=$scratch/programs
    mkdir "$programs"
    names=(linerate linerate-api linerate-files linerate-links)
    # The tests' programs are built with other features.
    if [[ $mode == images && ${PROFILE:=try} != dev ]]; then
        (cd pkgs && cargo build --locked --profile "$PROFILE" --bins "${names[@]/#/--package=}")
        built=${CARGO_TARGET_DIR:-pkgs/target}/$PROFILE
    fi
    if [[ -x $built/${names[0]} && -x $built/${names[1]} && -x $built/${names[2]} && -x $built/${names[3]} ]]; then
        for name in "${names[@]}"; do strip -o "$programs/$name" "$built/$name"; done
    else
        python3 -B - "$programs" "${names[@]}" <<'PYTHON'
import pathlib, sys
sys.path.insert(0, "tests/portable")
import binaries
binaries.build(pathlib.Path(sys.argv[1]), set(sys.argv[2:]))
PYTHON
    fi
fi

export NIX_CONFIG="experimental-features = nix-command flakes
build-users-group =
sandbox = false
substituters =
max-jobs = auto
cores = $([[ $released ]] && nproc || echo 1)
warn-dirty = false
${NIX_CONFIG:-}"
# A change of the script makes new keys.
test_keys=$cache/nixos/keys-$(sha256sum tests/nixos/keys.sh | cut -c -16)
arguments=()
for input in "$cache/inputs/nixpkgs" "$crane"; do
    arguments+=(--argstr "${input##*/}" "$(nix store add-path --name source "$input")")
done
arguments+=(--argstr list "$list" --argstr debs "$cache/nixos/debs" --argstr crates "$cache/nixos/crates"
    --argstr keys "$test_keys" --argstr rust "$(rustc --print sysroot)")
if [[ $released ]]; then
    arguments+=(--argstr profile "${PROFILE:=release}")
else
    arguments+=(--argstr programs "$programs")
fi

if ! tests/nixos/keys.sh "$test_keys" >"$scratch/log" 2>&1; then
    cat "$scratch/log" >&2
    exit 1
fi
exec 9>&-

# Evaluates all of them at once, since they share most of an evaluation.
began=$SECONDS
# Without collecting garbage, which otherwise takes a third of the time.
export GC_INITIAL_HEAP_SIZE=4G
attributes=()
case $mode in
    disks) what=disks ;;
    images | packages) what=packages ;;
    *) what=toplevels ;;
esac
for host in "${hosts[@]}"; do attributes+=(-A "$what.$host"); done
# The outputs beside an appliance's disk, in this order.
beside=(sbom payload sign)
for host in "${hosts[@]}"; do
    [[ $mode == images && $host == *-appliance ]] || continue
    for name in "${beside[@]}"; do attributes+=(-A "$what.${host%-appliance}-$name"); done
done
[[ $mode != images ]] || attributes+=(-A pkgs.erofs-utils)
if ! derivations=$(nice nix-instantiate --quiet "${arguments[@]}" tests/nixos "${attributes[@]}" 2>"$scratch/log"); then
    cat "$scratch/log" >&2
    exit 1
fi
mapfile -t derivations <<<"$derivations"
tests/nixos/closure.py fetches "${derivations[@]}"
echo "nixos: evaluated in $((SECONDS - began)) s"

# is_package DIRECTORY DEBUG: whether there is a program that runs, with its manual and completions, and without any of
# the machine's paths; and in the other output, under its build id, its line tables.
is_package() {
    local program id lines
    program=$(echo "$1"/bin/*)
    # It may be made for another CPU than this machine's.
    [[ $host == *-alderlake* || $host == *-icelake-server* ]] || "$program" --version || return 1
    [[ -s $1/share/man/man1/${program##*/}.1.gz ]] || return 1
    [[ -s $1/share/bash-completion/completions/${program##*/}.bash ]] || return 1
    [[ -s $1/share/fish/vendor_completions.d/${program##*/}.fish ]] || return 1
    [[ -s $1/share/zsh/site-functions/_${program##*/} ]] || return 1
    ! nix-store --query --requisites "$1" "$2" | grep -e '-of-the-machine' || return 1
    ! readelf --section-headers "$program" | grep -F .debug_line || return 1
    id=$(readelf --notes "$program" | sed -n 's/.*Build ID: //p')
    lines=$2/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    addr2line --exe "$lines" "0x$(nm "$program" | awk '/ [tT] _ZN/ { print $1; exit }')" | grep '[.]rs:[0-9]' || return 1
    echo "nixos:   $(($(stat -c %s "$program") >> 10)) KiB, $(nix-store --query --requisites "$1" | wc -l) paths;" \
        "lines: $(($(stat -c %s "$lines") >> 10)) KiB, $(nix-store --query --requisites "$2" | wc -l) paths"
}

# is_released SYSTEM: whether it has our programs as built by crane, and their line tables in a separate output.
is_released() {
    local program file id
    ! nix-store --query --requisites "$1" | grep -e '-of-the-machine' || return 1
    for program in linerate linerate-files linerate-links; do
        "$1/sw/bin/$program" --version || return 1
        # Operators may have a script around it, with the service's settings.
        for file in $(nix-store --query --requisites "$1" | sed "s,$,/bin/$program,"); do
            [[ ! -f $file ]] || ! readelf --file-header "$file" >/dev/null 2>&1 || break
        done
        id=$(readelf --notes "$file" | sed -n 's/.*Build ID: //p')
        [[ -s $1/sw/lib/debug/.build-id/${id:0:2}/${id:2}.debug ]] || return 1
    done
    echo "nixos:   $(($(nix-store --query --requisites "$1" | xargs nix-store --query --size | paste -sd+) >> 20)) MiB," \
        "$(nix-store --query --requisites "$1" | wc -l) paths"
}

# is_bootable FILE: whether firmware finds a loader with an entry on this disk, and that finds a root with a label.
is_bootable() {
    .ci/install.sh blkid mdir sfdisk
    local disk=$1 start size type label esp=C12A7328-F81F-11D2-BA4B-00A0C93EC93B expected=(ESP '?*') number=0
    while read -r start size type; do
        label=$(blkid --probe --offset $((start * 512)) --size $((size * 512)) --match-tag LABEL --output value "$disk")
        echo "nixos:   $((size / 2048)) MiB, $label"
        # shellcheck disable=SC2053 # A pattern.
        [[ $label == ${expected[number]} ]] || return 1
        [[ $number != 0 || $type == "$esp" ]] || return 1
        number=$((number + 1))
    done < <(sfdisk --json "$disk" | jq -r '.partitiontable.partitions[] | "\(.start) \(.size) \(.type)"')
    [[ $number == 2 ]] || return 1
    local files
    files=$(mdir -/ -b -i "$disk@@1M" ::) || return 1
    grep -qi '::/EFI/BOOT/BOOTX64.EFI' <<<"$files" && grep -q '::/loader/entries/.*\.conf' <<<"$files"
}

# is_image DIRECTORY: whether firmware finds a loader with a boot file on this disk, and the store matches its hash.
is_image() {
    .ci/install.sh mdir sfdisk veritysetup
    local disk start size type name hash store verity part
    disk=$(echo "$1"/*.raw)
    while read -r start size type name; do
        echo "nixos:   $((size / 2048)) MiB, $name"
        case $name in
            esp) [[ $start == 2048 && $type == C12A7328-F81F-11D2-BA4B-00A0C93EC93B ]] || return 1 ;;
            store_*) store="$start $size" ;;
            verity_*) verity="$start $size" ;;
            *) return 1 ;;
        esac
    done < <(sfdisk --json "$disk" | jq -r '.partitiontable.partitions[] | "\(.start) \(.size) \(.type) \(.name)"')
    local files uki
    files=$(mdir -/ -b -i "$disk@@1M" ::) || return 1
    grep -qi '::/EFI/BOOT/BOOTX64.EFI' <<<"$files" || return 1
    uki=$(grep '::/EFI/Linux/.*[.]efi$' <<<"$files") || return 1
    mcopy -i "$disk@@1M" "$uki" "$scratch/uki.efi"
    hash=$(grep -aoE 'usrhash=[0-9a-f]{64}' "$scratch/uki.efi" | head -n 1)
    # shellcheck disable=SC2086 # start and size
    for part in "store $store" "verity $verity"; do
        set -- "$1" $part
        dd if="$disk" of="$scratch/$2" bs=1M skip=$(($3 / 2048)) count=$(($4 / 2048)) conv=sparse status=none
    done
    veritysetup verify "$scratch/store" "$scratch/verity" "${hash#usrhash=}" || return 1
    rm "$scratch/store" "$scratch/verity"
    for file in "$1"/update/*.{efi,store,verity}; do
        echo "nixos:   $(($(stat -c %s "$file") >> 20)) MiB, ${file##*/}"
    done
}

# is_described DISK SBOM PAYLOAD: whether an appliance's descriptions are correct: its provenance has the digests of all
# its files, and its bill of materials has the paths of its store and our crates.
is_described() {
    local raw
    raw=$(basename "$1"/*.raw)
    diff <(jq -r '.subject[] | "\(.digest.sha256)  \(.name)"' "$1"/update/*.provenance.json | sort) \
        <(cd "$1/update" && sha256sum -- *.efi *.store *.verity "../$raw" | sed 's,  [.][.]/,  ,' | sort) || return 1
    jq -e '.predicate | .runDetails.builder.id == "https://builds.example/tests"
        and any(.buildDefinition.resolvedDependencies[]; .digest.gitCommit != null)' \
        "$1"/update/*.provenance.json >/dev/null || return 1
    # The initrd is in the boot file.
    diff <(jq -r '.components[] | .properties[]? | select(.name == "nix:output_path").value | ltrimstr("/nix/store/")' "$2" |
        grep -v -e '-initrd-linux-' | sort) \
        <("$erofs/bin/dump.erofs" --ls --path=/ "$3/store" | sed -nE 's/^ *[0-9]+ +[0-9]+ +([0-9a-z]{32}-.*)$/\1/p' | sort) ||
        return 1
    diff <(jq -r '.components[] | select(.purl).purl' "$2" | sort) \
        <(sed -nE '/^name = /{N; s/name = "(.*)"\nversion = "(.*)"/pkg:cargo\/\1@\2/p}' pkgs/Cargo.lock | sort)
}

# is_signed PAYLOAD SIGN: whether signing it with keys makes an update whose manifest they have signed, and a boot
# loader and a boot file that Secure Boot accepts.
is_signed() {
    .ci/install.sh gpgv mdir sbverify
    local keys=$scratch/keys signed=$scratch/signed
    rm -rf "$keys" "$signed"
    cp -a "$test_keys" "$keys"
    # To sign the expected PCR 11, systemd loads a library for TPMs that hosts here don't have.
    rm "$keys"/pcr.*
    "$2/bin/linerate-sign" "$1" "$signed" "$keys" || return 1
    (
        cd "$signed/update"
        gpgv --quiet --keyring "$keys/update.gpg" SHA256SUMS.gpg SHA256SUMS && sha256sum --check --quiet SHA256SUMS &&
            ! gpgv --quiet --keyring "$keys/other/gnupg.gpg" SHA256SUMS.gpg SHA256SUMS 2>/dev/null
    ) || return 1
    mcopy -i "$(echo "$signed"/*.raw)@@1M" ::/EFI/BOOT/BOOTX64.EFI "$scratch/loader.efi"
    sbverify --cert "$keys/db.crt" "$scratch/loader.efi" >/dev/null &&
        sbverify --cert "$keys/db.crt" "$signed"/update/*.efi >/dev/null || return 1
    rm -rf "$signed"
}

# outputs DERIVATION...: what these derivations, and those that they need, make.
outputs() {
    nix-store --query --requisites "$@" | grep '[.]drv$' | xargs nix-store --query --outputs | sort -u
}

# drop PATH: deletes what was built before, and the large files it was made from, such as images, of which each is a copy
# of everything in it. What today's derivations make stays, and Nix keeps what something else needs.
drop() {
    local derivation path
    # A store that was emptied does not know the path.
    derivation=$(nix-store --query --deriver "$1" 2>/dev/null || true)
    [[ -e $scratch/outputs ]] || outputs "${derivations[@]}" >"$scratch/outputs"
    {
        echo "$1"
        [[ ! -e $derivation ]] || comm -23 <(outputs "$derivation") "$scratch/outputs"
    } | while read -r path; do
        if [[ -e $path && $(du -sm "$path" | cut -f 1) -ge 20 ]]; then
            nix-store --quiet --delete "$path" >/dev/null 2>&1 || true
        fi
    done
}

# Builds by root may only write what a builder's own user could write. Otherwise Python would leave its caches in the
# store, and depmod would write its lists into an existing kernel.
builder=(setpriv --bounding-set=-dac_override --inh-caps=-dac_override)

# realise DERIVATION...: builds these, by such a builder. If that fails, prints the end of nix-store's output and that of
# the log of each failed build.
realise() {
    nice "${builder[@]}" nix-store --quiet --realise "$@" >/dev/null 2>"$scratch/log" || failed_builds
}
failed_builds() {
    local derivation
    tail -n 20 "$scratch/log" >&2
    while read -r derivation; do nix-store --read-log "$derivation" | tail -n 20 >&2; done \
        < <(grep -oE "builder for '[^']*'" "$scratch/log" | cut -d "'" -f 2)
    return 1
}

# The profile of guided programs: its PostgreSQL runs as a user of its own, whose files root reads only by that
# capability.
if [[ $released ]] && profile=$(nix-store --query --requisites "${derivations[@]}" | grep -e '-linerate[.]profdata[.]drv$'); then
    began=$SECONDS
    mapfile -t needs < <(nix-store --query --references "$profile" | grep '[.]drv$')
    realise "${needs[@]}"
    echo "nixos: instrumented programs are built, in $((SECONDS - began)) s"
    began=$SECONDS
    nice nix-store --quiet --realise "$profile" >/dev/null 2>"$scratch/log" || failed_builds
    echo "nixos: they are trained, in $((SECONDS - began)) s"
fi

failed=
mkdir -p "$cache/nixos/roots"
# The index of the first output beside the disks, and the program that reads a store.
next=${#hosts[@]}
erofs=
[[ $mode != images ]] || erofs=$("${builder[@]}" nix-store --quiet --realise "${derivations[-1]}" 2>"$scratch/log")
for index in "${!hosts[@]}"; do
    began=$SECONDS
    host=${hosts[index]}
    root=$cache/nixos/roots/$host${released:+-$mode-$PROFILE}
    before=$(readlink "$root" || true)
    realise --add-root "$root" "${derivations[index]}" || {
        echo "error: $host does not build" >&2
        exit 1
    }
    echo "nixos: $host is built, in $((SECONDS - began)) s"
    [[ -z $before || $before == "$(readlink "$root")" ]] || drop "$before"
    if [[ $mode == disks ]]; then
        ln -sf "$(readlink -f "$root")/nixos.img" "$directory/$host"
        [[ ! -e $root/updates.img ]] || ln -sf "$(readlink -f "$root")/updates.img" "$directory/$host.updates"
        continue
    fi
    if [[ $mode == systems ]]; then
        is_released "$(readlink -f "$root")" || {
            echo "error: $host has not our programs, or not their lines" >&2
            exit 1
        }
        continue
    fi
    if [[ $mode == packages ]]; then
        is_package "$(readlink -f "$root")" "$(readlink -f "$root-debug")" || {
            echo "error: $host lacks something, or has too much" >&2
            exit 1
        }
        continue
    fi
    if [[ $mode == images ]]; then
        mkdir -p "$directory"
        if [[ $host == *-appliance ]]; then
            is_image "$root" || {
                echo "error: $host is no image that boots" >&2
                exit 1
            }
            # Builds the boot file and the disk a second time from the same payload, and compares.
            if ! nice "${builder[@]}" nix-store --quiet --realise --check "${derivations[index]}" >/dev/null 2>"$scratch/log"; then
                tail -n 5 "$scratch/log" >&2
                echo "error: $host is another one when it is built again" >&2
                exit 1
            fi
            echo "nixos: $host is the same, byte by byte, when it is put together again"
            mapfile -t made < <("${builder[@]}" nix-store --quiet --realise "${derivations[@]:next:${#beside[@]}}" 2>"$scratch/log")
            next=$((next + ${#beside[@]}))
            is_described "$root" "${made[0]}" "${made[1]}" || {
                echo "error: $host is not what its provenance or its bill of materials says" >&2
                exit 1
            }
            is_signed "${made[1]}" "${made[2]}" || {
                echo "error: $host is not to be signed" >&2
                exit 1
            }
            echo "nixos: $host is what its provenance and bill of materials say, and can be signed"
            cp --sparse=always "$root"/*.raw "$directory/$host"
            echo "nixos: $directory/$host"
            continue
        fi
        is_bootable "$root/nixos.img" || {
            echo "error: $host boots nothing" >&2
            exit 1
        }
        cp --sparse=always "$root/nixos.img" "$directory/$host"
        echo "nixos: $directory/$host"
        continue
    fi
    tests/nixos/closure.py "$mode" "$host" "$(readlink -f "$root")" || failed=1
done
echo "nixos: ${hosts[*]}: $((SECONDS - started)) s"
[[ -z $failed ]]
