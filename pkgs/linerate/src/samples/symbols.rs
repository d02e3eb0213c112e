//! Resolves addresses to names: finds the file that is mapped at an address, and the function in that file's symbols
//! and line tables.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use addr2line::Loader;
use data_encoding::HEXLOWER;
use object::read::ReadCache;
use object::{Object, ObjectSegment};

use super::kernel::Kernel;

/// Marks in a stack: the addresses that follow are the kernel's, or the program's (`PERF_CONTEXT_*`,
/// linux/perf_event.h).
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;
const CONTEXT_MOST: u64 = -4095_i64 as u64;

/// How many processes and files are remembered, and how much of a process's mappings is read.
const MOST_PROCESSES: usize = 2048;
const MOST_FILES: usize = 256;
const MOST_NAMES: usize = 1 << 16;
const MOST_MAPS: u64 = 1 << 20;

/// The most bytes of all files whose symbols are read, and the most time for resolving names. After that, an address
/// gets only the name of its file. The heaviest stacks are resolved first.
const MOST_BYTES: u64 = 1 << 30;
const NAMING: Duration = Duration::from_secs(20);

/// The longest file whose symbols are read, in bytes: enough for a program with full debugging information.
const MOST_FILE: u64 = 512 << 20;

/// Directories with separate debug files. Each is named by the build ID, which the linker puts into the program as
/// well.
const DEBUG: [&str; 2] = ["/usr/lib/debug/.build-id", "/run/current-system/sw/lib/debug/.build-id"];

/// The names of addresses in known processes.
#[derive(Default)]
pub(super) struct Symbols {
    processes: HashMap<u32, Process>,
    files: HashMap<FileKey, Rc<Binary>>,
    /// The names by file and offset, since most addresses occur in many stacks.
    names: HashMap<(usize, u64), Vec<String>>,
    kernel: Option<Kernel>,
    bytes: u64,
    begun: Option<Instant>,
}

/// A process when it was first seen.
#[derive(Debug, Default)]
struct Process {
    command: String,
    maps: Vec<Mapping>,
}

/// A part of a file mapped into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapping {
    begin: u64,
    end: u64,
    offset: u64,
    file: FileKey,
}

/// A mapped file. A path alone may have named several files, one after the other or in several containers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: String,
    inode: String,
    path: String,
}

/// A program or a library.
#[derive(Default)]
struct Binary {
    segments: Vec<(u64, u64, u64)>,
    bytes: u64,
    loader: Option<Loader>,
}

impl Symbols {
    /// Reads a process's mappings the first time it is seen, before it may end.
    pub(super) fn meet(&mut self, pid: u32) {
        if self.processes.contains_key(&pid) || self.processes.len() >= MOST_PROCESSES {
            return;
        }
        let command = limited(&format!("/proc/{pid}/comm")).trim_end().to_owned();
        let maps = limited(&format!("/proc/{pid}/maps")).lines().filter_map(Mapping::parse).collect();
        self.processes.insert(pid, Process { command, maps });
    }

    /// The functions of a stack as in a folded line: the command first, the innermost function last.
    pub(super) fn stack(&mut self, pid: u32, addresses: &[u64]) -> String {
        let mut names = Vec::new();
        let (mut kernel, mut first) = (false, true);
        for &address in addresses {
            if address >= CONTEXT_MOST {
                kernel = address == CONTEXT_KERNEL;
                first = true;
                if !kernel && address != CONTEXT_USER {
                    break;
                }
                continue;
            }
            // All addresses except the innermost are return addresses, which may already be in the next function.
            let at = if first { address } else { address.saturating_sub(1) };
            first = false;
            if kernel {
                let known = self.kernel.get_or_insert_with(Kernel::read);
                names.push(format!("{}_[k]", known.name(at).unwrap_or("[kernel]")));
            } else {
                names.extend(self.user(pid, at));
            }
        }
        let command =
            self.processes.get(&pid).map(|process| process.command.as_str()).filter(|name| !name.is_empty());
        names.push(command.unwrap_or("[gone]").to_owned());
        names.reverse();
        let clean = names.iter().map(|name| name.replace([';', '\n', '\r'], ":"));
        clean.collect::<Vec<_>>().join(";")
    }

    /// The functions at an address of a process; inlined ones come first.
    fn user(&mut self, pid: u32, address: u64) -> Vec<String> {
        let mapping = self.processes.get(&pid).and_then(|process| {
            process.maps.iter().find(|mapping| (mapping.begin..mapping.end).contains(&address))
        });
        let Some(mapping) = mapping.cloned() else { return vec!["[unknown]".into()] };
        let path = &mapping.file.path;
        if !path.starts_with('/') {
            // `[vdso]`, or memory that belongs to no file.
            let name = if path.starts_with('[') { path.as_str() } else { "[unknown]" };
            return vec![name.to_owned()];
        }
        let binary = self.binary(pid, &mapping);
        let at = address - mapping.begin + mapping.offset;
        let key = (Rc::as_ptr(&binary) as usize, at);
        let names = match self.names.get(&key) {
            Some(names) => names.clone(),
            None if self.begun.is_some_and(|begun| begun.elapsed() > NAMING) => Vec::new(),
            None => {
                let names = binary.functions(at);
                // A file that isn't kept is freed, and another file may then get its address, which is part of the key.
                if self.names.len() < MOST_NAMES && self.files.contains_key(&mapping.file) {
                    self.names.insert(key, names.clone());
                }
                names
            }
        };
        if names.is_empty() {
            let file = path.rsplit('/').next().unwrap_or_default();
            return vec![format!("[{}]", file.trim_end_matches(" (deleted)"))];
        }
        names
    }

