//! Plain HTTP/2 requests that are answered before h2 sees them, frame by frame.

use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use listener::{Config, Endpoint, Http2, Limits};

use crate::fast_path;
use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, PING, PREFACE,
    PROTOCOL_ERROR, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame,
};
use crate::server::{Client, PATIENCE, Server};

const PRIORITY: u8 = 2;
const ACK: u8 = 1;
const WHOLE: u8 = END_STREAM | END_HEADERS;
const STREAM_CLOSED: u8 = 5;
const COMPRESSION_ERROR: u8 = 9;

/// A received frame.
#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// An HTTP/2 connection, and how many requests its server's fast path has answered.
struct Connection {
    client: Client,
    answered: Arc<AtomicUsize>,
    /// How many bytes of DATA have arrived.
    received: usize,
}

impl Connection {
    /// A connection on which both sides know both sides' settings.
    fn open((server, answered): &(Server, Arc<AtomicUsize>), settings: &[u8]) -> Self {
        let mut client = server.connect();
        client.send(PREFACE).send(frame(SETTINGS, 0, 0, settings));
        let mut connection = Self { client, answered: Arc::clone(answered), received: 0 };
        let mut acknowledged = false;
        let mut told = false;
        while !(acknowledged && told) {
            let frame = connection.next();
            acknowledged |= (frame.kind, frame.flags) == (SETTINGS, ACK);
            told |= (frame.kind, frame.flags) == (SETTINGS, 0);
        }
        connection.send(frame(SETTINGS, ACK, 0, b""));
        connection
    }

    /// A connection whose client accepts another MiB, and has sent the service a request.
    fn ready(server: &(Server, Arc<AtomicUsize>)) -> Self {
        let mut connection = Self::open(server, b"");
        connection.send(frame(WINDOW_UPDATE, 0, 0, b"\0\x10\0\0"));
        assert_eq!(connection.ask(1, "/").body(1), b"Hello, World!");
        connection
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.client.send(bytes);
        self
    }

    fn ask(&mut self, stream: u32, path: &str) -> &mut Self {
        self.send(frame(HEADERS, WHOLE, stream, &get(path)))
    }

    fn next(&mut self) -> Frame {
        let mut head = [0; 9];
        self.client.0.read_exact(&mut head).expect("a frame");
        let [a, b, c, kind, flags, id @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.client.0.read_exact(&mut payload).expect("a whole frame");
        if kind == DATA {
            self.received += payload.len();
        }
        Frame { kind, flags, stream: u32::from_be_bytes(id), payload }
    }

    /// The body of the answer on this stream; frames for others in the meantime are ignored.
    fn body(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let Frame { kind, flags, stream: of, payload } = self.next();
            assert!(![RST_STREAM, GOAWAY].contains(&kind), "{kind} {of} {payload:?}");
            if of == stream {
                if kind == DATA {
                    body.extend_from_slice(&payload);
                }
                if flags & END_STREAM != 0 {
                    return body;
                }
            }
        }
    }

    /// What arrives until the server has seen everything that was sent.
    fn until_seen(&mut self) -> Vec<Frame> {
        self.send(frame(PING, 0, 0, b"are here"));
        let mut frames = Vec::new();
        loop {
            let frame = self.next();
            if (frame.kind, frame.flags) == (PING, ACK) {
                return frames;
            }
            frames.push(frame);
        }
    }

    /// How the server ends the connection: the last stream it names, and the error.
    fn goaway(&mut self) -> (u32, u8) {
        loop {
            let Frame { kind, payload, .. } = self.next();
            if kind == GOAWAY {
                let last = u32::from_be_bytes(*payload.first_chunk().expect("a stream"));
                return (last, payload[7]);
            }
        }
    }

    fn answered(&self) -> usize {
        self.answered.load(Relaxed)
    }
}

/// `GET` for this path at `http://h` in HPACK (RFC 7541), without adding to the table.
fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).ok().filter(|length| *length < 127).expect("a short path");
    [b"\x82\x86\x01\x01h\x04", &[length][..], path.as_bytes()].concat()
}

