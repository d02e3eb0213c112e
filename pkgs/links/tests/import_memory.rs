//! An import's memory, in a process of its own: the peak would not tell one test from another.

#[allow(dead_code)]
#[path = "admin/server.rs"]
mod server;

use std::io::Read;

use ureq::SendBody;

/// The process's peak of resident memory, in KiB (proc_pid_status(5)).
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A CSV file that is never in memory as a whole.
struct Rows {
    next: u32,
    until: u32,
    row: std::io::Cursor<Vec<u8>>,
}

impl Read for Rows {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.row.position() == self.row.get_ref().len() as u64 && self.next < self.until {
            let path = "p".repeat(1000);
            self.row =
                std::io::Cursor::new(format!("r{},https://example.com/{path}\n", self.next).into_bytes());
            self.next += 1;
        }
        self.row.read(buffer)
    }
}

#[test]
fn a_hundred_thousand_rows_stream_through() {
    let server = server::Server::start();
    let bearer = format!("Bearer {}", server.write);
    let import = |from, until| {
        let rows = Rows { next: from, until, row: std::io::Cursor::new(b"code,target\n".to_vec()) };
        let headers = [("authorization", bearer.as_str()), ("content-type", "text/csv")];
        let reply = server.send("POST", "/api/v1/links/import", &headers, SendBody::from_owned_reader(rows));
        assert_eq!(reply.json()["created"], until - from, "{}", reply.text());
    };
    // The first batches warm every buffer up; the rest, 90 MB of rows, must need next to nothing more.
    import(0, 20_000);
    let before = peak_kib();
    import(20_000, 110_000);
    let grown = peak_kib().saturating_sub(before);
    assert!(grown < 48 * 1024, "{grown} KiB more at the peak");
}
