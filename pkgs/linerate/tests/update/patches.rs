//! Versions made from patches.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use sha2::{Digest, Sha256};
use testkit::noise;

use crate::machine::{Box, NOTHING, THREE, script, set};

/// Stands for systemd-pull: checks what it is told to check, as it does.
const PULL: &str = r#"
verify=${3#--verify=} most=${4#--size-max=} from=HERE/served/${5##*/} to=$6
[ "$1 $2" = "raw --direct" ] && [ "${5%/*}" = https://updates.example ] || exit 2
echo "${5##*/}" >>HERE/pulled
[ -e "$from" ] || exit 1
[ "$(stat -c %s "$from")" -le "$most" ] || exit 1
case $verify in
no) ;;
signature) [ "$(cat "$from.gpg")" = good ] || exit 1 ;;
*) [ "$(sha256sum <"$from")" = "$verify  -" ] || exit 1 ;;
esac
cp "$from" "$to"
"#;

/// Stands for systemd-sysupdate with the mirror as its source: keeps what is there.
const SYSUPDATE: &str = r#"
echo "$*" >>HERE/asked
case $1 in
check-new | --json=short) echo '{"available":"3"}' ;;
--definitions=HERE/definitions) [ "$2 $3" = "update 3" ] && cp -r HERE/mirror HERE/written ;;
*) touch HERE/EFI/Linux/box_$2+2-0.efi ;;
esac
"#;

fn patch(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(new.len() + 1024);
    zstd::zstd_safe::CCtx::create().compress_using_dict(&mut frame, new, old, 9).unwrap();
    [format!("linerate-patch 1 {} {}\n", old.len(), new.len()).as_bytes(), &frame].concat()
}

/// A box and a server.
struct Place {
    machine: Box,
    files: BTreeMap<String, Vec<u8>>,
    /// The files of version 3.
    version: BTreeMap<String, Vec<u8>>,
}

impl Place {
    /// Version 2 runs, and there are patches from it to version 3.
    fn new() -> Self {
        let machine = Box::new(&["box_2.efi"], THREE);
        let here = machine.path().to_owned();
        let replaced = |text: &str| text.replace("HERE", here.to_str().unwrap());
        script(&here.join("systemd-pull"), &replaced(PULL));
        script(&here.join("systemd-sysupdate"), &replaced(SYSUPDATE));
        fs::create_dir(here.join("served")).unwrap();
        machine.set("labels", serde_json::json!(["verity_@v", "store_@v"]));
        machine.set(
            "patches",
            serde_json::json!({
                "pull": here.join("systemd-pull"),
                "mirror": here.join("mirror"),
                "definitions": here.join("definitions"),
            }),
        );
        let (old_store, old_boot) = (noise(1, 400_000), noise(2, 50_000));
        let (mut store, mut boot) = (old_store.clone(), old_boot.clone());
        store[200_000..200_100].fill(b'n');
        boot[..10].fill(b'n');
        // A slot is larger than its content.
        fs::write(here.join("store_2"), [&old_store[..], &[0; 100_000]].concat()).unwrap();
        fs::write(here.join("EFI/Linux/box_2.efi"), &old_boot).unwrap();
        let version = BTreeMap::from([
            ("box_3.efi".to_owned(), boot.clone()),
            ("box_3_aa-bb.store".to_owned(), store.clone()),
            ("box_3_cc-dd.verity".to_owned(), noise(3, 5_000)),
        ]);
        let mut files = version.clone();
        files.insert("box_3-from-2.store.patch".to_owned(), patch(&old_store, &store));
        files.insert("box_3-from-2.efi.patch".to_owned(), patch(&old_boot, &boot));
        Self { machine, files, version }
    }

