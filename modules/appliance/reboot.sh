# reboot.sh BOOTED BUILT TRIED: reboots if the system that was BUILT isn't the one that is BOOTED.
#
# Run after an update. A system that was already booted into, which the file TRIED records, has failed its trial: it
# isn't tried again every night.
set -euo pipefail
booted=$(readlink -f "$1")
built=$(readlink -f "$2")
if [[ $built == "$booted" ]]; then
    echo "nothing has changed"
elif [[ -e $3 && $(<"$3") == "$built" ]]; then
    echo "$built has failed its trial, and is not tried again"
else
    echo "booting $built"
    printf '%s\n' "$built" >"$3.new"
    mv "$3.new" "$3"
    sync -f "$3"
    shutdown -r +1
fi
