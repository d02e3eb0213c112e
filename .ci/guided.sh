#!/usr/bin/env bash
# guided.sh [PROFILE [TRIPLE]]: builds the programs twice, the second time by a profile of what ran in the first
# (-C profile-use), and prints where they are. The services are trained by pkgs/training.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc h2load postgres wrk >&2
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
merge=$(.ci/profdata.sh)
profile=${1:-release}
triple=${2:-$(rustc --version --verbose | sed -n 's/^host: //p')}
if [[ $triple == *-musl ]]; then
    .ci/install.sh musl-gcc >&2
    ! command -v rustup >/dev/null || rustup --quiet target add "$triple" >&2
fi
# They would come before what is set here.
unset CARGO_BUILD_TARGET CARGO_ENCODED_RUSTFLAGS
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-pkgs/target}")
# The directory has cargo's name for it.
built=$triple/${profile/#dev/debug}

# build DIRECTORY FLAG: the programs with this flag of the compiler. It is for the target alone, so that build scripts
# and macros stay as they are: hence --target, even for the host.
build() {
    (cd pkgs && RUSTFLAGS="${RUSTFLAGS:-} -C $2" cargo build --profile "$profile" --locked --target "$triple" \
        --target-dir "$1" --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api) >&2
}
build "$target/guided/instrumented" profile-generate
(cd pkgs && cargo build --locked --target-dir "$target" --package linerate-training) >&2
rm -rf "$target/guided/profiles"
"$target/debug/linerate-training" "$target/guided/instrumented/$built" "$target/guided/profiles"
"$merge" merge --output="$target/guided/services.profdata" "$target"/guided/profiles/*.profraw
build "$target/guided" "profile-use=$target/guided/services.profdata"
echo "$target/guided/$built"