    fn binary(&mut self, pid: u32, mapping: &Mapping) -> Rc<Binary> {
        if let Some(binary) = self.files.get(&mapping.file) {
            return Rc::clone(binary);
        }
        let path = &mapping.file.path;
        let places: Vec<PathBuf> = if path.ends_with(" (deleted)") {
            // A replaced file is still available as what is mapped, which takes root, and a replaced program as the
            // process's executable.
            let Mapping { begin, end, .. } = mapping;
            let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{begin:x}-{end:x}"));
            let program = PathBuf::from(format!("/proc/{pid}/exe"));
            let same = fs::read_link(&program).is_ok_and(|of| of == Path::new(path));
            [mapped].into_iter().chain(same.then_some(program)).collect()
        } else {
            // First the path as the process sees it, which may be in a container.
            vec![PathBuf::from(format!("/proc/{pid}/root{path}")), PathBuf::from(path)]
        };
        let in_time = self.begun.get_or_insert_with(Instant::now).elapsed() < NAMING;
        let left = if in_time { MOST_BYTES.saturating_sub(self.bytes) } else { 0 };
        let opened = places.iter().find_map(|place| Binary::open(place, left));
        let binary = Rc::new(opened.unwrap_or_default());
        self.bytes += binary.bytes;
        if self.files.len() < MOST_FILES {
            self.files.insert(mapping.file.clone(), Rc::clone(&binary));
        }
        binary
    }
}

impl Mapping {
    /// A line of `/proc/PID/maps` (proc_pid_maps(5)): `BEGIN-END PERMISSIONS OFFSET DEVICE INODE PATH`.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.split_once(' ')?;
            rest = after.trim_start();
            Some(field)
        };
        let (range, permissions, offset) = (field()?, field()?, field()?);
        let (device, inode) = (field()?.to_owned(), field().unwrap_or_default().to_owned());
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end) = range.split_once('-')?;
        permissions.contains('x').then_some(())?;
        Some(Self {
            begin: number(begin)?,
            end: number(end)?,
            offset: number(offset)?,
            file: FileKey { device, inode, path: rest.to_owned() },
        })
    }
}

impl Binary {
    /// Reads a file's segments, and its symbols from its separate debug file or else from the file itself. Files of
    /// more than `most` bytes aren't read.
    fn open(path: &Path, most: u64) -> Option<Self> {
        let most = most.min(MOST_FILE);
        // A file that isn't a regular file may be endless, or block.
        let small =
            |path: &Path| fs::metadata(path).ok().filter(|about| about.is_file() && about.len() <= most);
        let described = small(path)?;
        let (segments, build) = {
            let cache = ReadCache::new(File::open(path).ok()?);
            let parsed = object::File::parse(&cache).ok()?;
            let segments = parsed.segments().map(|segment| {
                let (offset, size) = segment.file_range();
                (offset, size, segment.address())
            });
            let build = parsed.build_id().ok().flatten().map(<[u8]>::to_vec);
            (segments.take(64).collect(), build.unwrap_or_default())
        };
        let aside = DEBUG.iter().filter_map(|place| aside(place, &build)).find(|place| place.is_file());
        let aside = aside.and_then(|place| Some((small(&place)?.len(), Loader::new(place).ok()?)));
        let own = || (described.len(), Loader::new(path).ok());
        let (bytes, loader) = aside.map_or_else(own, |(bytes, loader)| (bytes, Some(loader)));
        Some(Self { segments, bytes, loader })
    }

    /// The functions at an offset in the file; inlined ones come first.
    fn functions(&self, offset: u64) -> Vec<String> {
        let at = self
            .segments
            .iter()
            .find(|(begin, size, _)| (*begin..begin.saturating_add(*size)).contains(&offset));
        let (Some((begin, _, address)), Some(loader)) = (at, &self.loader) else { return Vec::new() };
        let address = address.wrapping_add(offset - begin);
        let mut names = Vec::new();
        if let Ok(mut frames) = loader.find_frames(address) {
            // More than this many nested inlined functions means a broken file.
            while let (true, Ok(Some(frame))) = (names.len() < 64, frames.next()) {
                let name = frame.function.as_ref().and_then(|name| name.demangle().ok().map(Cow::into_owned));
                names.extend(name);
            }
        }
        if names.is_empty() {
            let symbol = loader.find_symbol(address);
            names.extend(symbol.map(|name| addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()));
        }
        names
    }
}

