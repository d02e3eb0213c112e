# userborn CONFIGURATION DIRECTORY: writes group, passwd and shadow below DIRECTORY, as NixOS's program of that name does
# for users that are declared: who is there keeps number and password, who is new gets the first that is free, and who is
# declared no more cannot log in.
configuration=$1 directory=$2
for name in group passwd shadow; do
    [[ -e $directory/$name ]] || : >"$directory/$name"
done

# put MODE NAME: replaces the file by standard input, at once.
put() {
    umask 077
    cat >"$directory/.$2.new"
    chmod "$1" "$directory/.$2.new"
    mv "$directory/.$2.new" "$directory/$2"
}

# shellcheck disable=SC2016 # jq's variables
common='
def rows: split("\n") | map(select(. != "") | split(":"));
# The numbers of all who are wanted, by name: given, as before, or the first that is free between these two, downwards
# for those of the system as Debian and NixOS count.
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
