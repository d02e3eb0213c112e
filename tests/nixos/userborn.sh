# userborn CONFIGURATION DIRECTORY: writes group, passwd and shadow below DIRECTORY, as NixOS's program with that name
# does for declared users: existing ones keep their number and password, new ones get the first free number, and those
# no longer declared can't log in.
configuration=$1 directory=$2
for name in group passwd shadow; do
    [[ -e $directory/$name ]] || : >"$directory/$name"
done

# put MODE NAME: replaces the file with standard input, atomically.
put() {
    umask 077
    cat >"$directory/.$2.new"
    chmod "$1" "$directory/.$2.new"
    mv "$directory/.$2.new" "$directory/$2"
}

# shellcheck disable=SC2016 # jq's variables
common='
def rows: split("\n") | map(select(. != "") | split(":"));
# The numbers of all wanted names: given, as before, or the first free one between these two, counting downwards for
# system users as Debian and NixOS do.
def numbered($wanted; $before; $number):
    reduce ($wanted | sort_by(.[$number] == null)[]) as $one ({};
        . as $taken
        | ($one[$number] // $before[$one.name] // (
            [(if $one.isNormal then range(1000; 29999) else range(999; 399; -1) end)
             | select(. as $n | ([$taken[], $before[]] | index($n)) == null)][0])) as $n
        | .[$one.name] = $n);
($group | rows) as $groups
| ($passwd | rows) as $users
| ($shadow | rows | map({(.[0]): .}) | add // {}) as $secrets
| ($groups | map({(.[0]): (.[2] | tonumber)}) | add // {}) as $gidsBefore
| ($users | map({(.[0]): (.[2] | tonumber)}) | add // {}) as $uidsBefore
| numbered(.groups; $gidsBefore; "gid") as $gids
| numbered(.users; $uidsBefore; "uid") as $uids
'
write() {
    jq --raw-output --rawfile group "$directory/group" --rawfile passwd "$directory/passwd" \
        --rawfile shadow "$directory/shadow" "$common | $1" "$configuration"
}

# shellcheck disable=SC2016
groups=$(write '.groups[] | "\(.name):x:\($gids[.name]):\(.members | join(","))"')
# shellcheck disable=SC2016
users=$(write '(.users[] | "\(.name):x:\($uids[.name]):\($gids[.group]):\(.description // ""):\(.home):\(.shell)"),
    (.users | map(.name)) as $declared
    | $users[] | select(.[0] as $name | $declared | index($name) | not) | join(":")')
# shellcheck disable=SC2016
secrets=$(write '(.users[]
      | "\(.name):\(.hashedPassword // ($secrets[.name] // [])[1] // .initialHashedPassword // "!*"):1::::::"),
    (.users | map(.name)) as $declared
    | $secrets[] | select(.[0] as $name | $declared | index($name) | not) | .[1] = "!*" | join(":")')
put 644 group <<<"$groups"
put 644 passwd <<<"$users"
put 000 shadow <<<"$secrets"
