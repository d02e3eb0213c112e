//! Nothing above the root is ever sent.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::place::{Place, until};

#[test]
fn no_encoding_of_a_path_leads_out() {
    let place = Place::new();
    place.file("a/b", "inside");
    fs::write(place.beside("secret"), "secret").unwrap();
    let server = place.serve(&["--hidden"]);
    let ups = [
        "..",
        "%2e%2e",
        "%2E%2e",
        ".%2e",
        "%2e.",
        "%252e%252e",
        "..%00",
        "%c0%ae%c0%ae",
        "%uff0e%uff0e",
        "..;",
        "..\\",
        "..%5c",
        "%2e%2e%2f",
        "..%2f",
        "..%c0%af",
        "\u{2024}\u{2024}",
        "%ff%fe",
        "...",
        "..%20",
    ];
    for up in ups {
        for start in ["/", "/a/", "//", "/a/./", "/./"] {
            for depth in 1..4 {
                let path = format!("{start}{}", format!("{up}/").repeat(depth));
                for name in ["secret", "etc/passwd", "root/a/b", "proc/self/environ"] {
                    let answer = server.get(&format!("{path}{name}"), "");
                    assert!(matches!(answer.status, 400 | 404), "{path}{name}: {answer:?}");
                }
            }
        }
    }
    server.assert_alive("/a/b");
}

#[test]
fn links_that_lead_out_are_not_followed() {
    let place = Place::new();
    place.file("a", "inside");
    fs::create_dir(place.beside("out")).unwrap();
    fs::write(place.beside("out/secret"), "secret").unwrap();
    symlink("../out/secret", place.root("relative")).unwrap();
    symlink(place.beside("out/secret"), place.root("absolute")).unwrap();
    symlink("../out", place.root("directory")).unwrap();
    symlink("/proc/self/root/etc/passwd", place.root("magic")).unwrap();
    symlink("loop", place.root("loop")).unwrap();
    symlink("a", place.root("inside")).unwrap();
    let server = place.serve(&["--listing"]);
    for path in ["/relative", "/absolute", "/directory/secret", "/directory/", "/magic", "/loop"] {
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    assert_eq!(server.get("/inside", "").text(), "inside");
    assert!(!server.get("/", "").text().contains("relative"), "nor listed");
    let strict = place.serve(&["--symlinks", "never"]);
    assert_eq!(strict.get("/inside", "").status, 404);
}

#[test]
fn a_directory_that_becomes_a_link_while_requests_run_leads_nowhere() {
    let place = Place::new();
    place.file("d/file", "inside");
    fs::create_dir(place.beside("out")).unwrap();
    fs::write(place.beside("out/file"), "secret").unwrap();
    symlink("../out", place.root("trap")).unwrap();
    let server = place.serve(&["--revalidate", "0"]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(place.root("d"), place.root("aside")).unwrap();
                fs::rename(place.root("trap"), place.root("d")).unwrap();
                fs::rename(place.root("d"), place.root("trap")).unwrap();
                fs::rename(place.root("aside"), place.root("d")).unwrap();
            }
        });
        let mut client = server.connect();
        let (mut found, mut missing) = (0, 0);
        until("both outcomes of the race, many times", || {
            for _ in 0..100 {
                let answer = client.get("/d/file", "");
                match answer.status {
                    200 => {
                        assert_eq!(answer.text(), "inside");
                        found += 1;
                    }
                    404 => missing += 1,
                    _ => panic!("{answer:?}"),
                }
            }
            found > 1000 && missing > 100
        });
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_no_file_is_not_opened() {
    let place = Place::new();
    place.file("a", "inside");
    mknodat(CWD, place.root("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.root("socket")).unwrap();
    // Only root may create devices; /dev/zero would never end.
    let device =
        mknodat(CWD, place.root("zero"), FileType::CharacterDevice, Mode::RWXU, rustix::fs::makedev(1, 5));
    let server = place.serve(&[]);
    for path in ["/fifo", "/socket", "/zero", "/fifo/", "/a/"] {
        if path == "/zero" && device.is_err() {
            continue;
        }
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    server.assert_alive("/a");
}

#[test]
fn names_with_a_dot_in_front_are_not_served() {
    let place = Place::new();
    for name in [".git/config", ".env", "a/.htpasswd", ".well-known/acme"] {
        place.file(name, "x");
    }
    let server = place.serve(&["--listing"]);
    for path in ["/.git/config", "/.env", "/%2eenv", "/a/.htpasswd", "/a//.htpasswd"] {
        assert_eq!(server.get(path, "").status, 404, "{path}");
    }
    assert_eq!(server.get("/.well-known/acme", "").status, 200);
    assert!(!server.get("/", "").text().contains("env"));
}

#[test]
fn a_file_that_is_replaced_is_seen_at_once() {
    let place = Place::new();
    let path = place.file("a", "old");
    crate::place::settle(&path);
    // An hour: only the kernel's notification can tell.
    let server = place.serve(&["--revalidate", "3600000"]);
    let mut client = server.connect();
    for text in ["old", "new", "newer", "x"] {
        fs::write(place.beside("next"), text).unwrap();
        fs::rename(place.beside("next"), &path).unwrap();
        until("the new text", || client.get("/a", "").text() == text);
    }
    fs::write(&path, "in place").unwrap();
    until("what was written in place", || client.get("/a", "").text() == "in place");
    fs::remove_file(&path).unwrap();
    until("its end", || client.get("/a", "").status == 404);
}
