# userborn CONFIGURATION DIRECTORY: writes group, passwd and shadow below DIRECTORY, as NixOS's program with that name
# does for declared users: existing ones keep their number and password, new ones get the first free number, and those
# no longer declared can't log in.
configuration=$1 directory=$2
for name in group passwd shadow; do
    [[ -e $directory/$name ]] || : >"$directory/$name"
done

# All three by one call, each file's lines after its name: jq takes longer to start here than for its work.
# shellcheck disable=SC2016 # jq's variables
written=$(jq --raw-output --rawfile group "$directory/group" --rawfile passwd "$directory/passwd" \
    --rawfile shadow "$directory/shadow" '
def rows: split("\n") | map(select(. != "") | split(":"));
def by_name(value): map({(.[0]): value}) | add // {};
# The numbers of all wanted names: given, as before, or the first free one between these two, counting downwards for
# system users as Debian and NixOS do.
def numbered($wanted; $before; $number):
    {taken: ([$before[] | {(tostring): true}] | add // {}), of: {}}
    | reduce ($wanted | sort_by(.[$number] == null)[]) as $one (.;
        .taken as $taken
        | ($one[$number] // $before[$one.name] // first(
            (if $one.isNormal then range(1000; 29999) else range(999; 399; -1) end)
            | select($taken[tostring] | not))) as $n
        | .taken[$n | tostring] = true | .of[$one.name] = $n)
    | .of;
($group | rows) as $groups
| ($passwd | rows) as $users
| ($shadow | rows) as $secrets
| ($secrets | by_name(.[1])) as $passwords
| numbered(.groups; $groups | by_name(.[2] | tonumber); "gid") as $gids
| numbered(.users; $users | by_name(.[2] | tonumber); "uid") as $uids
| (.users | map({(.name): true}) | add // {}) as $declared
| "group", (.groups[] | "\(.name):x:\($gids[.name]):\(.members | join(","))"),
  "passwd", (.users[] | "\(.name):x:\($uids[.name]):\($gids[.group]):\(.description // ""):\(.home):\(.shell)"),
    ($users[] | select($declared[.[0]] | not) | join(":")),
  "shadow", (.users[]
      | "\(.name):\(.hashedPassword // $passwords[.name] // .initialHashedPassword // "!*"):1::::::"),
    ($secrets[] | select($declared[.[0]] | not) | .[1] = "!*" | join(":"))
' "$configuration")

umask 077
while IFS= read -r line; do
    # Every other line has a colon.
    if [[ $line != *:* ]]; then
        name=$line
        : >"$directory/.$name.new"
    else
        echo "$line" >>"$directory/.$name.new"
    fi
done <<<"$written"
# Each file is replaced atomically.
chmod 644 "$directory"/.{group,passwd}.new
chmod 000 "$directory/.shadow.new"
for name in group passwd shadow; do
    mv "$directory/.$name.new" "$directory/$name"
done
