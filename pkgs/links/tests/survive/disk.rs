//! A disk that is full or read-only: writes are refused, redirects continue.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::server::{Place, alone};

/// A small separate file system; `None` if this process may not mount one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn mount() -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a temporary directory"));
        if let Err(why) = mount(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], disk.path()) {
            bench::skip::skipped("links on a full or read-only disk", &why);
            return None;
        }
        Some(disk)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> std::path::PathBuf {
        self.path().join("filler")
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let mut file = File::options().append(true).create(true).open(self.filler()).unwrap();
        for size in [64 * 1024, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).output();
    }
}

fn mount(arguments: &[&str], at: &Path) -> Result<(), String> {
    let output = Command::new("mount").args(arguments).arg(at).output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn on_a_full_disk_writes_are_507_and_redirects_go_on() {
    let _alone = alone();
    let Some(disk) = Disk::mount() else { return };
    let place = Place::within(disk.path());
    let server = place.serve(&[]);
    let mut api = server.api();
    let mut client = server.connect();
    for code in ["cached", "uncached"] {
        assert_eq!(api.create(code, "https://t.example/").unwrap(), 201);
    }
    assert_eq!(client.get("cached").unwrap().status, 307);

    disk.fill();
    // Writes for which the log still has room succeed.
    let long = format!("https://t.example/{}", "x".repeat(7000));
    let refused =
        (0..5000).map(|n| api.create(&format!("f{n}"), &long).unwrap()).find(|&status| status != 201);
    assert_eq!(refused, Some(507));
    disk.fill();
    assert_eq!(api.edit("cached", &serde_json::json!({ "target": long })).unwrap(), 507);
    assert_eq!(api.delete("cached").unwrap(), 507);
    for _ in 0..100 {
        assert_eq!(client.get("cached").unwrap().location(), "https://t.example/");
    }
    assert_eq!(client.get("uncached").unwrap().status, 307);
    assert_eq!(client.get("unknown").unwrap().status, 404);
    // A flush fails.
    server.wait_for_log("clicks are not in the store yet");
    for _ in 0..100 {
        assert_eq!(client.get("cached").unwrap().status, 307);
    }

    std::fs::remove_file(disk.filler()).unwrap();
    assert_eq!(api.create("after", "https://t.example/").unwrap(), 201);
    assert_eq!(client.get("after").unwrap().status, 307);
    let deadline = Instant::now() + Duration::from_secs(120);
    while api.clicks("cached") < 201 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
    let server = place.serve(&[]);
    assert_eq!(server.api().clicks("cached"), 201, "clicks were lost or counted twice");
    assert_eq!(server.api().clicks("uncached"), 1);
    drop(server);
    assert!(place.command(&["check"]).unwrap().status.success());
}

#[test]
fn on_a_read_only_disk_writes_are_503_and_redirects_work() {
    let _alone = alone();
    let Some(disk) = Disk::mount() else { return };
    let place = Place::within(disk.path());
    for crashed in [false, true] {
        let server = place.serve(&[]);
        let code = format!("c{crashed}");
        assert_eq!(server.api().create(&code, "https://t.example/").unwrap(), 201);
        if crashed {
            server.kill()
        } else {
            server.stop()
        }

        mount(&["-o", "remount,ro"], disk.path()).unwrap();
        let server = place.serve(&[]);
        server.wait_for_log("the database is read-only");
        let mut api = server.api();
        assert_eq!(api.create("new", "https://t.example/").unwrap(), 503);
        assert_eq!(api.edit(&code, &serde_json::json!({ "title": "x" })).unwrap(), 503);
        assert_eq!(api.delete(&code).unwrap(), 503);
        let mut client = server.connect();
        assert_eq!(client.get(&code).unwrap().location(), "https://t.example/");
        assert_eq!(client.get("new").unwrap().status, 404);
        server.stop();
        mount(&["-o", "remount,rw"], disk.path()).unwrap();
    }
}
