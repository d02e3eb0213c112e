//! Reading a head allocates no memory, checked by an allocator that counts.

use request_head::{Error, Framing, Lines, Message, room};
use testkit::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Reads a head as servers do, and returns the framing of its body.
fn read(bytes: &[u8]) -> Result<Option<Framing>, Error> {
    let mut room = room::<256>();
    let Some(lines) = Lines::read(bytes, &mut room, 16 * 1024)? else { return Ok(None) };
    let mut message = Message::new(lines.old);
    for field in lines.fields {
        message.takes(field.name, field.value)?;
    }
    Ok(Some(message.settle()?.framing))
}

#[test]
fn the_allocator_counts() {
    assert!(allocations(|| vec![0_u8; 100]).0 > 0);
}

#[test]
fn no_head_takes_memory_however_it_ends() {
    let many: String = (0..200).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let whole = [
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        format!(
            "POST /{} HTTP/1.1\r\nHost: h\r\n{many}Content-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
            "x".repeat(4096)
        ),
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close, x\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned(),
    ];
    for head in &whole {
        let (count, read) = allocations(|| read(head.as_bytes()));
        assert!(matches!(read, Ok(Some(_))), "{head:?}");
        assert_eq!(count, 0, "{head:?}");
    }
    let refused = [
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\nHost: h\n\n".to_owned(),
        "GET /#x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\nHost: h\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
        format!("GET / HTTP/1.1\r\nHost: h\r\n{many}{many}\r\n"),
        format!("GET /{}", "x".repeat(17_000)),
    ];
    for head in &refused {
        let (count, read) = allocations(|| read(head.as_bytes()));
        assert!(read.is_err() && count == 0, "{count}: {head:?}");
    }
    let (count, part) = allocations(|| read(b"GET / HTTP/1.1\r\nHost"));
    assert!(matches!(part, Ok(None)) && count == 0);
}
