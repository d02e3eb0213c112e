#!/usr/bin/env bash
# docs.sh check|write|record [DIRECTORY]: the manual, with the programs in DIRECTORY, which are built if there is none.
#
# `check` follows every link, compares generated pages with what the programs print, runs the commands that documents
# show, and builds the book with mdbook. `write` writes the generated pages, including those of the modules' options if
# nixpkgs is available. `record` writes the README's picture of a terminal.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh cargo cc curl git ip openssl python3 sqlite3
PATH=$PATH:/usr/sbin
programs=${2:-}
if [[ -z $programs ]]; then
    PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
    (cd pkgs && cargo build --locked --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api)
    programs=${CARGO_TARGET_DIR:-pkgs/target}/debug
fi

case ${1:-} in
    check)
        python3 -B docs/test_book.py
        python3 -B docs/book.py check
        python3 -B docs/reference.py check "$programs"
        python3 -B docs/commands.py check "$programs" README.md docs/tutorial.md docs/backup.md
        # Without what a book doesn't need: mdbook's server and search.
        tools=$(.ci/cargo-tool.sh mdbook 0.5.4 --no-default-features)
        PATH=$tools:$PATH python3 -B docs/book.py build "${CARGO_TARGET_DIR:-pkgs/target}/book"
        ;;
    write)
        python3 -B docs/reference.py write "$programs"
        .ci/nix.sh options || echo "docs: nixpkgs is not at hand, so docs/reference/options.md stays as it is"
        ;;
    record)
        python3 -B docs/commands.py record "$programs" README.md
        ;;
    *)
        echo "usage: docs.sh check|write|record [DIRECTORY]" >&2
        exit 2
        ;;
esac