/// The path of the separate debug file with this build ID below a directory.
fn aside(directory: &str, build: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build.split_first().filter(|(_, rest)| !rest.is_empty() && rest.len() < 64)?;
    Some(Path::new(directory).join(format!("{first:02x}/{}.debug", HEXLOWER.encode(rest))))
}

/// The start of a file, up to a limit; empty if it can't be read.
fn limited(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_MAPS).read_to_end(&mut bytes));
    read.map_or_else(|_| String::new(), |_| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::ptr;

    use super::*;

    #[test]
    fn mappings_of_code_are_read_whatever_the_path_is() {
        for (line, expected) in [
            (
                "55d0-55e0 r-xp 00001000 fe:00 12345                      /usr/bin/a b (deleted)",
                Some((0x55d0, 0x1000, "/usr/bin/a b (deleted)")),
            ),
            ("7f00-7f10 r-xp 00000000 00:00 0                          [vdso]", Some((0x7f00, 0, "[vdso]"))),
            ("7f00-7f10 rwxp 00000000 00:00 0 ", Some((0x7f00, 0, ""))),
            ("7f00-7f10 rw-p 00000000 00:00 0 ", None),
            ("odd", None),
        ] {
            let parsed = Mapping::parse(line);
            let shown =
                parsed.as_ref().map(|mapping| (mapping.begin, mapping.offset, mapping.file.path.as_str()));
            assert_eq!(shown, expected, "{line}");
        }
    }

    #[test]
    fn a_stack_says_what_is_not_known_and_breaks_no_line() {
        let mut symbols = Symbols::default();
        symbols.processes.insert(7, Process { command: "a;b\nc".into(), maps: Vec::new() });
        assert_eq!(symbols.stack(7, &[CONTEXT_USER, 1, 2]), "a:b:c;[unknown];[unknown]");
        assert_eq!(symbols.stack(8, &[]), "[gone]");
        assert_eq!(symbols.stack(7, &[CONTEXT_MOST + 1, 5]), "a:b:c", "of a guest, or of who knows what");
    }

    #[test]
    fn the_function_that_runs_here_has_its_name_and_those_within_it_theirs() {
        #[inline(never)]
        fn here() -> u64 {
            here as fn() -> u64 as usize as u64
        }
        let mut symbols = Symbols::default();
        let pid = std::process::id();
        symbols.meet(pid);
        let stack = symbols.stack(pid, &[CONTEXT_USER, here()]);
        assert!(stack.ends_with("::here"), "{stack}");
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_replaced_library_is_not_named_from_the_program() {
        #[inline(never)]
        fn here() -> u64 {
            here as fn() -> u64 as usize as u64
        }
        /// As large as the pages of any machine.
        const PAGE: u64 = 1 << 16;
        let pid = std::process::id();
        let mut symbols = Symbols::default();
        symbols.meet(pid);
        let mut maps = symbols.processes[&pid].maps.iter();
        let own = maps.find(|mapping| (mapping.begin..mapping.end).contains(&here())).expect("mapped");
        let at = here() - own.begin + own.offset;
        // A file without symbols, of which the part is mapped where the program's file has this function. Nothing may be
        // executed from some machines' directory for temporary files.
        let program = std::env::current_exe().expect("a path");
        let directory = tempfile::tempdir_in(program.parent().expect("a directory")).expect("a directory");
        let path = directory.path().join("library.so");
        let file = File::create_new(&path).expect("created");
        let offset = at - at % PAGE;
        file.set_len(offset + PAGE).expect("set");
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let (descriptor, from) = (file.as_raw_fd(), libc::off_t::try_from(offset).expect("an offset"));
        // SAFETY: a new mapping at an address that the kernel chooses; nothing reads it, and it stays.
        let mapped = unsafe {
            libc::mmap(ptr::null_mut(), PAGE as usize, protection, libc::MAP_PRIVATE, descriptor, from)
        };
        assert_ne!(mapped, libc::MAP_FAILED);
        fs::remove_file(&path).expect("removed");
        let mut symbols = Symbols::default();
        symbols.meet(pid);
        assert_eq!(symbols.user(pid, mapped as u64 + at % PAGE), ["[library.so]"]);
    }

    #[test]
    fn files_that_are_no_programs_have_no_names() {
        let directory = tempfile::tempdir().expect("a directory");
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .expect("a pipe");
        let text = directory.path().join("text");
        fs::write(&text, b"\x7fELF, or so it says").expect("written");
        for path in [fifo, text, directory.path().join("none"), "/dev/zero".into(), directory.path().into()] {
            assert!(Binary::open(&path, u64::MAX).is_none(), "{}", path.display());
        }
        let own = std::env::current_exe().expect("a path");
        assert!(
            Binary::open(&own, u64::MAX).is_some() && Binary::open(&own, 1000).is_none(),
            "what has no room is not read"
        );
        assert_eq!(aside("/d", &[0xab, 0xcd, 0x01]), Some("/d/ab/cd01.debug".into()));
        assert_eq!((aside("/d", &[]), aside("/d", &[1])), (None, None));
    }
}
