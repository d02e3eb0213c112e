#!/usr/bin/env bash
# boxes.sh [DIRECTORY]: several boxes, with what modules/fleet renders and the programs in DIRECTORY: dashboards and
# alert rules with real scrapes, and the service address with BGP and VRRP and the firewall in network namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
.ci/install.sh bird curl ip keepalived nft openssl prometheus prometheus-node-exporter python3 unshare
if [[ $# == 0 ]]; then
    .ci/install.sh cargo cc
    PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
    (cd pkgs && cargo build --locked --bin linerate --bin linerate-links --bin linerate-files --bin linerate-api)
    set -- "${CARGO_TARGET_DIR:-pkgs/target}/debug"
fi
PATH=$PATH:/usr/sbin:/sbin
python3 -B tests/fleet/monitoring.py "$1"
python3 -B tests/fleet/address.py "$1"
python3 -B tests/fleet/firewall.py