#[test]
fn a_plain_request_is_answered_beside_those_of_the_service() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    for (n, (path, body, fast)) in [
        ("/fast/1", &b"/1"[..], 1),
        ("/", b"Hello, World!", 1),
        ("/fast", b"", 2),
        ("/none", b"no such thing", 2),
        ("/fast/2", b"/2", 3),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = 2 * n as u32 + 3;
        assert_eq!(connection.ask(stream, path).body(stream), body, "{path}");
        assert_eq!(connection.answered(), fast, "{path}");
    }
    // With HEAD there is no body, and a priority makes no difference.
    let head = [&b"\x02\x04HEAD"[..], &get("/fast/3")[1..]].concat();
    let prioritised = [&b"\0\0\0\x01\x0f"[..], &head].concat();
    connection.send(frame(HEADERS, WHOLE, 21, &head)).send(frame(HEADERS, WHOLE | 0x20, 23, &prioritised));
    for stream in [21, 23] {
        let answer = connection.next();
        assert_eq!((answer.kind, answer.flags, answer.stream), (HEADERS, WHOLE, stream));
        assert_eq!(answer.payload[0], 0x88, "it is :status 200");
    }
    assert_eq!(connection.answered(), 5);
}

#[test]
fn requests_in_pieces_are_whole_before_they_are_answered() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    let bytes = |stream| {
        let update = frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x09");
        let request = frame(HEADERS, WHOLE, stream, &get("/fast/piece"));
        let posted = [b"\x83\x86\x01\x01h\x04\x05/read", &b""[..]].concat();
        let post = frame(HEADERS, END_HEADERS, stream + 2, &posted);
        [update, request, post, frame(DATA, END_STREAM, stream + 2, b"abc")].concat()
    };
    let length = bytes(3).len();
    let mut stream = 3;
    for cut in 0..length {
        let bytes = bytes(stream);
        connection.send(&bytes[..cut]).send(&bytes[cut..]);
        assert_eq!(connection.body(stream), b"/piece", "{cut}");
        assert_eq!(connection.body(stream + 2), b"3 bytes", "{cut}");
        stream += 4;
    }
    for byte in bytes(stream) {
        connection.send([byte]);
    }
    assert_eq!(connection.body(stream), b"/piece");
    assert_eq!(connection.body(stream + 2), b"3 bytes");
    assert_eq!(connection.answered(), length + 1);
}

/// The result of a request with this field section: the type of the frame that shows it, and its start.
fn outcome(server: &(Server, Arc<AtomicUsize>), block: &[u8]) -> (u8, Vec<u8>) {
    let mut connection = Connection::ready(server);
    connection.send(frame(HEADERS, WHOLE, 3, block));
    loop {
        let Frame { kind, payload, .. } = connection.next();
        match kind {
            HEADERS => return (kind, payload[..1].to_vec()),
            RST_STREAM => return (kind, payload),
            // The last stream, and the error.
            GOAWAY => return (kind, payload[..8].to_vec()),
            _ => {}
        }
    }
}

#[test]
fn what_is_odd_is_answered_or_refused_as_without_a_fast_path() {
    let server = fast_path::start(Config::default());
    let without = (Server::start(Endpoint::h2c, Config::default()), Arc::default());
    let line = |line: &[u8]| [&get("/fast/odd")[..], line].concat();
    let with = |at: usize, byte: u8| {
        let mut block = get("/fast/odd");
        block[at] = byte;
        block
    };
    for block in [
        line(b"\x00\x0aconnection\x05close"),
        line(b"\x00\x02te\x04gzip"),
        line(b"\x00\x02te\x08trailers"),
        line(b"\x00\x11transfer-encoding\x07chunked"),
        line(b"\x00\x07upgrade\x03h2c"),
        line(b"\x00\x01A\x01b"),
        line(b"\x00\x01a\x02b\n"),
        line(b"\x00\x01a\x01b\x82"),
        line(b"\x82"),
        line(b"\x00\x07:status\x03200"),
        line(b"\x00\x0econtent-length\x010"),
        line(b"\x00\x0econtent-length\x011"),
        line(b"\x00\x06expect\x04more"),
        line(b"\x0f\x17\x01h"),
        // POST, and a path that is empty or has another form.
        with(0, 0x83),
        get(""),
        get("fast/odd"),
        get("*"),
        line(b"\x40\x00\x01a"),
        // More than allowed: in one line, in many, and in many identical ones.
        line(&[b"\x00\x01a\x7f\xc9\x7d", &[b'x'; 16_200][..]].concat()),
        line(&b"\x00\x01a\x01b".repeat(500)),
        line(&[b"\x40\x01a\x01b", &[0xbe; 600][..]].concat()),
    ] {
        assert_eq!(outcome(&server, &block), outcome(&without, &block), "{}", block.escape_ascii());
        assert_eq!(server.1.load(Relaxed), 0, "{}", block.escape_ascii());
    }
}

