//! Directories as ZIP and tar.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use crate::auth::hash;
use crate::client::Answer;
use crate::place::{Place, Server, pattern, until};
use crate::secure::secure;
use crate::versions::{self, ALL, knows_head};

const RULES: &str = "[[rule]]\npath = '/d*'\narchive = ['zip', 'tar.zst']\nlisting = true\n";

/// The content of an archive: by name, the bytes of files, and nothing for directories.
pub fn unpack(format: &str, body: &[u8]) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    if format == "zip" {
        let mut archive = zip::ZipArchive::new(Cursor::new(body)).expect("a ZIP");
        for number in 0..archive.len() {
            let mut entry = archive.by_index(number).expect("an entry");
            let name = entry.name().expect("a name").to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes, with their checksum");
            found.insert(name, entry.is_file().then_some(bytes));
        }
        return found;
    }
    let plain = zstd::stream::decode_all(body).expect("zstd");
    let mut archive = tar::Archive::new(&plain[..]);
    for entry in archive.entries().expect("a tar") {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").to_str().expect("UTF-8").to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("its bytes");
        found.insert(name, entry.header().entry_type().is_file().then_some(bytes));
    }
    found
}

fn names(found: &BTreeMap<String, Option<Vec<u8>>>) -> Vec<&str> {
    found.keys().map(String::as_str).collect()
}

fn served(place: &Place, rules: &str, flags: &[&str]) -> Server {
    let path = place.beside("rules.toml");
    fs::write(&path, rules).expect("written");
    secure(place, &[&["--rules", path.to_str().expect("UTF-8")], flags].concat())
}

#[test]
fn an_archive_has_all_that_is_below_a_directory_by_every_version() {
    let place = Place::new();
    let long = format!("d/{}/{}", "l".repeat(120), "m".repeat(120));
    for (name, bytes) in [
        ("d/a.txt", b"text\n".repeat(50_000)),
        ("d/empty", Vec::new()),
        ("d/b/large.bin", pattern(3_000_001)),
        (&long, pattern(70_000)),
    ] {
        place.file(name, bytes);
    }
    fs::create_dir(place.root("d/nothing")).expect("a directory");
    let server = served(&place, RULES, &[]);
    for format in ["zip", "tar.zst"] {
        for version in ALL {
            let answer =
                versions::get(&server, version, &format!("/d/?archive={format}"), &[("range", "bytes=0-1")]);
            assert_eq!(answer.status, 200, "{format} {version}");
            let kind = if format == "zip" { "application/zip" } else { "application/zstd" };
            assert_eq!(answer.field("content-type").as_deref(), Some(kind));
            assert_eq!(answer.field("accept-ranges").as_deref(), Some("none"));
            let disposition = answer.field("content-disposition").expect("a name");
            assert!(
                disposition.starts_with(&format!("attachment; filename=\"d.{format}\"; ")),
                "{disposition}"
            );
            let found = unpack(format, &answer.body);
            let mut expected: BTreeMap<String, Option<Vec<u8>>> = BTreeMap::new();
            for file in ["d/a.txt", "d/empty", "d/b/large.bin", &long] {
                expected.insert(file.to_owned(), Some(fs::read(place.root(file)).expect("a file")));
            }
            for directory in ["d/", "d/b/", "d/nothing/", &format!("d/{}/", "l".repeat(120))] {
                expected.insert(directory.to_owned(), None);
            }
            assert!(found == expected, "{format} {version}: {:?}", names(&found));
            if knows_head(version) {
                let head = versions::ask(&server, version, "HEAD", &format!("/d/?archive={format}"), &[]);
                assert_eq!((head.status, head.body.len()), (200, 0), "{format} {version}");
                assert_eq!(head.field("content-type").as_deref(), Some(kind));
            }
        }
    }
    let mut client = server.connect();
    // With HTTP/1.0, the connection's end is the end.
    client.send("GET /d/?archive=zip HTTP/1.0\r\nHost: h\r\n\r\n");
    let (all, well) = client.rest();
    let at = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    assert!(well && unpack("zip", &all[at..]).len() == 8);
}

