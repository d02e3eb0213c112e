//! `linerate_build_info`: which program runs, and which generation of the host.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use prometheus_client::registry::Registry;

use super::Family;

/// The longest name of a generation, in bytes. A SHA-256 commit has 64.
const MAX_GENERATION: u64 = 128;

/// Where to read the host's generation.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct BuildArgs {
    /// A file that names the host's generation, such as the commit it was built from; `linerate_build_info` shows its
    /// first line. It is read at every scrape, and may be missing.
    #[arg(long, value_name = "FILE", default_value = "/etc/linerate/generation")]
    pub generation_file: PathBuf,
}

/// Registers `linerate_build_info`: the value 1, with labels for the service, its version and the host's generation.
pub fn register(registry: &mut Registry, service: &'static str, args: &BuildArgs) {
    let file = args.generation_file.clone();
    Family::new("linerate_build_info", "Which version of a service runs, on which generation of its host")
        .with_changing(move || {
            let labels = vec![
                ("service", service.to_owned()),
                ("version", env!("CARGO_PKG_VERSION").to_owned()),
                ("generation", generation(&file)),
            ];
            vec![(labels, 1.0)]
        })
        .register(registry);
}

/// The first line of a file, if it is a valid name; otherwise empty.
fn generation(file: &Path) -> String {
    let mut text = String::new();
    // A file that is not text, or cannot be read, counts as empty.
    let read = File::open(file).and_then(|file| file.take(MAX_GENERATION).read_to_string(&mut text));
    match (read, text.lines().next()) {
        (Ok(_), Some(line)) => line.trim().chars().filter(|letter| letter.is_ascii_graphic()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::encode;
    use super::*;

    #[test]
    fn a_scrape_names_the_generation_that_the_file_has_then() {
        let directory = tempfile::tempdir().unwrap();
        let generation_file = directory.path().join("generation");
        let mut registry = Registry::default();
        register(&mut registry, "links", &BuildArgs { generation_file: generation_file.clone() });
        let version = env!("CARGO_PKG_VERSION");
        let long = "a".repeat(1000);
        for (content, expected) in [
            (None, ""),
            (Some("4f2a\n"), "4f2a"),
            (Some("two\nlines"), "two"),
            (Some("\"}\\ \u{1b}[31m"), "\\\"}\\\\[31m"),
            (Some(""), ""),
            (Some(long.as_str()), &long[..128]),
        ] {
            if let Some(content) = content {
                fs::write(&generation_file, content).unwrap();
            }
            let line = format!(
                "linerate_build_info{{service=\"links\",version=\"{version}\",generation=\"{expected}\"}} 1.0"
            );
            let text = encode(&registry);
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
