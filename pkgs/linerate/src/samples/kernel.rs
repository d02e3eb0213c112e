//! The kernel's functions by address (`/proc/kallsyms`).

use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// The longest file, in bytes: ten times the size for a kernel with all its modules.
const MOST: u64 = 128 << 20;

/// The kernel's functions, sorted by start address.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    functions: Vec<(u64, Box<str>)>,
}

impl Kernel {
    /// The running kernel's functions; none if it hides their addresses (`kernel.kptr_restrict`).
    pub(super) fn read() -> Self {
        match File::open("/proc/kallsyms") {
            Ok(file) => Self::parse(BufReader::new(file.take(MOST))),
            Err(_) => Self::default(),
        }
    }

    fn parse(lines: impl BufRead) -> Self {
        let mut functions = Vec::new();
        for line in lines.lines().map_while(Result::ok) {
            let mut fields = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if let (Ok(address), "t" | "T" | "w" | "W") = (u64::from_str_radix(address, 16), kind)
                && address != 0
            {
                functions.push((address, name.into()));
            }
        }
        functions.sort_unstable_by_key(|(address, _)| *address);
        Self { functions }
    }

    /// The function that contains an address.
    pub(super) fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|(begin, _)| *begin <= address);
        self.functions.get(after.checked_sub(1)?).map(|(_, name)| name.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_the_function_that_begins_before_it() {
        let text =
            "ffff20 T second\nffff10 t first\nffff18 d data\nffff30 W third\t[module]\nodd\n0000 T hidden\n";
        let kernel = Kernel::parse(text.as_bytes());
        for (address, name) in [
            (0xffff0f, None),
            (0xffff10, Some("first")),
            (0xffff1f, Some("first")),
            (0xffff20, Some("second")),
            (0xffffff, Some("third")),
        ] {
            assert_eq!(kernel.name(address), name, "{address:x}");
        }
        assert_eq!(Kernel::parse("0000 T a\n0000 t b\n".as_bytes()).name(1), None, "hidden by kptr_restrict");
    }
}
