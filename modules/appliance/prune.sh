# prune.sh PROFILE KEEP SYSTEM...: removes the generations of PROFILE but the newest KEEP, the current one and those
# that are a SYSTEM, and then everything that nothing needs any longer.
set -euo pipefail
shopt -s extglob nullglob
profile=$1
keep=$2
shift 2

numbers=()
for link in "$profile"-+([0-9])-link; do
    number=${link#"$profile"-}
    numbers+=("${number%-link}")
done
mapfile -t numbers < <(printf '%s\n' "${numbers[@]}" | sort -rn)

for number in "${numbers[@]:keep}"; do
    link=$profile-$number-link
    for system in "$profile" "$@"; do
        [[ ! $link -ef $system ]] || continue 2
    done
    echo "removing generation $number"
    rm "$link"
done
# Quietly, or it would name each path.
nix-store --gc --quiet
