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
    unchanged(BufReader::new(maps), program, |range| drop_pages(&range));
}

/// Passes on the addresses where code and constants of `program` and of the C library are mapped and neither are nor can
/// be written to, in `/proc/PID/smaps`: proc_pid_smaps(5).
fn unchanged(maps: impl BufRead, program: &str, mut found: impl FnMut(Range<usize>)) {
    let mut mapped = None;
    for line in maps.lines().map_while(Result::ok) {
        if let Some(changed) = line.strip_prefix("Anonymous:") {
            // Pages that were written to at the start, by the dynamic linker for one, are nowhere but in memory.
            if let Some(range) = mapped.take().filter(|_| changed.trim() == "0 kB") {
                found(range);
            }
        } else if !line.starts_with(|first: char| first.is_ascii_uppercase()) {
            // Fields begin with capital letters, mappings with hexadecimal digits in lower case.
            mapped = mapping(&line, program);
        }
    }
}

/// The addresses of a line such as `5600-5700 r-xp 00000000 fe:00 42    /bin/program`, if `program` or the C library is
/// mapped there privately and not to be written to.
fn mapping(line: &str, program: &str) -> Option<Range<usize>> {
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
    Some(address(start)?..address(end)?)
}

#[allow(unsafe_code)]
fn drop_pages(range: &Range<usize>) {
    // SAFETY: the program or the C library is mapped here as long as this process runs, privately. No page was written
    // to, so each is the page cache's own, and the next access maps it again: madvise(2).
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
            map("ffffffffff600000-ffffffffff601000", "--xp", "[vsyscall]", 0),
        ];
        let mut found = Vec::new();
        unchanged(maps.concat().as_bytes(), "/bin/a program", |range| found.push(range));
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
        let before = resident();
        release();
        let after = resident();
        assert!(after < before, "{before} kB before, {after} kB after");
    }
}
