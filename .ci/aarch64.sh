#!/usr/bin/env bash
# aarch64.sh: the services on aarch64. Debian's cross compiler builds the programs and the crates' unit tests, and an
# emulated machine with Debian 13's kernel runs them: redirects and files over each version of HTTP, a cold file by
# io_uring, the API across kill -9, and the tests. Not part of `make test`, since it compiles everything once more.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $(id -u) != 0 ]]; then
    echo "error: only root may make the machine's file system" >&2
    exit 1
fi
.ci/install.sh aarch64-linux-gnu-gcc cargo cpio mke2fs mmdebstrap python3 qemu-system-aarch64 xz
PATH=$PATH:/usr/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
triple=aarch64-unknown-linux-gnu
if [[ ! -d $(rustc --print sysroot)/lib/rustlib/$triple ]] && ! rustup target add "$triple"; then
    echo "error: Rust's standard library for $triple is missing: 'rustup target add $triple'" >&2
    exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
programs=(linerate linerate-api linerate-files linerate-links)
tested=(api files head links listener router service)
(cd pkgs && cargo build --locked --target "$triple" --bins "${programs[@]/#/--package=}")
PYTHONPATH=tests python3 -B - --target "$triple" --lib "${tested[@]/#/--package=linerate-}" >"$work/built" <<'PYTHON'
import sys
import cargo

for program in cargo.build(*sys.argv[1:]):
    print(program.package.name, program.executable)
PYTHON

mmdebstrap --quiet --mode=root --architectures=arm64 --variant=extract --aptopt='Acquire::Languages "none"' \
    --include=bash,busybox-static,curl,libc6,libgcc-s1,linux-image-cloud-arm64,openssl trixie "$work/root" </dev/null
cd "$work/root"
kernel=$(ls boot/vmlinuz-*)
mv "$kernel" "$work/kernel"
mkdir -p "$work/initrd/"{bin,dev,root}
cp usr/bin/busybox "$work/initrd/bin/"
xz -dc "usr/lib/modules/${kernel#boot/vmlinuz-}/kernel/drivers/block/virtio_blk.ko.xz" >"$work/initrd/virtio_blk.ko"
cd - >/dev/null
install tests/aarch64/initrd.sh "$work/initrd/init"
(cd "$work/initrd" && find . | cpio --quiet -o -H newc) >"$work/initrd.cpio"

rm -rf "$work/root/"{boot,usr/lib/modules}
for link in lib sbin; do [[ -e $work/root/$link ]] || ln -s "usr/$link" "$work/root/$link"; done
mkdir -p "$work/root/"{dev,proc,root,run,srv,sys,tests,tmp,usr/bin,var}
install tests/aarch64/init.sh "$work/root/init"
for program in "${programs[@]}"; do
    aarch64-linux-gnu-strip -o "$work/root/usr/bin/$program" "${CARGO_TARGET_DIR:-pkgs/target}/$triple/debug/$program"
done
while read -r package executable; do
    aarch64-linux-gnu-strip -o "$work/root/tests/$package" "$executable"
done <"$work/built"
# Some tests read files of their package, and write beside them, at the path where it was compiled.
mkdir -p "$work/root$PWD"
git ls-files -z pkgs | xargs -0 cp --parents -t "$work/root$PWD"
ln -s "$PWD/pkgs" "$work/root/pkgs"
mke2fs -q -t ext4 -m 0 -E lazy_itable_init=1 -d "$work/root" "$work/disk" 2560M

timeout 900 qemu-system-aarch64 -M virt -cpu max,pauth-impdef=on -smp 2 -m 2048 -nographic -no-reboot -nic none \
    -kernel "$work/kernel" -initrd "$work/initrd.cpio" -append "console=ttyAMA0 quiet panic=-1" \
    -drive "file=$work/disk,format=raw,if=none,id=disk,cache=unsafe" -device virtio-blk-pci,drive=disk \
    </dev/null | tr -d '\r' | tee "$work/log"
grep -qx "all of it: holds" "$work/log"