    /// Puts the files and their manifest on the server.
    fn serve(&self) {
        let served = self.machine.path().join("served");
        let mut sums = String::new();
        for (name, bytes) in &self.files {
            fs::write(served.join(name), bytes).unwrap();
            let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            sums += &format!("{digest}  {name}\n");
        }
        fs::write(served.join("SHA256SUMS"), sums).unwrap();
        fs::write(served.join("SHA256SUMS.gpg"), "good").unwrap();
    }

    /// Runs `apply`, and returns its exit code and its messages.
    fn apply(&self, arguments: &[&str]) -> (i32, String) {
        let output = self.machine.run(&[&["apply"][..], arguments].concat());
        let all = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (output.status.code().unwrap(), all)
    }

    fn pulled(&self) -> String {
        fs::read_to_string(self.machine.path().join("pulled")).unwrap_or_default()
    }

    /// What systemd-sysupdate found in the mirror, except manifest and signature.
    fn written(&self) -> Option<BTreeMap<String, Vec<u8>>> {
        let files = fs::read_dir(self.machine.path().join("written")).ok()?.map(|file| file.unwrap().path());
        let plain = |path: &PathBuf| !path.to_str().unwrap().contains("SHA256SUMS");
        Some(
            files
                .filter(plain)
                .map(|path| {
                    (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())
                })
                .collect(),
        )
    }

    fn mirrored(&self) -> usize {
        fs::read_dir(self.machine.path().join("mirror")).unwrap().count()
    }
}

