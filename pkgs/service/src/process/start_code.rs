//! The code that only a start runs.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::thread;
use std::time::Duration;

use rustix::mm::{Advice, madvise};

/// By then, workers and timers have run once.
const SETTLED: Duration = Duration::from_secs(1);

/// Parts of the C library, by the beginning of their names. They stay mapped while the program runs.
const C_LIBRARY: [&str; 3] = ["libc.so.", "libm.so.", "ld-linux"];

/// Soon takes the code and constants of the program and of the C library out of the process's memory. What still runs
/// comes back from the page cache at its next use, at a page fault (about 1 µs) for each 64 KiB (`fault_around_bytes`).
///
/// Most of what a start has run never runs again: settings, migrations, certificates. While such pages are mapped, the
/// kernel counts them as the process's, and is slower to reclaim them.
pub fn release_soon() {
    // Where there can be no thread, they stay.
    let _ = thread::Builder::new().name("start-code".into()).spawn(|| {
        thread::sleep(SETTLED);
        release();
    });
}

fn release() {
    let Ok(maps) = File::open("/proc/self/smaps") else { return };
    let Ok(program) = fs::read_link("/proc/self/exe") else { return };
    let Some(program) = program.to_str() else { return };
    unchanged(BufReader::new(maps), program).iter().for_each(drop_pages);
}

/// A mapping of the program or the C library that cannot be written to.
struct Mapping {
    range: Range<usize>,
    path: String,
    is_code: bool,
    /// Whether no page was written to. Those to which the dynamic linker has written are nowhere but in memory.
    is_unchanged: bool,
}

/// The addresses of code and constants of `program` and of the C library to which nothing was written, in
/// `/proc/PID/smaps`: proc_pid_smaps(5).
fn unchanged(maps: impl BufRead, program: &str) -> Vec<Range<usize>> {
    let (mut mappings, mut last) = (Vec::new(), None);
    for line in maps.lines().map_while(Result::ok) {
        if let Some(changed) = line.strip_prefix("Anonymous:") {
            let is_unchanged = changed.trim() == "0 kB";
            mappings.extend(last.take().map(|mapping| Mapping { is_unchanged, ..mapping }));
        } else if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
            // Fields begin with capital letters, mappings with hexadecimal digits in lower case.
            last = mapping(&line, program);
        }
    }
    // Constants are beside their code. Other mappings of the same file may end at any time, such as those from which a
    // backtrace reads symbols.
    let is_beside_code = |mapping: &Mapping| {
        mappings.iter().any(|code: &Mapping| {
            let touches = code.range.start == mapping.range.end || code.range.end == mapping.range.start;
            code.is_code && code.path == mapping.path && touches
        })
    };
    let stay = mappings.iter().filter(|mapping| mapping.is_code || is_beside_code(mapping));
    stay.filter(|mapping| mapping.is_unchanged).map(|mapping| mapping.range.clone()).collect()
}

/// The mapping of a line such as `5600-5700 r-xp 00000000 fe:00 42    /bin/program`, if it is a private one of `program`
/// or the C library that cannot be written to.
fn mapping(line: &str, program: &str) -> Option<Mapping> {
    let (addresses, rest) = line.split_once(' ')?;
    let (permissions, rest) = rest.split_once(' ')?;
    // After offset, device and inode, the path is aligned by spaces, and may contain some.
    let path = rest.splitn(4, ' ').nth(3)?.trim_start();
    let name = path.rsplit('/').next()?;
    let is_ours = path == program || C_LIBRARY.iter().any(|library| name.starts_with(library));
    if !is_ours || !matches!(permissions, "r-xp" | "r--p") {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let range = address(start)?..address(end)?;
    Some(Mapping { range, path: path.to_owned(), is_code: permissions == "r-xp", is_unchanged: false })
}

#[allow(unsafe_code)]
fn drop_pages(range: &Range<usize>) {
    // SAFETY: this is the code of the program or the C library, or constants beside it, which stay mapped as long as this
    // process runs. No page was written to, so each is the page cache's own, and the next access maps it again: madvise(2).
    let _ = unsafe { madvise(range.start as *mut c_void, range.len(), Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_constants_are_found_where_nothing_was_written() {
        let map = |addresses, permissions, path, anonymous| {
            format!(
                "{addresses} {permissions} 00001000 fe:00 42                         {path}\n\
                 Size:                  4 kB\nRss:                  4 kB\nAnonymous:             {anonymous} kB\n\
                 VmFlags: rd mr mw me\n"
            )
        };
        let maps = [
            map("1000-3000", "r--p", "/bin/a program", 0),
            map("3000-a000", "r-xp", "/bin/a program", 0),
            map("a000-b000", "r--p", "/bin/a program", 4),
            map("b000-c000", "rw-p", "/bin/a program", 0),
            map("c000-d000", "r-xp", "/lib/libcrypt.so.1", 0),
            map("d000-e000", "r--s", "/bin/a program", 0),
            "e000-f000 rw-p 00000000 00:00 0 \nAnonymous: 0 kB\n".to_owned(),
            map("10000-20000", "r-xp", "/lib/libc.so.6", 0),
            // The program's file, as something reads its symbols, which may be unmapped at any time.
            map("20000-30000", "r--p", "/bin/a program", 0),
            map("ffffffffff600000-ffffffffff601000", "--xp", "[vsyscall]", 0),
        ];
        let found = unchanged(maps.concat().as_bytes(), "/bin/a program");
        assert_eq!(found, [0x1000..0x3000, 0x3000..0xa000, 0x10000..0x20000]);
    }

    #[test]
    fn pages_that_do_not_run_are_gone() {
        let resident = || {
            let maps = fs::read_to_string("/proc/self/smaps").expect("Linux has it");
            let program = fs::read_link("/proc/self/exe").expect("Linux has it");
            let program = program.to_str().expect("text").to_owned();
            let mut ours = false;
            let mut kilobytes = 0;
            for line in maps.lines() {
                if let Some(rss) = line.strip_prefix("Rss:").filter(|_| ours) {
                    kilobytes += rss.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
                }
                if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
                    ours = mapping(line, &program).is_some();
                }
            }
            kilobytes
        };
        // Other tests run meanwhile, and map what they run.
        let is_less = (0..100).any(|_| {
            let before = resident();
            release();
            resident() < before
        });
        assert!(is_less, "{} kB stay", resident());
    }
}
