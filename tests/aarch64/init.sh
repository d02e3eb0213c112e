#!/usr/bin/busybox sh
# The machine's only process besides what it starts: services answer over each version of HTTP, then the crates' unit
# tests run. The last line says whether all of it holds.
mkdir -p /busybox
/usr/bin/busybox --install -s /busybox
export PATH=/usr/bin:/busybox HOME=/root
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs run /run
ip link set lo up
ulimit -n 65536
failed=

# holds WHAT COMMAND...: runs it, and says whether it ends well.
holds() {
    local what=$1
    shift
    if "$@" >/run/output 2>&1; then
        echo "holds: $what"
    else
        cat /run/output
        echo "DOES NOT HOLD: $what"
        failed=1
    fi
}

# ask OPTION...: curl, which waits for a service that is still starting.
ask() {
    curl -sS --max-time 60 --retry 60 --retry-delay 1 --retry-connrefused --cacert /run/cert.pem "$@"
}

# answers VERSION FORMAT EXPECTED URL: whether curl, by this version alone, prints what is expected.
answers() {
    [ "$(ask "$1" -o /run/body -w "$2" "$4")" = "$3" ]
}

# From the disk, not from memory: by io_uring.
cold() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    answers --http1.1 '%{http_code}' 200 http://127.0.0.1:8090/large && cmp /run/body /srv/large &&
        grep -q 'disk=uring' /run/files.log
}

# What was acknowledged survives the process.
killed() {
    ask --fail -o /run/body -H 'content-type: application/json' \
        -d '{"email":"ada@example.org","name":"Ada"}' http://127.0.0.1:8100/v1/users || return
    kill -9 "$api"
    wait "$api"
    start_api
    ask --fail http://127.0.0.1:8100/v1/users | grep -q ada@example.org
}

start_api() {
    linerate-api serve --database-url sqlite:/var/api.db --listen 127.0.0.1:8100 >/run/api.log 2>&1 &
    api=$!
}

# tests PACKAGE: the unit tests of its library, except those for which there is no PostgreSQL here.
tests() {
    cd "/pkgs/$1" && CARGO_MANIFEST_DIR=$PWD "/tests/$1" --quiet --skip postgres
}

echo "$(uname -m), Linux $(uname -r)"
head -c 3000000 /dev/urandom >/srv/large
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /run/key.pem -out /run/cert.pem -days 2 \
    -subj /CN=localhost -addext subjectAltName=DNS:localhost 2>/dev/null
linerate-links add --database /var/links.db --code abc https://example.com/x >/dev/null
tls="--cert /run/cert.pem --key /run/key.pem"
# shellcheck disable=SC2086 # several words
linerate-links serve --database /var/links.db --listen 127.0.0.1:8080 --tls-listen 127.0.0.1:8443 $tls \
    --admin 127.0.0.1:8081 >/run/links.log 2>&1 &
# shellcheck disable=SC2086 # several words
linerate-files serve --root /srv --listen 127.0.0.1:8090 --tls-listen 127.0.0.1:8493 $tls \
    --admin 127.0.0.1:8091 >/run/files.log 2>&1 &
start_api

redirect='%{http_version} %{http_code} %{redirect_url}'
for version in 1.1 2 3-only; do
    holds "a redirect by HTTP/${version%-only}" answers --http$version "$redirect" \
        "${version%-only} 307 https://example.com/x" https://localhost:8443/abc
    holds "a file by HTTP/${version%-only}" answers --http$version '%{http_version} %{http_code}' \
        "${version%-only} 200" https://localhost:8493/large
    holds "all of that file" cmp /run/body /srv/large
done
holds "a file that is not in memory" cold
holds "a user of the API, after kill -9" killed
holds "doctor" linerate doctor
for tests in /tests/*; do
    holds "unit tests of ${tests##*/}" tests "${tests##*/}"
done
[ -z "$failed" ] || cat /run/*.log
if [ "$failed" ]; then echo "all of it: DOES NOT HOLD"; else echo "all of it: holds"; fi
poweroff -f
