//! Runs fuzz targets as ordinary tests over their seeds, without nightly, cargo-fuzz or a sanitizer.
//!
//! A crate with targets in `fuzz/fuzz_targets/` has a file `tests/seeds.rs`. It compiles the same targets against this
//! crate instead of `libfuzzer-sys`:
//!
//! ```text
//! #![allow(missing_docs, unused_attributes)] // `#![no_main]` of a target means nothing in a module
//! extern crate seeds as libfuzzer_sys;
//!
//! seeds::targets! {
//!     head = "../fuzz/fuzz_targets/head.rs",
//!     chunked = "../fuzz/fuzz_targets/chunked.rs",
//! }
//! ```
//!
//! This makes a test for each target. It fails if the target panics on a seed, on the beginning of a seed, or on a seed
//! with a small change. Another test checks that no target is missing. If a target uses other crates than its own, they
//! must also be in the crate's `[dev-dependencies]`. A new target needs its file, its `[[bin]]` in `fuzz/Cargo.toml`, a
//! seed in `fuzz/seeds/NAME/`, and its line above.
#![forbid(unsafe_code)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

pub use arbitrary;
use arbitrary::{Arbitrary, Unstructured};

/// How many changes are made to each seed.
const CHANGES: usize = 128;

/// For a seed up to this length, in bytes, every beginning is tried. For a longer seed, this many beginnings are tried.
const BEGINNINGS: usize = 256;

/// Like the macro of `libfuzzer-sys`: `fuzz_target!(|bytes: &[u8]| …)`, or with any type that is [`Arbitrary`]. Makes a
/// function `check`, which takes bytes, for [`targets!`](crate::targets).
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident| $body:expr) => {
        $crate::fuzz_target!(|$bytes: &[u8]| $body);
    };
    (|$bytes:ident: &[u8]| $body:expr) => {
        /// Runs the target.
        pub fn check($bytes: &[u8]) {
            $body
        }
    };
    (|$input:ident: $type:ty| $body:expr) => {
        /// Runs the target on the input that is made from the bytes.
        pub fn check(bytes: &[u8]) {
            let Some($input) = $crate::input::<$type>(bytes) else { return };
            $body
        }
    };
}

/// The input that `libfuzzer-sys` makes from the bytes; none if it makes none.
pub fn input<'b, T: Arbitrary<'b>>(bytes: &'b [u8]) -> Option<T> {
    // `libfuzzer-sys` doesn't try either if there are too few bytes.
    let enough = bytes.len() >= T::size_hint(0).0;
    enough.then(|| T::arbitrary_take_rest(Unstructured::new(bytes)).ok()).flatten()
}

/// Makes a module and a test for each target, and a test that checks that no target is missing.
#[macro_export]
macro_rules! targets {
    ($($name:ident = $path:literal),+ $(,)?) => {
        $(
            #[path = $path]
            mod $name;
        )+

        mod over_seeds {
            $(
                #[test]
                fn $name() {
                    $crate::run(env!("CARGO_MANIFEST_DIR"), stringify!($name), super::$name::check);
                }
            )+

            #[test]
            fn every_target_is_run() {
                $crate::complete(env!("CARGO_MANIFEST_DIR"), &[$(stringify!($name)),+]);
            }
        }
    };
}

/// Runs `check` on the seeds of the target `name`, on inputs that earlier fuzzing found (`fuzz/corpus`), and on
/// beginnings and changes of the seeds. The beginnings and changes are the same in each run.
///
/// # Panics
/// When there is no seed, or when `check` panics; the input is then printed.
pub fn run(package: &str, name: &str, check: impl Fn(&[u8])) {
    let fuzz = Path::new(package).join("fuzz");
    let seeds = files(&fuzz.join("seeds").join(name));
    assert!(!seeds.is_empty(), "there is no seed in fuzz/seeds/{name}");
    for path in &seeds {
        let seed = read(path);
        try_one(&check, &seed, || path.display().to_string());
        let step = seed.len().div_ceil(BEGINNINGS).max(1);
        for end in (0..seed.len()).step_by(step) {
            try_one(&check, &seed[..end], || format!("the first {end} bytes of {}", path.display()));
        }
        let mut random = Random::new(&seed);
        for _ in 0..CHANGES {
            let changed = random.change(&seed);
            try_one(&check, &changed, || format!("{} changed", path.display()));
        }
    }
    for path in files(&fuzz.join("corpus").join(name)) {
        try_one(&check, &read(&path), || path.display().to_string());
    }
}

/// Checks that `names` contains all targets, and that `cargo fuzz` knows each of them.
///
/// # Panics
/// When one is missing.
pub fn complete(package: &str, names: &[&str]) {
    let fuzz = Path::new(package).join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let mut found: Vec<String> = files(&fuzz.join("fuzz_targets"))
        .iter()
        .filter(|path| read(path).windows(13).any(|text| text == b"fuzz_target!("))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    found.sort_unstable();
    let mut names = names.to_vec();
    names.sort_unstable();
    assert_eq!(names, found, "tests/seeds.rs and fuzz/fuzz_targets have other targets");
    for name in names {
        assert!(manifest.contains(&format!("\npath = \"fuzz_targets/{name}.rs\"\n")), "no [[bin]] of {name}");
    }
}

