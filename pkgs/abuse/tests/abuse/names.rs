//! Files with unusual names and dates.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abuse::client::Client;
use abuse::program::Program;

use crate::services::files;

/// Dates in seconds since 1970 that no HTTP date can express: the year 10000, and the first and last that a file can
/// have.
const DATES: [i64; 6] = [253_402_300_800, 253_402_300_799, 1 << 40, -62_135_596_801, -1 << 40, -1];

/// A time that may be before 1970.
fn at(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Gives a file this date. Returns whether its file system can store it.
fn dated(path: &Path, seconds: i64) -> bool {
    let file = File::create(path).expect("a file");
    let _ = file.set_len(10);
    file.set_modified(at(seconds)).is_ok()
        && file.metadata().and_then(|meta| meta.modified()).is_ok_and(|time| time == at(seconds))
}

#[test]
fn files_of_any_date_are_served() {
    // Not every file system can store the year 10000. tmpfs can.
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    for (number, seconds) in DATES.iter().enumerate() {
        assert!(
            dated(&directory.path().join(format!("f{number}")), *seconds),
            "no file can be dated {seconds}"
        );
    }
    let place = abuse::program::Place::new();
    let root = directory.path().to_str().expect("text");
    let mut flags: Vec<String> =
        ["--root", root, "--listen", "127.0.0.1:0", "--listing"].map(str::to_owned).to_vec();
    flags.extend(place.tls_flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let program = Program::serve("files", &place, &flags);
    let secure = abuse::secure::Secure::new(&place.path("cert.pem"), "http/1.1");
    let (plain, by_tls) = (program.listens("files", "http"), program.listens("secure", "https"));
    for (number, seconds) in DATES.iter().enumerate() {
        for fields in [
            "",
            "Range: bytes=0-1\r\n",
            "Range: bytes=0-1,4-5\r\n",
            "If-Modified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
            "If-Unmodified-Since: Fri, 31 Dec 9999 23:59:59 GMT\r\n",
            "If-Range: Fri, 31 Dec 9999 23:59:59 GMT\r\nRange: bytes=0-1\r\n",
            "If-Modified-Since: Sat, 01 Jan 10000 00:00:00 GMT\r\n",
            "If-None-Match: \"x\"\r\n",
        ] {
            let target = format!("/f{number}");
            let mut client = Client::connect(plain).expect("it listens");
            let answer = client.ask("GET", &target, fields, b"");
            let answer = program.answered(&format!("a file dated {seconds}, with {fields:?}"), answer);
            assert!(matches!(answer.status, 200 | 206 | 304 | 412), "{seconds} {fields:?}: {answer:?}");
            let mut client = Client::on(secure.connect(by_tls).expect("it listens")).expect("a connection");
            let same = client.ask("GET", &target, fields, b"");
            let same = program.answered(&format!("a file dated {seconds} by TLS, with {fields:?}"), same);
            assert_eq!(same.status, answer.status, "{seconds} {fields:?}");
        }
    }
    for listing in ["/", "/?format=json"] {
        let answer = abuse::program::ask(plain, "GET", listing, "", b"");
        let answer = program.answered("a listing of them", answer);
        assert_eq!(answer.status, 200, "{listing}: {answer:?}");
        assert!(
            DATES
                .iter()
                .enumerate()
                .all(|(number, _)| contains(&answer.body, format!("f{number}").as_bytes()))
        );
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn files_of_any_name_are_listed_and_served() {
    let service = files(&["--hidden"]);
    let long = [b'n'; 255];
    let names: [&[u8]; 18] = [
        b"new\nline",
        b"carriage\rreturn",
        b"tab\tbell\x07",
        b"\x01\x1b[31m",
        b"<script>alert(1)<!--",
        b"\"quoted\" & 'so'",
        b"per%cent%2fslash%00",
        b"no text \xff\xfe",
        "right\u{202e}to left".as_bytes(),
        "wide \u{1f600}".as_bytes(),
        b"-rf",
        b"..two dots",
        b"...",
        b" ",
        b"?query#fragment",
        b"back\\slash",
        b"colon:http:",
        &long,
    ];
    let directory = service.place.path("root/odd");
    fs::create_dir(&directory).expect("a directory");
    for name in names {
        fs::write(directory.join(OsStr::from_bytes(name)), name).expect("a file");
    }
    for listener in service.listeners.clone().iter().filter(|listener| !listener.http2 && !listener.admin) {
        for name in names {
            let escaped: String = name.iter().map(|byte| format!("%{byte:02X}")).collect();
            let mut client = Client::on(listener.door.connect().expect("it listens")).expect("a connection");
            let answer = client.ask("GET", &format!("/odd/{escaped}"), "", b"");
            let answer = service.program.answered(&escaped, answer);
            // A name with control characters may be refused. Otherwise the file is served.
            let refused = name.iter().any(u8::is_ascii_control) && matches!(answer.status, 400 | 404);
            assert!(refused || (answer.status == 200 && answer.body == name), "{escaped}: {answer:?}");
        }
        for target in ["/odd/", "/odd/?format=json"] {
            let mut client = Client::on(listener.door.connect().expect("it listens")).expect("a connection");
            let answer = client.ask("GET", target, "", b"");
            let answer = service.program.answered(target, answer);
            assert_eq!(answer.status, 200, "{answer:?}");
            // No part of a name becomes markup, or ends a JSON string.
            if !target.contains("json") {
                assert!(!contains(&answer.body, b"<script>"), "{}", String::from_utf8_lossy(&answer.body));
            } else {
                let listing: serde_json::Value = serde_json::from_slice(&answer.body).expect("JSON");
                assert_eq!(listing.as_array().map(Vec::len), Some(names.len()), "{listing}");
            }
        }
    }
}