#[test]
fn what_cannot_be_read_ends_the_connection() {
    let server = fast_path::start(Config::default());
    let line = |line: &[u8]| [&get("/fast/odd")[..], line].concat();
    for (block, error) in [
        // A size of the table that comes late or is too large, and entries that don't exist.
        (line(b"\x20"), COMPRESSION_ERROR),
        ([b"\x3f\xe2\x1f", &get("/fast/odd")[..]].concat(), COMPRESSION_ERROR),
        (line(b"\xbe"), COMPRESSION_ERROR),
        (line(b"\x80"), COMPRESSION_ERROR),
        // It ends within a line.
        (line(b"\x00\x05abc"), COMPRESSION_ERROR),
        // Four times as much as allowed, with its own entry and many references to it.
        (line(&[b"\x40\x01a\x7f\x85\x1e", &[b'x'; 3972][..], &[0xbe; 30]].concat()), ENHANCE_YOUR_CALM),
    ] {
        let mut connection = Connection::ready(&server);
        connection.ask(3, "/fast/1").send(frame(HEADERS, WHOLE, 5, &block)).ask(7, "/fast/2");
        assert_eq!(connection.goaway(), (3, error), "{}", block.escape_ascii());
        connection.client.rest();
    }
    assert_eq!(server.1.load(Relaxed), 6);
}

#[test]
fn a_client_s_table_holds_for_what_is_answered_here_and_for_what_is_not() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    let post = |line: &[u8]| [b"\x83\x86\x01\x01h\x04\x05/read", line].concat();
    // The table keeps the path. The next request refers to it, and another one does after further entries have changed
    // its index.
    connection.send(frame(HEADERS, WHOLE, 3, b"\x82\x86\x01\x01h\x44\x0a/fast/kept"));
    connection.send(frame(HEADERS, WHOLE, 5, b"\x82\x86\x01\x01h\xbe"));
    connection.send(frame(HEADERS, END_HEADERS, 7, &post(b"\x40\x01a\x01b")));
    // A trailer, which is kept as well.
    connection.send(frame(DATA, 0, 7, b"abc")).send(frame(HEADERS, WHOLE, 7, b"\x40\x01c\x01d"));
    connection.send(frame(HEADERS, WHOLE, 9, b"\x82\x86\x01\x01h\xc0"));
    // A request that the service refuses has been read nevertheless.
    connection.send(frame(HEADERS, WHOLE, 11, b"\x82\x86\x01\x01h\x44\x05/none\x40\x0aconnection\x01b"));
    connection.send(frame(HEADERS, WHOLE, 13, b"\x82\x86\x01\x01h\xbf"));
    connection.send(frame(HEADERS, WHOLE, 15, b"\x82\x86\x01\x01h\xc2"));
    let mut bodies = std::collections::BTreeMap::<u32, Vec<u8>>::new();
    while bodies.len() < 6 {
        let Frame { kind, flags, stream, payload } = connection.next();
        assert_ne!(kind, GOAWAY, "{payload:?}");
        if kind == RST_STREAM {
            assert_eq!((stream, payload[3]), (11, PROTOCOL_ERROR));
        } else if kind == DATA && (flags & END_STREAM != 0 || !payload.is_empty()) {
            bodies.entry(stream).or_default().extend(payload);
        }
    }
    for (stream, body) in
        [(3, "/kept"), (5, "/kept"), (7, "3 bytes"), (9, "/kept"), (13, "no such thing"), (15, "/kept")]
    {
        assert_eq!(String::from_utf8_lossy(&bodies[&stream]), body, "{stream}");
    }
    assert_eq!(connection.answered(), 4);
}

