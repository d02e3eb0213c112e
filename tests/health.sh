#!/usr/bin/env bash
# health.sh: how the gate of a boot decides, with the rendered script: at once if everything it checks belongs to the
# box itself, and not yet if others are late. Nobody waits here: `sleep` says what happens meanwhile. Then, which boots a
# fault ends, with the rendered condition.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{bin,drivers/virtio_net,drivers/other}

program() {
    { echo '#!/bin/bash'; cat; } >"$work/bin/$1"
    chmod 755 "$work/bin/$1"
}
# systemctl is-active --quiet UNIT...: as systemd's, it is content with one of them. The file `dead` names those that are
# not active.
program systemctl <<<"for unit in \"\${@:3}\"; do grep -qxF \"\$unit\" $work/dead || exit 0; done; exit 3"
# The box is healthy once the file `well` exists.
program linerate <<<"[[ -e $work/well ]] || { echo 'critical running: linerate-api.service'; exit 3; }"
# timeout 5 BASH -c COMMAND HOST PORT
program timeout <<<"echo \"\$5 \$6\" >>$work/asked; [[ -e $work/open ]]"
program sleep <<<". $work/meanwhile"

# gate WAIT: runs the check with the patience that `patience` says, by default none, so that it decides at once about
# the box itself. The clock jumps while it sleeps.
gate() {
    sed -e "s#/sys/class/net/#$work/net/#" -e "s/-ge 86400 /-ge $1 /" -e "s/-ge 60 /-ge $patience /" \
        -e 's/sleep 1$/&; SECONDS=100000/' \
        -e 's/for url in  ;/for url in $URLS;/' -e 's#for card in virtio_net/;#for card in $CARDS;#' \
        tests/rendered/vm/scripts/linerate-health >"$work/script"
    for text in "$work/net/" "-ge $1 " "-ge $patience " 'SECONDS=' '$URLS' '$CARDS'; do
        grep -qF -e "$text" "$work/script" || { echo "error: the script has no place for $text" >&2; exit 1; }
    done
    rm -f "$work/asked"
    URLS=${URLS:-} CARDS=$CARDS PATH=$work/bin:$PATH timeout=1 bash -e "$work/script" >"$work/said" 2>&1
}

# card NAME DRIVER CARRIER: its address ends with the last letter of its name.
card() {
    mkdir -p "$work/net/$1/device"
    ln -sfn "$work/drivers/$2" "$work/net/$1/device/driver"
    echo "$3" >"$work/net/$1/carrier"
    echo "02:00:00:00:00:0${1: -1}" >"$work/net/$1/address"
}

good() {
    gate "$2" || { echo "error: $1: the boot is bad: $(<"$work/said")" >&2; exit 1; }
}
# bad WHAT WAIT [SAID]
bad() {
    if gate "$2"; then
        echo "error: $1: the boot is good: $(<"$work/said")" >&2
        exit 1
    fi
    grep -qF "${3:-critical running: linerate-api.service}" "$work/said" || { echo "error: $1: says $(<"$work/said")" >&2; exit 1; }
}
says() {
    grep -qxF -e "$1" "$work/said" || { echo "error: instead of '$1' it says $(<"$work/said")" >&2; exit 1; }
}
begin() {
    rm -rf "$work/net" "$work/well" "$work/open"
    mkdir "$work/net" "$work/net/lo"
    : >"$work/dead"
    card eth0 virtio_net 1
    echo "echo nobody should wait; kill \$PPID" >"$work/meanwhile"
    URLS=
    CARDS=virtio_net/
    patience=0
}

begin
touch "$work/well"
good "a box that is well" 1000
begin
bad "a box that is ill by itself" 1000
card eth1 other 0
bad "and has a card that nobody declared without a carrier" 1000
begin
patience=60
echo "[[ ! -e $work/slept ]] || touch $work/well; touch $work/slept" >"$work/meanwhile"
good "a box that is well in time, whatever the clock says" 1000
for unit in api files links; do
    begin
    touch "$work/well"
    echo "linerate-$unit.service" >"$work/dead"
    bad "one service of several that is not there" 1000 "linerate-$unit.service is not active"
done

begin
card eth0 virtio_net 0
echo "echo 1 >$work/net/eth0/carrier; touch $work/well" >"$work/meanwhile"
good "a carrier that comes late" 1000
says 'not decided yet, since there is not: a carrier at eth0; '
begin
card eth1 virtio_net 0
bad "an unused port beside one with a carrier" 1000
begin
card eth0 virtio_net 0
card eth1 virtio_net 0
echo "echo 1 >$work/net/eth1/carrier; touch $work/well" >"$work/meanwhile"
good "a carrier that comes late, at either port" 1000
says 'not decided yet, since there is not: a carrier at eth0 or eth1; '
begin
card eth0 virtio_net 0
card eth1 virtio_net 1
CARDS='virtio_net/02:00:00:00:00:00 virtio_net/02:00:00:00:00:01'
echo "echo 1 >$work/net/eth0/carrier; touch $work/well" >"$work/meanwhile"
good "a carrier that comes late, at a port that is told by its address" 1000
says 'not decided yet, since there is not: a carrier at eth0; '
begin
card eth0 virtio_net 0
bad "a carrier that does not come in all that time" 0
begin
card eth0 virtio_net 0
echo "echo 1 >$work/net/eth0/carrier" >"$work/meanwhile"
bad "a box that is ill when its carrier has come" 1000

begin
URLS='postgres://api:se:cret%2F@db.example/api?sslmode=require postgresql://[2001:db8::1]:5433/api'
echo "touch $work/open $work/well" >"$work/meanwhile"
good "databases that come late" 1000
says 'not decided yet, since there is not: a way to db.example, port 5432; a way to 2001:db8::1, port 5433; '
if grep -q cret "$work/said"; then
    echo "error: it tells a password: $(<"$work/said")" >&2
    exit 1
fi
begin
URLS='postgres://api@one.example,[2001:db8::2]:5433,three.example/api?target_session_attrs=read-write'
echo "touch $work/open $work/well" >"$work/meanwhile"
good "several hosts of one database" 1000
says 'not decided yet, since there is not: a way to one.example, port 5432 or 2001:db8::2, port 5433 or three.example, port 5432; '
begin
URLS='postgres://api@one.example,localhost/api'
bad "a database that may be on this host" 1000
begin
URLS='sqlite:/var/lib/api.db postgres://api@%2Frun%2Fpostgresql/api postgres:///api postgres://localhost/api postgres://127.0.0.1:1/api postgres://[::1]/api'
bad "databases of this host are the box's own" 1000
[[ ! -e $work/asked ]]

# reboots STATUS: whether a boot about which systemd says this ends for a fault.
unit=tests/rendered/vm/systemd/system/linerate-fall-back.service
reboots() {
    program systemd-bless-boot <<<"[[ \$* == status ]] && echo '$1'"
    sed -nE "s#^ExecCondition=\S+/bash -c '(.*)'\$#\1#p" "$unit" | sed "s#/nix/store/[^ ]*/#$work/bin/#" >"$work/condition"
    grep -qF "$work/bin/systemd-bless-boot" "$work/condition" || { echo "error: $unit asks nobody" >&2; exit 1; }
    bash "$work/condition"
}
# "dirty": on trial for the last time. It says nothing if it cannot tell.
for status in indeterminate dirty bad ''; do
    reboots "$status" || { echo "error: a boot that is '$status' goes on with a fault" >&2; exit 1; }
done
! reboots good || { echo "error: a good boot ends for a fault" >&2; exit 1; }
echo "health: a boot is decided by what is the box's own, and waits for others; a good one goes on"
