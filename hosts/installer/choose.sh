# choose.sh FILES MEDIUM: prints the disk to install onto, or says why there is none.
#
# In the directory FILES, `disk` names it if the machine has several, and without `erase`, a disk that holds anything is
# left alone. MEDIUM is the disk that the installer runs from. A disk is never chosen if anything on it is in use, or if
# it belongs to a volume of several disks, since what is on it may be half of something else.
set -euo pipefail
files=$1
medium=$2
least=$((8 << 30))

fail() {
    echo "error: $*" >&2
    exit 1
}

# describe DEVICE...: prints the lines of lsblk for it and for what is made of it.
describe() {
    lsblk --noheadings --pairs --paths --bytes --output NAME,TYPE,RM,RO,SIZE,FSTYPE,MOUNTPOINT "$@"
}

# parse LINE: sets name, type, removable, readonly, size, filesystem and mountpoint.
parse() {
    local value='"([^"]*)"'
    [[ $1 =~ ^NAME=$value\ TYPE=$value\ RM=$value\ RO=$value\ SIZE=$value\ FSTYPE=$value\ MOUNTPOINT=$value$ ]] ||
        fail "lsblk says what this does not know: $1"
    name=${BASH_REMATCH[1]} type=${BASH_REMATCH[2]} removable=${BASH_REMATCH[3]} readonly=${BASH_REMATCH[4]}
    size=${BASH_REMATCH[5]} filesystem=${BASH_REMATCH[6]} mountpoint=${BASH_REMATCH[7]}
}

# usable DISK: fails with an error if the disk, or what is on it, has to be kept.
usable() {
    local line lines
    mapfile -t lines < <(describe "$1")
    parse "${lines[0]}"
    [[ $type == disk ]] || fail "$1 is no whole disk but a $type"
    [[ $readonly == 0 ]] || fail "$1 is read-only"
    [[ $size -ge $least ]] || fail "$1 has $((size >> 20)) MiB, and 8192 are needed"
    for line in "${lines[@]}"; do
        parse "$line"
        [[ -z $mountpoint ]] || fail "$1 is in use: $name is mounted at $mountpoint"
        [[ $type == disk || $type == part ]] || fail "$1 is in use: $name ($type) is made of it"
        case $filesystem in
            *_member | bcache | drbd | ceph_bluestore)
                fail "$name is part of something larger ($filesystem): take it out of that, and wipe it, by hand"
                ;;
        esac
    done
}

if [[ -s $files/disk ]]; then
    named=$(tr -d '[:space:]' <"$files/disk")
    disk=$(realpath --canonicalize-existing -- "$named" 2>/dev/null) || fail "there is no $named, which the file disk names"
    [[ $disk != "$medium" ]] || fail "the file disk names the installer itself"
else
    disks=()
    while read -r line; do
        parse "$line"
        if [[ $type == disk && $name != "$medium" && $removable == 0 && $readonly == 0 && $size -ge $least ]]; then
            disks+=("$name")
        fi
    done < <(describe --nodeps)
    [[ ${#disks[@]} -eq 1 ]] || fail "this machine has ${#disks[@]} disks (${disks[*]}): name one in the file disk"
    disk=${disks[0]}
fi
usable "$disk"
held=$(wipefs --noheadings "$disk")
[[ -e $files/erase || -z $held ]] || fail "$disk holds something: with a file erase beside authorized_keys, it goes"
echo "$disk"
