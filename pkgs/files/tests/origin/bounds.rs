//! How much the cache may take: bytes, and no more if the disk is full.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::Fixture;
use crate::place::{BINARY, pattern, until};

const MIB: usize = 1 << 20;

/// The bytes of all files in a directory.
fn taken(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("the cache").flatten();
    entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512)).sum()
}

/// The directory in /proc with the descriptors of the server that has this cache.
fn descriptors_of(cache: &Path) -> PathBuf {
    let cache = cache.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let mut found = processes.map(|entry| entry.path()).filter(|path| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == cache)
    });
    found.next().expect("the server").join("fd")
}

#[test]
fn the_cache_stays_within_its_bytes_and_what_is_evicted_comes_again() {
    let test = "the_cache_stays_within_its_bytes_and_what_is_evicted_comes_again";
    let Some(fixture) = Fixture::new(test) else { return };
    let all: Vec<_> = (0..24).map(|number| pattern(MIB + number * 1000)).collect();
    for (number, bytes) in all.iter().enumerate() {
        fixture.gateway.put(&format!("f{number}"), bytes, &[]);
    }
    let limit = 8 * MIB as u64;
    let server = fixture.serve(&["--origin-cache-bytes", &limit.to_string(), "--no-precompressed"]);
    for round in 0..2 {
        for (number, bytes) in all.iter().enumerate() {
            let answer = server.get(&format!("/f{number}"), "");
            assert!(answer.status == 200 && answer.body == *bytes, "{round} {number}");
            let now = taken(&fixture.cache());
            assert!(now <= limit, "{now}");
            assert!(server.metric("linerate_origin_cache_bytes") <= limit as f64);
        }
    }
    assert!(server.metric("linerate_origin_evicted_objects_total") > 10.0);
    let descriptors = descriptors_of(&fixture.cache());
    // Evicted files that workers had open are closed, and their room is available to others.
    until("evicted files are closed", || {
        let open = fs::read_dir(&descriptors).expect("its descriptors").flatten();
        let gone = open.filter(|entry| {
            fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().ends_with(".data (deleted)"))
        });
        gone.count() == 0
    });
}

#[test]
fn what_is_larger_than_the_cache_is_passed_on_within_its_memory() {
    let Some(fixture) = Fixture::new("what_is_larger_than_the_cache_is_passed_on_within_its_memory") else {
        return;
    };
    let all = pattern(20 * MIB + 11);
    fixture.gateway.put("f", &all, &[]);
    let flags = ["--origin-cache-bytes", "4194304", "--origin-memory", "4194304"];
    let server = fixture.serve(&flags);
    let before = server.resident();
    for _ in 0..2 {
        assert!(server.get("/f", "").body == all);
    }
    let part = server.get("/f", "Range: bytes=20000000-20000010\r\n");
    assert_eq!(part.body, &all[20_000_000..20_000_011]);
    assert!(server.metric("linerate_origin_passed_blocks_total") >= 40.0);
    assert!(taken(&fixture.cache()) < MIB as u64);
    assert!(server.resident() < before + 40 * MIB as u64, "{} {before}", server.resident());
}

#[test]
fn a_full_disk_is_passed_by() {
    let test = "a_full_disk_is_passed_by";
    let Some(fixture) = Fixture::new(test) else { return };
    let cache = fixture.cache();
    fs::create_dir(&cache).expect("a directory");
    // A separate file system, which only this server sees.
    let script =
        format!("mount -t tmpfs -o size=3m tmpfs {} && exec \"$@\"", cache.to_str().expect("a path of text"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    let allowed = Command::new("unshare")
        .args(["--mount", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !allowed {
        bench::skipped(test, "a file system of its own takes root");
        return;
    }
    command.arg(BINARY);
    Fixture::signs(&mut command);
    let all = pattern(6 * MIB + 1);
    for key in ["f", "g"] {
        fixture.gateway.put(key, &all, &[]);
    }
    fixture.gateway.put("small", b"small", &[]);
    let server = fixture.serve_by(command, &[]);
    for _ in 0..2 {
        for key in ["/f", "/g"] {
            assert!(server.get(key, "").body == all, "{key}");
        }
        assert_eq!(server.get("/small", "").text(), "small");
    }
    assert!(server.metric("linerate_origin_passed_blocks_total") > 3.0);
    assert!(server.log().contains("takes no more"), "{}", server.log());
}