#[test]
fn archives_are_had_where_rules_allow_them_and_of_no_more_than_they_allow() {
    let place = Place::new();
    for number in 0..20 {
        place.file(&format!("d/few/{number}"), "12345");
        place.file(&format!("other/{number}"), "1");
    }
    place.file("d/indexed/index.html", "index");
    place.file("d/indexed/more", "more");
    let rules = format!(
        "{RULES}[[rule]]\npath = '/d/bytes*'\narchive-max-bytes = 3\n[[rule]]\npath = '/d/few*'\narchive-max-entries = 21\n\
         [[rule]]\npath = '/d/fewer*'\narchive-max-entries = 20\n[[rule]]\npath = '/d/zip*'\narchive = ['zip']\n\
         [[rule]]\npath = '/d/no*'\narchive = []\n"
    );
    place.file("d/bytes/a", "12");
    place.file("d/bytes/b", "34");
    for number in 0..20 {
        place.file(&format!("d/fewer/{number}"), "");
    }
    place.file("d/zip/a", "");
    place.file("d/no/a", "");
    let server = served(&place, &rules, &[]);
    let mut client = server.connect();
    for (target, status) in [
        ("/d/few/?archive=zip", 200),
        ("/d/fewer/?archive=zip", 403),
        ("/d/bytes/?archive=tar.zst", 403),
        ("/d/indexed/?archive=zip", 200),
        ("/d/zip/?archive=zip", 200),
        ("/d/zip/?archive=tar.zst", 400),
        ("/d/few/?archive=rar", 400),
        ("/d/few/?archive=zip&sort=name", 400),
        // A listing has no such parameter, and a file has none.
        ("/d/no/?archive=zip", 400),
        ("/other/?archive=zip", 404),
        ("/d/few/1?archive=zip", 200),
        ("/d/few?archive=zip", 301),
        ("/d/missing/?archive=zip", 404),
    ] {
        let answer = client.get(target, "");
        assert_eq!(answer.status, status, "{target}: {}", String::from_utf8_lossy(&answer.body));
    }
    assert_eq!(
        names(&unpack("zip", &client.get("/d/indexed/?archive=zip", "").body)),
        ["indexed/", "indexed/index.html", "indexed/more"]
    );
    assert_eq!(client.get("/d/few/1?archive=zip", "").text(), "12345", "a file ignores its query");
    assert_eq!(
        client.get("/d/few?archive=zip", "").field("location").as_deref(),
        Some("/d/few/?archive=zip")
    );
    assert_eq!(client.ask("OPTIONS", "/d/few/?archive=zip", "").status, 204);
    assert_eq!(client.ask("POST", "/d/few/?archive=zip", "").status, 405);
}

#[test]
fn an_archive_has_nothing_that_could_not_be_had_alone() {
    let place = Place::new();
    for name in
        ["d/open", "d/.hidden", "d/.git/config", "d/private/secret", "d/signed", "d/moved", "d/sub/.x"]
    {
        place.file(name, name);
    }
    fs::write(place.beside("outside"), "outside").expect("a file");
    symlink("open", place.root("d/inside")).expect("a link");
    symlink("../../outside", place.root("d/leads-out")).expect("a link");
    symlink(".", place.root("d/loop")).expect("a link");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.root("d/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("a FIFO");
    fs::write(place.beside("key"), "k".repeat(32)).expect("a key");
    let rules = format!(
        "[realm.staff]\nusers = {{ a = '{}' }}\n[key.k]\nfile = 'key'\n{RULES}\
         [[rule]]\npath = '/d/private/*'\nauth = 'staff'\n[[rule]]\npath = '/d/signed'\nsigned = 'k'\n\
         [[rule]]\npath = '/d/moved'\nredirect = '/elsewhere'\n",
        hash("one")
    );
    let server = served(&place, &rules, &[]);
    for format in ["zip", "tar.zst"] {
        let answer = server.connect().get(&format!("/d/?archive={format}"), "");
        let found = unpack(format, &answer.body);
        assert_eq!(names(&found), ["d/", "d/inside", "d/open", "d/sub/"], "{format}");
        assert_eq!(found["d/inside"].as_deref(), Some(&b"d/open"[..]));
    }
    // Whoever has a directory's password may have what is in it.
    let refused = server.connect().get("/d/private/?archive=zip", "");
    assert_eq!(refused.status, 401);
    let password = format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode("a:one"));
    let answer = server.connect().get("/d/private/?archive=zip", &password);
    assert_eq!(names(&unpack("zip", &answer.body)), ["private/", "private/secret"]);
    assert_eq!(answer.field("cache-control").as_deref(), Some("private"));
    let hidden = served(&place, RULES, &["--hidden", "--symlinks", "never"]);
    let found = unpack("zip", &hidden.connect().get("/d/sub/?archive=zip", "").body);
    assert_eq!(names(&found), ["sub/", "sub/.x"]);
    let found = unpack("zip", &hidden.connect().get("/d/?archive=zip", "").body);
    assert!(!found.contains_key("d/inside") && found.contains_key("d/.git/config"), "{:?}", names(&found));
}