#[test]
fn a_version_is_made_from_what_runs() {
    let place = Place::new();
    place.serve();
    let (status, said) = place.apply(&[]);
    assert_eq!(status, 0, "{said}");
    let written = place.written().expect("it is written");
    assert!(written == place.version, "{:?}", written.keys());
    let length = |end: &str| -> usize {
        place.files.iter().filter(|(name, _)| name.ends_with(end)).map(|(_, bytes)| bytes.len()).sum()
    };
    let downloaded = length(".patch") + length(".verity");
    let whole: usize = place.version.values().map(Vec::len).sum();
    assert!(downloaded * 4 < whole, "{downloaded} of {whole}");
    let told = format!(r#"{{"next":"3","patched":{{"downloaded":{downloaded},"whole":{whole}}}}}"#);
    assert!(said.contains(&told), "{said}");
    assert_eq!(place.mirrored(), 0, "nothing is left");
    assert!(place.machine.asked().ends_with("/definitions update 3\n"), "{}", place.machine.asked());
    // Whoever asks for the whole version gets it.
    fs::remove_dir_all(place.machine.path().join("written")).unwrap();
    let (status, said) = place.apply(&["3", "--whole"]);
    assert_eq!((status, said.trim()), (0, r#"{"next":"3"}"#));
    assert!(place.written().is_none());
}

#[test]
fn without_a_patch_for_it_a_file_is_downloaded_whole() {
    let mut place = Place::new();
    place.files.remove("box_3-from-2.efi.patch");
    place.serve();
    let (status, said) = place.apply(&[]);
    assert_eq!(status, 0, "{said}");
    assert!(place.written() == Some(place.version.clone()));
    assert!(place.pulled().contains("box_3.efi\n"));
    // Without one for the store, there is nothing to gain, and nothing to say.
    let mut place = Place::new();
    place.files.remove("box_3-from-2.store.patch");
    place.serve();
    assert_eq!(place.apply(&[]), (0, "{\"next\":\"3\"}\n".to_owned()));
    assert_eq!((place.pulled().as_str(), place.mirrored()), ("SHA256SUMS\n", 0));
    assert_eq!(place.machine.files(), set(&["box_2.efi", "box_3+2-0.efi"]));
}

/// A change of what is served, or of the box.
type Change = fn(&mut Place);

#[test]
fn the_whole_version_is_downloaded_where_patches_fail() {
    // A change before the manifest is written, one afterwards, and a part of the message.
    let cases: &[(Change, Change, &str)] = &[
        (
            |_| (),
            |place| fs::write(place.machine.path().join("served/SHA256SUMS.gpg"), "bad").unwrap(),
            "SHA256SUMS",
        ),
        // Somebody changed a patch, and cannot sign.
        (
            |_| (),
            |place| fs::write(place.machine.path().join("served/box_3-from-2.store.patch"), "x").unwrap(),
            "store.patch",
        ),
        // It was made for another file.
        (
            |place| {
                let store = &place.version["box_3_aa-bb.store"];
                let made = patch(&[&store[1_000..], &store[..1_000]].concat(), store);
                place.files.insert("box_3-from-2.store.patch".to_owned(), made);
            },
            |_| (),
            "another file than the manifest says",
        ),
        (
            |place| drop(place.files.insert("box_3-from-2.store.patch".to_owned(), b"none".to_vec())),
            |_| (),
            "not in a format",
        ),
        (|_| (), |place| fs::remove_file(place.machine.path().join("store_2")).unwrap(), "No such file"),
        (|_| (), |place| fs::remove_file(place.machine.path().join("systemd-pull")).unwrap(), "systemd-pull"),
        // systemd-sysupdate refuses what is in the mirror.
        (
            |_| (),
            |place| {
                let text = SYSUPDATE.replace("[ \"$2 $3\"", "false; [ \"$2 $3\"");
                let text = text
                    .replace("cp -r", "exit 1; cp -r")
                    .replace("HERE", place.machine.path().to_str().unwrap());
                script(&place.machine.path().join("systemd-sysupdate"), &text);
            },
            "systemd-sysupdate ended with",
        ),
        // A directory that cannot be written to.
        (|_| (), |place| symlink("/dev/null", place.machine.path().join("mirror")).unwrap(), "mirror"),
    ];
    for (before, after, why) in cases {
        let mut place = Place::new();
        before(&mut place);
        place.serve();
        after(&mut place);
        let (status, said) = place.apply(&[]);
        assert_eq!(status, 0, "{why}: {said}");
        assert!(said.contains("no patches are used: ") && said.contains(why), "{why}: {said}");
        assert!(said.contains(r#"{"next":"3"}"#) && place.written().is_none(), "{why}: {said}");
        assert_eq!(place.machine.files(), set(&["box_2.efi", "box_3+2-0.efi"]), "{why}");
        if place.machine.path().join("mirror").is_dir() {
            assert_eq!(place.mirrored(), 0, "{why}");
        }
    }
}

#[test]
fn a_download_of_patches_that_stalls_is_not_waited_for() {
    let place = Place::new();
    place.serve();
    script(&place.machine.path().join("systemd-pull"), "exec sleep 1000");
    // A version that is named is not looked for, which may take longer too.
    let (status, said) = place.apply(&["3", "--timeout", "1"]);
    assert_eq!(status, 1, "{said}");
    assert!(said.contains("took longer than 1 s"), "{said}");
    assert_eq!((place.machine.files(), place.mirrored()), (set(&["box_2.efi"]), 0));
}

#[test]
fn one_update_at_a_time_uses_the_mirror() {
    let place = Place::new();
    place.serve();
    let mirror = place.machine.path().join("mirror");
    fs::create_dir(&mirror).unwrap();
    fs::write(mirror.join("left"), "by a power cut").unwrap();
    let lock = fs::File::open(&mirror).unwrap();
    lock.lock().unwrap();
    let (status, said) = place.apply(&[]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("no patches are used: another update is running"), "{said}");
    assert_eq!(place.mirrored(), 1, "it is another's");
    drop(lock);
    let (status, said) = place.apply(&["3"]);
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("\"next\":\"3\""), "{said}");
}

#[test]
fn nothing_newer_asks_for_no_patches() {
    let place = Place::new();
    place.serve();
    let text = format!("case $* in *check-new*) {NOTHING} ;; *) exit 1 ;; esac");
    script(&place.machine.path().join("systemd-sysupdate"), &text);
    assert_eq!(place.apply(&[]).0, 0);
    assert_eq!(place.pulled(), "");
}
