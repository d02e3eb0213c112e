# reboot.sh BOOTED BUILT TRIED: boots anew where the system that was BUILT is another one than that which is BOOTED.
#
# Run after an update. One that was booted for already, which the file TRIED says, has failed its trial: it is not tried
# again every night.
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
