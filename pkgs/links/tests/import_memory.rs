//! The memory of an import and an export. They are in a separate process, since its peak would not tell which test
//! caused it.

mod memory;
#[allow(dead_code)]
#[path = "admin/server.rs"]
mod server;

use std::io::{Read, Write};

use ureq::SendBody;

use memory::{memory_kib, peak_kib};

/// Reads an export without keeping it. Returns its length.
fn export(address: std::net::SocketAddr, bearer: &str) -> u64 {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /api/v1/links/export?format=csv HTTP/1.1\r\nHost: h\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
}

const ROWS: u32 = 100_000;

/// A CSV file that is never completely in memory.
struct Rows {
    next: u32,
    until: u32,
    row: std::io::Cursor<Vec<u8>>,
}

impl Read for Rows {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.row.position() == self.row.get_ref().len() as u64 && self.next < self.until {
            let path = "p".repeat(1900);
            self.row =
                std::io::Cursor::new(format!("r{},https://example.com/{path}\n", self.next).into_bytes());
            self.next += 1;
        }
        self.row.read(buffer)
    }
}

#[test]
fn a_hundred_thousand_rows_stream_through_and_out_again() {
    let server = server::Server::start();
    let bearer = format!("Bearer {}", server.write);
    let import = || {
        let rows = Rows { next: 0, until: ROWS, row: std::io::Cursor::new(b"code,target\n".to_vec()) };
        let headers = [("authorization", bearer.as_str()), ("content-type", "text/csv")];
        let reply = server.send("POST", "/api/v1/links/import", &headers, SendBody::from_owned_reader(rows));
        assert_eq!(reply.json()["created"], ROWS, "{}", reply.text());
    };
    let before = memory_kib();
    let grown = peak_kib(import) - before;
    // 190 MB of rows. The writer's page cache takes up to 64 MB, and two batches of 4 MB are in flight.
    assert!(grown < 96 * 1024, "{grown} KiB more at the peak");

    let before = memory_kib();
    let mut bytes = 0;
    let grown = peak_kib(|| bytes = export(server.address, &bearer)) - before.min(memory_kib());
    assert!(bytes > u64::from(ROWS) * 1900, "only {bytes} bytes");
    // A few chunks of 64 KiB are in flight.
    assert!(grown < 24 * 1024, "{grown} KiB more at the peak");
}
