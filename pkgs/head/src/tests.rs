//! What is accepted, what is refused, and why.

use super::*;

fn message(bytes: &str) -> Result<Option<(Message, usize)>, Error> {
    let mut room = room::<100>();
    let Some(lines) = Lines::read(bytes.as_bytes(), &mut room, 16 * 1024)? else { return Ok(None) };
    let mut message = Message::new(lines.old);
    for field in lines.fields {
        message.takes(field.name, field.value)?;
    }
    Ok(Some((message.settle()?, lines.length)))
}

fn whole(bytes: &str) -> Message {
    let (message, length) = message(bytes).expect("a request").expect("a whole head");
    assert_eq!(length, bytes.len(), "{bytes:?}");
    message
}

#[test]
fn part_of_a_head_is_no_head() {
    let bytes = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
    for end in 0..bytes.len() {
        assert!(matches!(message(&bytes[..end]), Ok(None)), "{end}");
    }
    assert!(matches!(message(bytes), Ok(Some(_))));
}

#[test]
fn connections_are_kept_as_the_client_asks() {
    for (version, connection, keep) in [
        ("1.1", "", true),
        ("1.1", "Connection: keep-alive\r\n", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: TE, Close\r\n", false),
        ("1.1", "Connection: close, keep-alive\r\n", false),
        ("1.1", "Connection: close\r\nConnection: keep-alive\r\n", false),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
    ] {
        let bytes = format!("GET / HTTP/{version}\r\nHost: h\r\n{connection}\r\n");
        assert_eq!(whole(&bytes).keep_alive, keep, "{version} {connection}");
    }
}

#[test]
fn a_body_ends_where_the_head_says() {
    for (fields, framing, expects) in [
        ("", Framing::Length(0), false),
        ("Content-Length: 0\r\n", Framing::Length(0), false),
        ("Content-Length: 3\r\n", Framing::Length(3), false),
        ("transfer-encoding: Chunked\r\n", Framing::Chunked, false),
        ("Expect: 100-continue\r\nContent-Length: 3\r\n", Framing::Length(3), true),
        ("Expect: 100-continue\r\n", Framing::Length(0), false),
    ] {
        let message = whole(&format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n"));
        assert_eq!((message.framing, message.expects_continue), (framing, expects), "{fields:?}");
    }
    let old = whole("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert!(!old.expects_continue);
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    for fields in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n",
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: \r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length : 1\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Host: i\r\n",
        "A: b\r\n c\r\n",
        "A: b\r\n\tc\r\n",
        "A: b\n",
        "A: b\rc\r\n",
        "A\0: b\r\n",
        "A: \0\r\n",
        " A: b\r\n",
        ": b\r\n",
        "A b\r\n",
    ] {
        assert!(matches!(message(&with(fields)), Err(Error::Malformed(_))), "{fields:?}");
    }
    for whole in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET / HTTP/1.1\nHost: h\n\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\n",
        "\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /\r\n\r\n",
        "G\u{e9}T / HTTP/1.1\r\nHost: h\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01",
    ] {
        assert!(matches!(message(whole), Err(Error::Malformed(_))), "{whole:?}");
    }
}

#[test]
fn a_bare_lf_is_refused_before_the_head_is_whole() {
    for begun in ["\n", "\r\n\n", "\n\r\n\r\n", "GET / HTTP/1.1\n", "GET / HTTP/1.1\r\nHost: h\n"] {
        assert!(matches!(message(begun), Err(Error::Malformed(_))), "{begun:?}");
    }
}

#[test]
fn a_bare_lf_is_refused_wherever_a_line_ends() {
    for whole in [
        "GET / HTTP/1.1\r\nHost: h\r\nA:  \r\nB: c \r\n\r\n",
        "\r\n\r\nGET / HTTP/1.0\r\nA: b\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        assert!(matches!(message(whole), Ok(Some(_))), "{whole:?}");
        for (at, _) in whole.match_indices("\r\n") {
            let bare = [&whole[..at], &whole[at + 1..]].concat();
            assert!(matches!(message(&bare), Err(Error::Malformed(_))), "{bare:?}");
        }
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let read = |bytes: &str| {
        let mut room = room::<2>();
        Lines::read(bytes.as_bytes(), &mut room, 100).map(|lines| lines.is_some())
    };
    let long = "x".repeat(100);
    for (bytes, error) in [
        (format!("GET /{long}"), Error::TargetTooLong),
        (format!("GET /{long} HTTP/1.1\r\nHost: h\r\n\r\n"), Error::TargetTooLong),
        (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}"), Error::TooLarge),
        (format!("GET / HTTP/1.1\r\nHost: h\r\nA: {long}\r\n\r\n"), Error::TooLarge),
        ("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\nC: d\r\n\r\n".into(), Error::TooLarge),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), Error::Version),
    ] {
        assert_eq!(read(&bytes), Err(error), "{bytes:?}");
    }
    for (fields, error) in [
        ("Expect: more\r\n", Error::Expectation),
        ("Transfer-Encoding: gzip\r\n", Error::Coding),
        ("Transfer-Encoding: chunked, identity\r\n", Error::Coding),
        ("Transfer-Encoding: xchunked\r\n", Error::Coding),
    ] {
        let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        assert_eq!(message(&bytes).err(), Some(error), "{fields:?}");
    }
}
