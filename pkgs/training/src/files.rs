//! Files of all sizes, and what else is made of a directory.

use std::fs;
use std::path::Path;

use bench::Error;
use bench::wrk::Requests;

use crate::programs::{FILES, Programs};
use crate::service::{Service, in_turn};

/// What fits in a packet, in a few, and in no window.
const SIZES: [usize; 3] = [1_024, 16_384, 600_000];

const RULES: &str = "[[rule]]\npath = \"*\"\ncompress = true\n";

/// Trains files.
///
/// # Errors
/// When something fails, or a request does.
pub fn train(programs: &Programs) -> Result<(), Error> {
    let scratch = tempfile::tempdir()?;
    let (root, rules) = (scratch.path().join("root"), scratch.path().join("rules.toml"));
    fill(&root)?;
    fs::write(&rules, RULES).map_err(Error::file(&rules))?;
    let (root, rules) = (root.display().to_string(), rules.display().to_string());
    let plain = programs.serve(FILES, scratch.path(), &["--root", &root])?;
    for bytes in SIZES {
        let path = format!("/{bytes}.bin");
        plain.load(&Requests::same(&path, 200))?;
        plain.load_by_tls(&path, 200, bytes as u64)?;
    }
    plain.load(&Requests::same("/missing", 404))?;
    plain.load(&Requests::closing("/1024.bin", 200))?;
    parts(&plain)?;
    drop(plain);
    // Each round opens its files anew, and no answer comes from a copy.
    let cold = ["--root", &root, "--open-files", "64", "--engine", "sendfile"];
    programs.serve(FILES, scratch.path(), &cold)?.load(&many())?;
    let ruled = programs.serve(FILES, scratch.path(), &["--root", &root, "--rules", &rules, "--listing"])?;
    ruled.load(&in_turn("GET", &["/page.html".into()], &[("Accept-Encoding", "gzip, br, zstd")], "", 200))?;
    ruled.load(&Requests::same("/many/", 200))
}

/// Ranges, and conditions that hold.
fn parts(plain: &Service) -> Result<(), Error> {
    let path = ["/600000.bin".to_owned()];
    plain.load(&in_turn("GET", &path, &[("Range", "bytes=1000-20000")], "", 206))?;
    plain.load(&in_turn("GET", &path, &[("If-Modified-Since", "Fri, 31 Dec 2100 23:59:59 GMT")], "", 304))
}

const MANY: usize = 1_000;

fn many() -> Requests {
    let paths: Vec<String> = (0..MANY).map(|at| format!("/many/{at}.bin")).collect();
    in_turn("GET", &paths, &[], "", 200)
}

fn fill(root: &Path) -> Result<(), Error> {
    let write = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        fs::write(&path, bytes).map_err(Error::file(&path))
    };
    fs::create_dir_all(root.join("many")).map_err(Error::file(root))?;
    for bytes in SIZES {
        write(&format!("{bytes}.bin"), &noise(bytes))?;
    }
    for number in 0..MANY {
        write(&format!("many/{number}.bin"), &noise(16_384))?;
    }
    let paragraphs: String = (0..400)
        .map(|number| format!("<p>Paragraph {number} of a page that compresses well.</p>\n"))
        .collect();
    write("page.html", paragraphs.as_bytes())
}

/// Bytes that do not repeat.
fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
