//! Servers with less memory than their files take: in a separate control group, of version 2 if that controls its
//! processes' memory, else of version 1.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A control group whose processes have this much memory, including the page cache.
pub struct Limited {
    directory: PathBuf,
    version: u8,
}

impl Limited {
    /// A control group with this name.
    ///
    /// # Errors
    /// When this process may not create control groups, or none here controls memory.
    pub fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let (parent, version) = hierarchy()?;
        let limit = if version == 2 { "memory.max" } else { "memory.limit_in_bytes" };
        let directory = parent.join(format!("linerate-bench-{name}-{}", std::process::id()));
        fs::create_dir(&directory)?;
        let this = Self { directory, version };
        fs::write(this.directory.join(limit), bytes.to_string())?;
        Ok(this)
    }

    /// The version of its control groups.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// How much of its memory is page cache, in bytes.
    ///
    /// # Errors
    /// When the kernel doesn't tell.
    pub fn page_cache(&self) -> io::Result<u64> {
        let name = if self.version == 2 { "file " } else { "total_cache " };
        let text = fs::read_to_string(self.directory.join("memory.stat"))?;
        let bytes = text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
        bytes.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no such figure in memory.stat"))
    }

    /// A command that runs `program` in it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""])
            .arg(&self.directory)
            .arg(program);
        command
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // Its processes have ended, but the kernel may not have finished with them.
        for _ in 0..100 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Where control groups for memory are created, and their version.
fn hierarchy() -> io::Result<(PathBuf, u8)> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let mut first = None;
    for mount in mounts.lines() {
        let mut fields = mount.split(' ').skip(1);
        let (Some(place), Some(kind), Some(options)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let place = Path::new(place);
        let has_memory = |text: &str, by: char| text.split(by).any(|name| name.trim() == "memory");
        if kind == "cgroup2" {
            let control = place.join("cgroup.subtree_control");
            let _ = fs::write(&control, "+memory");
            if fs::read_to_string(&control).is_ok_and(|text| has_memory(&text, ' ')) {
                return Ok((place.into(), 2));
            }
        } else if kind == "cgroup" && has_memory(options, ',') {
            first = Some((place.to_owned(), 1));
        }
    }
    first.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "no control groups with memory"))
}
