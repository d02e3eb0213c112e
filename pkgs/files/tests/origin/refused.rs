//! What doesn't work with an origin is refused at the start, in one line.

use std::fs;
use std::process::{Command, Stdio};

use crate::place::{BINARY, Place};

#[test]
fn what_does_not_go_with_an_origin_is_refused_in_one_line() {
    let place = Place::new();
    let cache = place.beside("cache");
    let cache = cache.to_str().expect("a path of text");
    let (listing, prefetch) = (place.beside("listing.toml"), place.beside("prefetch.toml"));
    fs::write(&listing, "[[rule]]\npath = \"/pub/*\"\nlisting = true\n").expect("room");
    fs::write(place.root("list"), "a\nb\n").expect("room");
    fs::write(&prefetch, "[[rule]]\npath = \"/pub/*\"\nprefetch = \"list\"\n").expect("room");
    let root = place.root("");
    let base = ["serve", "--listen", "127.0.0.1:0", "--root", root.to_str().expect("a path of text")];
    let origin = ["--origin", "s3://site", "--origin-cache", cache];
    let with =
        |more: &[&str]| [&origin[..], more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let archive = place.beside("archive.toml");
    fs::write(&archive, "[[rule]]\npath = \"/pub/*\"\narchive = [\"zip\"]\n").expect("room");
    let file = place.beside("file");
    fs::write(&file, "aws_access_key_id = AK\nsecret = hush\n").expect("room");
    let file = file.to_str().expect("a path of text");
    for (flags, said) in [
        (vec!["--origin".to_owned(), "s3://site".to_owned()], "--origin-cache"),
        (vec!["--origin-cache".to_owned(), cache.to_owned()], "--origin"),
        (
            vec![
                "--origin".to_owned(),
                "https://site".to_owned(),
                "--origin-cache".to_owned(),
                cache.to_owned(),
            ],
            "s3://",
        ),
        (with(&["--listing"]), "listing"),
        (with(&["--symlinks", "anywhere"]), "symlinks"),
        (with(&["--rules", listing.to_str().expect("a path of text")]), "listing"),
        (with(&["--rules", prefetch.to_str().expect("a path of text")]), "prefetch"),
        (with(&["--rules", archive.to_str().expect("a path of text")]), "archive"),
        (with(&["--origin-endpoint", "http://127.0.0.1:1"]), "https://"),
        (with(&["--origin-endpoint", "https://u:p@h"]), "endpoint"),
        (with(&["--origin-cache-bytes", "1000"]), "room for at least"),
        (with(&["--origin-credentials", file]), "aws_secret_access_key"),
        (with(&["--origin-ca", "/nonexistent"]), "/nonexistent"),
        (with(&["--origin-head-timeout", "0"]), "origin-head-timeout"),
    ] {
        let output =
            Command::new(BINARY).args(base).args(&flags).stdin(Stdio::null()).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {text}");
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("error: ") && text.contains(said), "{flags:?}: {text}");
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(
        fs::read_dir(cache)
            .is_ok_and(|mut found| found.all(|entry| entry.is_ok_and(|entry| entry.file_name() == "lock")))
            || !fs::exists(cache).unwrap()
    );
}
