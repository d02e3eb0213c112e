#!/usr/bin/env bash
# keys.sh DIRECTORY: makes keys for tests of images there, unless they exist: for signing updates (gnupg, update.gpg)
# and for Secure Boot (db, with PK, KEK and db.auth to be enrolled), others for each (other), a key that signs the
# expected PCR 11 (pcr), and a server's certificate (server) with its authority (ca). They belong to nobody: they are
# made on this machine, and are only in a test's images.
set -euo pipefail
[[ ! -e $1/complete ]] || exit 0
rm -rf "$1"
mkdir -p "$1"
cd "$1"

# signer DIRECTORY: makes a GnuPG home directory with a key in it.
signer() {
    mkdir -m 700 "$1"
    gpg --homedir "$1" --batch --quiet --passphrase '' --quick-generate-key "$1 <test@example.com>" ed25519 sign never
    gpg --homedir "$1" --batch --export >"$1.gpg"
    gpgconf --homedir "$1" --kill all
    rm -f "$1"/S.*
}
signer gnupg
mv gnupg.gpg update.gpg
mkdir other
signer other/gnupg

for name in db other/db; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 7300 -subj "/CN=linerate's tests, ${name%/*}" -keyout "$name.key" -out "$name.crt"
done
# One certificate for all of them, as bootctl does too.
attributes=NON_VOLATILE,BOOTSERVICE_ACCESS,RUNTIME_ACCESS,TIME_BASED_AUTHENTICATED_WRITE_ACCESS
openssl x509 -in db.crt -outform DER -out db.der
for name in PK KEK db; do
    sbsiglist --owner 6c696e65-7261-7465-7465-737473000000 --type x509 --output "$name.esl" db.der
    # Without `--attr` it says that the certificate is to be added to others, which firmware never accepts for PK.
    sbvarsign --attr "$attributes" --key db.key --cert db.crt --output "$name.auth" "$name" "$name.esl"
    rm "$name.esl"
done
rm db.der
openssl genrsa -out pcr.key 2048
openssl rsa -in pcr.key -pubout -out pcr.pub
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 7300 -subj "/CN=linerate's tests' CA" \
    -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=updates.example -keyout server.key \
    -out server.csr
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 7300 -out server.pem \
    -extfile <(echo "subjectAltName=DNS:updates.example")
touch complete