#[test]
fn the_first_request_is_answered_at_once_where_it_comes_with_all_else() {
    let server = fast_path::start(Config::default());
    let mut client = server.0.connect();
    let settings = frame(SETTINGS, 0, 0, b"\0\x01\0\x01\0\0\0\x04\0\x60\0\0");
    let window = frame(WINDOW_UPDATE, 0, 0, b"\0\xef\0\x01");
    client.send([PREFACE, &settings, &window, &frame(HEADERS, WHOLE, 1, &get("/fast/1"))].concat());
    client.until(b"/1");
    assert_eq!(server.1.load(Relaxed), 1);
}

#[test]
fn what_belongs_to_an_answered_stream_does_no_harm() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    for stream in (3..1003).step_by(2) {
        connection.ask(stream, "/fast/x");
        connection.send(frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\x02"));
    }
    assert_eq!(connection.body(1001), b"/x");
    connection.send(frame(PRIORITY, 0, 1001, b"\0\0\0\0\x0f"));
    connection.send(frame(RST_STREAM, 0, 1001, b"\0\0\0\x08"));
    assert!(connection.until_seen().is_empty());
    // h2 considers those streams skipped.
    assert_eq!(connection.ask(1003, "/").body(1003), b"Hello, World!");
    connection.send(frame(RST_STREAM, 0, 501, b"\0\0\0\x08"));
    connection.send(frame(WINDOW_UPDATE, 0, 501, b"\0\0\0\x02"));
    assert!(connection.until_seen().is_empty());
    assert_eq!(connection.answered(), 500);
}

#[test]
fn what_may_not_come_on_an_answered_stream_ends_the_connection() {
    let server = fast_path::start(Config::default());
    for (kind, stream, payload, error) in [
        (DATA, 9, &b"a"[..], STREAM_CLOSED),
        (HEADERS, 9, b"\x82", STREAM_CLOSED),
        (DATA, 5, b"a", STREAM_CLOSED),
        (HEADERS, 5, b"\x82", PROTOCOL_ERROR),
        (WINDOW_UPDATE, 11, b"\0\0\0\x02", PROTOCOL_ERROR),
        (RST_STREAM, 11, b"\0\0\0\x08", PROTOCOL_ERROR),
        (CONTINUATION, 9, b"\x82", PROTOCOL_ERROR),
    ] {
        let mut connection = Connection::ready(&server);
        let before = connection.answered();
        connection.ask(5, "/fast/1").ask(9, "/fast/2").send(frame(kind, WHOLE, stream, payload));
        // Nothing after it is looked at.
        connection.ask(21, "/fast/3");
        assert_eq!(connection.goaway(), (9, error), "{kind} {stream}");
        connection.client.rest();
        assert_eq!(connection.answered() - before, 2);
        // The server counts its answers over the whole test.
        server.1.store(0, Relaxed);
    }
}

#[test]
fn a_frame_within_a_field_section_ends_the_connection() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    connection.ask(3, "/fast/1");
    connection.send(frame(HEADERS, END_STREAM, 5, &get("/fast/2"))).ask(7, "/fast/3");
    assert_eq!(connection.goaway(), (3, PROTOCOL_ERROR));
    assert_eq!(connection.answered(), 1);
    server.1.store(0, Relaxed);
    let mut connection = Connection::ready(&server);
    let (first, rest) = (get("/fast/2")[..4].to_vec(), get("/fast/2")[4..].to_vec());
    connection.send(frame(HEADERS, END_STREAM, 5, &first)).send(frame(CONTINUATION, END_HEADERS, 5, &rest));
    assert_eq!(connection.body(5), b"/2");
}

#[test]
fn resets_of_answered_streams_are_shed() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    let mut flood = Vec::new();
    for stream in (3..4003).step_by(2) {
        flood.extend(frame(HEADERS, WHOLE, stream, &get("/fast/x")));
        flood.extend(frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
    }
    connection.send(flood);
    let (last, error) = connection.goaway();
    assert_eq!(error, ENHANCE_YOUR_CALM);
    assert_eq!(last as usize, 2 * connection.answered() + 1, "it names the last that was answered");
    assert!(connection.answered() < 1000);
}