fn try_one(check: &impl Fn(&[u8]), input: &[u8], what: impl Fn() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{}: b\"{}\"", what(), input.escape_ascii());
        resume_unwind(panic);
    }
}

/// The files in a directory, sorted by name; none if the directory doesn't exist.
fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort_unstable();
    files
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A Xorshift generator. The bytes to change are its seed, so a failure happens again in the next run.
struct Random(u64);

impl Random {
    fn new(seed: &[u8]) -> Self {
        // FNV-1a, with the lowest bit set so that the state is never 0.
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Self(seed.iter().fold(0xcbf2_9ce4_8422_2325, hash) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Makes one to four changes to `seed`: replaces, removes or inserts a byte, or repeats up to 15 bytes. Prefers
    /// bytes that have a meaning in many formats.
    fn change(&mut self, seed: &[u8]) -> Vec<u8> {
        const TELLING: &[u8] = b"\r\n\0 \t:;,=\"'\\/?%{}[]-0189azAZ\x7f\x80\xff";
        let mut bytes = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let byte = match self.below(4) {
                0 => self.below(256) as u8,
                _ => TELLING[self.below(TELLING.len())],
            };
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => {
                    let end = (at + self.below(16)).min(bytes.len());
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                _ => bytes.insert(at, byte),
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A package with one target `t` and its seed.
    fn package(seed: &[u8]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let fuzz = directory.path().join("fuzz");
        for (path, content) in [
            ("seeds/t/seed", seed),
            ("fuzz_targets/t.rs", b"fuzz_target!(|bytes| ());".as_slice()),
            ("Cargo.toml", b"[[bin]]\nname = \"t\"\npath = \"fuzz_targets/t.rs\"\n"),
        ] {
            let path = fuzz.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, content).expect("written");
        }
        directory
    }

    fn path(directory: &tempfile::TempDir) -> &str {
        directory.path().to_str().expect("UTF-8")
    }

    #[test]
    fn seeds_their_beginnings_and_changes_are_tried_and_the_same_each_time() {
        let package = package(b"GET / HTTP/1.1\r\n\r\n");
        fs::create_dir_all(package.path().join("fuzz/corpus/t")).expect("made");
        fs::write(package.path().join("fuzz/corpus/t/found"), "found").expect("written");
        let inputs = || {
            let inputs = RefCell::new(Vec::new());
            run(path(&package), "t", |bytes| inputs.borrow_mut().push(bytes.to_vec()));
            inputs.into_inner()
        };
        let first = inputs();
        assert_eq!(first.len(), 1 + 18 + CHANGES + 1);
        assert_eq!((&first[0][..], &first[4][..]), (&b"GET / HTTP/1.1\r\n\r\n"[..], &b"GET"[..]));
        assert_eq!(first.last().map(Vec::as_slice), Some(&b"found"[..]));
        assert!(first[19..].iter().any(|bytes| bytes.len() != 18), "nothing is changed");
        assert_eq!(inputs(), first);
    }

    #[test]
    #[should_panic(expected = "a slip")]
    fn what_panics_fails() {
        run(path(&package(b"1234")), "t", |bytes| assert!(bytes.len() != 3, "a slip"));
    }

    #[test]
    #[should_panic(expected = "no seed in fuzz/seeds/u")]
    fn a_target_without_seeds_fails() {
        run(path(&package(b"")), "u", |_| {});
    }

    #[test]
    fn a_target_that_is_left_out_fails() {
        let package = package(b"");
        complete(path(&package), &["t"]);
        for names in [&[][..], &["t", "u"]] {
            assert!(catch_unwind(|| complete(path(&package), names)).is_err(), "{names:?}");
        }
        fs::write(package.path().join("fuzz/Cargo.toml"), "").expect("written");
        assert!(catch_unwind(|| complete(path(&package), &["t"])).is_err(), "cargo fuzz does not know it");
    }

    #[test]
    fn inputs_are_what_libfuzzer_makes_of_the_bytes() {
        let read = input::<(u64, &[u8])>(b"\x0a\0\0\0\0\0\0\0bytes=0-");
        assert_eq!(read, Some((10, &b"bytes=0-"[..])));
        // `arbitrary` reads the lengths of all strings except the last from the end of the input; the first string's
        // length is the last byte.
        let read = input::<(&str, &str, &str)>(b"GET/pathhost\x05\x03");
        assert_eq!(read, Some(("GET", "/path", "host")));
        assert_eq!(input::<(u64, &[u8])>(b"\x0a"), None);
    }
}
