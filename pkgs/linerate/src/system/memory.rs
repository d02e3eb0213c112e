//! How much memory there is.

/// Where the kernel says so.
pub const PATH: &str = "/proc/meminfo";

/// All memory, and how much of it programs can use without swapping, in bytes (proc_meminfo(5)). `text` is [`PATH`]'s.
pub fn parse(text: &str) -> Option<(u64, u64)> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((field("MemTotal:")?, field("MemAvailable:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_the_kernel_writes_them() {
        let text = "MemTotal:       100 kB\nMemFree: 5 kB\nMemAvailable:   40 kB\n";
        assert_eq!(parse(text), Some((102_400, 40_960)));
        assert_eq!(parse("MemTotal: 1 kB"), None);
    }
}