#[test]
fn a_client_is_sent_no_more_than_it_takes() {
    // Most of these requests wait for their answers at once.
    let http2 = Http2 { streams: 256, ..Http2::default() };
    let server = fast_path::start(Config { http2, ..Config::default() });
    // The connection's window: 65,535 bytes until the client extends it.
    let mut connection = Connection::open(&server, b"");
    connection.send(frame(HEADERS, WHOLE, 1, &[b"\x20", &get("/")[..]].concat()));
    connection.body(1);
    let mut stream = 1;
    let mut all = connection.received;
    let mut taken = 65_535;
    for increment in [0_u32, 1, 1000, 50_000, 7, 70_000] {
        if increment > 0 {
            connection.send(frame(WINDOW_UPDATE, 0, 0, &increment.to_be_bytes()));
            taken += increment as usize;
        }
        for _ in 0..20 {
            stream += 2;
            connection.ask(stream, "/fast/size/3000").ask(stream + 2, "/fast/size/300");
            all += 3300;
            stream += 2;
        }
        while connection.received < taken.min(all) {
            connection.next();
        }
        connection.until_seen();
        assert_eq!(connection.received, taken.min(all), "{increment}");
    }
    assert!(connection.answered() > 0 && taken < all);
    connection.send(frame(WINDOW_UPDATE, 0, 0, b"\0\x10\0\0"));
    while connection.received < all {
        connection.next();
    }
}

#[test]
fn a_client_is_sent_no_more_than_a_stream_takes() {
    let server = fast_path::start(Config::default());
    // SETTINGS_INITIAL_WINDOW_SIZE is 10.
    let mut connection = Connection::open(&server, b"\0\x04\0\0\0\x0a");
    connection.send(frame(WINDOW_UPDATE, 0, 0, b"\0\x10\0\0"));
    connection.ask(1, "/fast").body(1);
    assert_eq!(connection.ask(3, "/fast/size/10").body(3).len(), 10);
    assert_eq!(connection.answered(), 2);
    let before = connection.received;
    connection.ask(5, "/fast/size/11");
    while connection.received < before + 10 {
        connection.next();
    }
    connection.until_seen();
    assert_eq!(connection.received, before + 10);
    connection.send(frame(WINDOW_UPDATE, 0, 5, b"\0\0\0\x01"));
    assert_eq!(connection.body(5), b"x");
}

#[test]
fn what_is_too_large_for_here_is_answered_once_all_the_same() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    for (n, size) in [16_384, 16_385, 60_000].into_iter().enumerate() {
        let stream = 2 * n as u32 + 3;
        assert_eq!(connection.ask(stream, &format!("/fast/size/{size}")).body(stream).len(), size);
        assert_eq!(connection.answered(), n + 1, "the service is not asked as well");
    }
}

#[test]
fn answers_come_between_the_frames_of_others() {
    let server = fast_path::start(Config::default());
    // The streams' windows are as large as possible, and so is the connection's.
    let mut connection = Connection::open(&server, b"\0\x04\x7f\xff\xff\xff");
    connection.send(frame(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff_u32 - 65_535).to_be_bytes()));
    connection.send(frame(HEADERS, WHOLE, 1, &[b"\x20", &get("/large")[..]].concat()));
    let mut stream = 1;
    let (mut large, mut small) = (0, 0);
    while large < 64 << 20 {
        if stream < 2001 {
            stream += 2;
            connection.ask(stream, "/fast/small");
        }
        let Frame { kind, stream, payload, .. } = connection.next();
        match (kind, stream) {
            (DATA, 1) => {
                assert!(payload.iter().all(|byte| *byte == b'x'));
                large += payload.len();
            }
            (DATA, _) => {
                assert_eq!(payload, b"/small");
                small += 1;
            }
            _ => assert!([HEADERS, WINDOW_UPDATE, PING].contains(&kind), "{kind}"),
        }
    }
    while small < 1000 {
        let frame = connection.next();
        small += usize::from(frame.kind == DATA && frame.stream > 1);
    }
    assert_eq!((large, small, connection.answered()), (64 << 20, 1000, 1000));
}