#[test]
fn names_lead_down_whoever_unpacks_them() {
    let place = Place::new();
    fs::create_dir(place.root("d")).expect("a directory");
    let raw: [&[u8]; 6] = [b"x\\..\\..\\up", b"a\nb", b"\xff", b"a%5C", b"a\\", "ü".as_bytes()];
    for name in raw {
        fs::write(place.root("d").join(std::ffi::OsStr::from_bytes(name)), "x").expect("a file");
    }
    let server = served(&place, RULES, &[]);
    for format in ["zip", "tar.zst"] {
        let found = unpack(format, &server.connect().get(&format!("/d/?archive={format}"), "").body);
        assert_eq!(
            names(&found),
            ["d/", "d/%FF", "d/a%0Ab", "d/a%255C", "d/a%5C", "d/x%5C..%5C..%5Cup", "d/ü"],
            "{format}"
        );
    }
}

/// The result of a request where `change` is made after the first part of the answer has arrived, before the rest is
/// read.
fn changed(server: &Server, change: impl FnOnce()) -> (Vec<u8>, bool) {
    let stream =
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("an option");
    connect(&stream, &server.address()).expect("it listens");
    let mut stream = std::net::TcpStream::from(stream);
    stream
        .write_all(b"GET /d/?archive=tar.zst HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut all = vec![0; 12];
    stream.read_exact(&mut all).expect("a status");
    assert_eq!(all, b"HTTP/1.1 200");
    change();
    let well = stream.read_to_end(&mut all).is_ok();
    (all, well)
}

#[test]
fn a_file_that_changes_on_the_way_ends_the_archive_as_a_broken_one() {
    let place = Place::new();
    // Content that can't be compressed, and more of it than buffers on the way hold.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(24 << 20)
    .collect();
    place.file("d/a", &noise);
    place.file("d/z", "the last");
    let server = served(&place, RULES, &[]);
    let (all, well) = changed(&server, || ());
    assert!(well && all.ends_with(b"\r\n0\r\n\r\n"), "nothing has changed");
    for change in [
        &(|| fs::write(place.root("d/z"), "is another").expect("written")) as &dyn Fn(),
        &|| fs::remove_file(place.root("d/z")).expect("removed"),
        &|| {
            fs::File::options()
                .write(true)
                .open(place.root("d/a"))
                .expect("a file")
                .set_len(100)
                .expect("shorter")
        },
    ] {
        let (all, well) = changed(&server, change);
        assert!(!well && !all.ends_with(b"\r\n0\r\n\r\n"), "{} bytes, {well}", all.len());
        place.file("d/a", &noise);
        place.file("d/z", "the last");
    }
}

#[test]
fn archives_nobody_takes_are_bounded_and_cut() {
    let place = Place::new();
    place.file("d/a", pattern(64 << 20));
    let slow = |server: &Server| {
        let stream = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .expect("a socket");
        sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("an option");
        connect(&stream, &server.address()).expect("it listens");
        let mut stream = std::net::TcpStream::from(stream);
        stream.write_all(b"GET /d/?archive=zip HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("a status");
        assert_eq!(&head, b"HTTP/1.1 200");
        stream
    };
    let ask = |server: &Server| -> Answer { versions::get(server, "--http2", "/d/?archive=zip", &[]) };
    let rule = "[[rule]]\npath = '*'\narchive = ['zip']\n";
    // Nobody is cut here, however long the crowd takes to come.
    let server = served(&place, rule, &["--write-timeout", "600"]);
    let crowd: Vec<_> = (0..16).map(|_| slow(&server)).collect();
    let refused = ask(&server);
    assert_eq!((refused.status, refused.field("retry-after").as_deref()), (503, Some("1")));
    assert_eq!(server.connect().get("/d/a", "range: bytes=0-0\r\n").status, 206, "files go on");
    drop(crowd);
    until("room for another", || ask(&server).status == 200);

    let server = served(&place, rule, &["--write-timeout", "5"]);
    let crowd: Vec<_> = (0..16).map(|_| slow(&server)).collect();
    until("the end of all of them", || server.metric("linerate_files_listener_timed_out_total") >= 16.0);
    for mut stream in crowd {
        // A reset: what arrived isn't complete.
        assert!(std::io::copy(&mut stream, &mut std::io::sink()).is_err());
    }
    until("room for another", || ask(&server).status == 200);
}