#[test]
fn a_client_that_gives_its_server_no_table_hears_so_from_h2_first() {
    let server = fast_path::start(Config::default());
    // SETTINGS_HEADER_TABLE_SIZE is 0: the next field section has to acknowledge that.
    let mut connection = Connection::open(&server, b"\0\x01\0\0\0\0");
    let post = [b"\x20\x83\x86\x01\x01h\x04\x05/read", &b""[..]].concat();
    connection.send(frame(HEADERS, END_HEADERS, 1, &post)).ask(3, "/fast/1");
    let first = loop {
        let frame = connection.next();
        if frame.kind == HEADERS {
            break frame;
        }
    };
    assert_eq!((first.stream, first.payload[0], connection.answered()), (3, 0x20, 0));
    assert_eq!(connection.body(3), b"/1");
    assert_eq!(connection.ask(5, "/fast/2").send(frame(DATA, END_STREAM, 1, b"")).body(1), b"0 bytes");
    assert_eq!(connection.answered(), 1);
}

#[test]
fn a_panic_costs_one_stream() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    connection.ask(3, "/fast/panic").ask(5, "/fast/1");
    let answer = connection.next();
    assert_eq!((answer.kind, answer.stream, answer.payload[0]), (HEADERS, 3, 0x8e), "it is :status 500");
    assert_eq!(connection.body(5), b"/1");
}

#[test]
fn what_was_answered_is_named_when_it_drains() {
    // Until it is known that the client has received the GOAWAY, what arrives goes to the service.
    for (late, last) in [(false, 7), (true, 9)] {
        let config = Config { drain: PATIENCE, drain_grace: PATIENCE, ..Config::default() };
        let server = fast_path::start(config);
        let mut connection = Connection::ready(&server);
        assert_eq!(connection.ask(3, "/").body(3), b"Hello, World!");
        assert_eq!(connection.ask(7, "/fast/1").body(7), b"/1");
        server.0.stop();
        assert_eq!(connection.goaway(), (u32::MAX >> 1, 0));
        let ping = loop {
            let frame = connection.next();
            if (frame.kind, frame.flags) == (PING, 0) {
                break frame;
            }
        };
        if late {
            assert_eq!(connection.ask(9, "/fast/2").body(9), b"/2");
        }
        assert_eq!(connection.answered(), 1);
        connection.send(frame(PING, ACK, 0, &ping.payload));
        assert_eq!(connection.goaway(), (last, 0));
        connection.client.rest();
        server.0.wait();
    }
}

#[test]
fn who_has_asked_for_all_it_wants_is_answered_before_the_end() {
    let server = fast_path::start(Config::default());
    let mut connection = Connection::ready(&server);
    for stream in (3..2003).step_by(2) {
        connection.ask(stream, "/fast/x");
    }
    // The last one has only started.
    connection.send(&frame(HEADERS, WHOLE, 2003, &get("/fast/x"))[..15]);
    connection.client.0.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(connection.body(2001), b"/x");
    connection.client.rest();
    assert_eq!(connection.answered(), 1000);
}

#[test]
fn a_client_that_takes_no_answers_is_answered_no_more_and_cut() {
    let limits = Limits { write_stall: Duration::from_millis(500), ..Limits::default() };
    let server = fast_path::start(Config { limits, ..Config::default() });
    let mut connection = Connection::ready(&server);
    connection.send(frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes()));
    // Some MiB are in the sockets' buffers, and little beyond that.
    let count = 50_000_u32;
    let mut sending = Client(connection.client.0.try_clone().expect("a clone"));
    let sender = std::thread::spawn(move || {
        for stream in 1..=count {
            sending.send(frame(HEADERS, WHOLE, 2 * stream + 1, &get("/fast/size/16000")));
        }
    });
    // The server cuts a client that reads nothing.
    let (server, answered) = server;
    testkit::until("the client is cut", || server.metrics.sum(|worker| &worker.timed_out) > 0);
    assert!(answered.load(Relaxed) < count as usize);
    sender.join().expect("no panic");
}
