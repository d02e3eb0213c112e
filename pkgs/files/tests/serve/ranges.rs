//! Ranges, compared with nginx's answers (RFC 9110, section 14).

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::client::{Answer, Client};
use crate::place::{Place, pattern, until};

/// How many requests are compared.
const REQUESTS: usize = 2_000;

const SIZES: [usize; 6] = [0, 1, 10, 1_000, 5_000, 300_000];

/// nginx with the same files.
struct Nginx {
    process: Child,
    address: SocketAddr,
}

impl Nginx {
    fn start(place: &Place) -> Self {
        let program = bench::setup::require("nginx", "nginx-light").expect("nginx");
        // On an address that no other test listens on, so that what is free there stays so.
        let held = std::net::TcpListener::bind("127.0.0.2:0").expect("a free port");
        let address = held.local_addr().expect("an address");
        drop(held);
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let (root, here) = (place.root(""), place.beside(""));
        let configuration = format!(
            "daemon off; master_process off; {user} pid nginx.pid; error_log stderr crit;\n\
             events {{}}\n\
             http {{ access_log off; keepalive_requests 1000000; default_type application/octet-stream;\n\
             client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;\n\
             server {{ listen {address}; root {}; }} }}\n",
            root.display()
        );
        let file = place.beside("nginx.conf");
        fs::write(&file, configuration).expect("a file");
        let process = Command::new(program)
            .arg("-p")
            .arg(&here)
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx runs");
        until("nginx", || std::net::TcpStream::connect(address).is_ok());
        Self { process, address }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The bytes of its file that an answer has, each checked against the file; none if it has none.
fn covered(answer: &Answer, file: &[u8], of: &str) -> Option<Vec<bool>> {
    let mut covered = vec![false; file.len()];
    let mut part = |range: &str, body: &[u8]| {
        let (range, size) =
            range.strip_prefix("bytes ").and_then(|range| range.split_once('/')).expect("a range");
        let (first, last) = range.split_once('-').expect("a range");
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        assert_eq!(size.parse(), Ok(file.len()), "{of}");
        assert!(body == &file[first..=last], "{of}: {first}-{last}");
        covered[first..=last].fill(true);
    };
    match answer.status {
        200 => {
            assert!(answer.body == file, "{of}");
            return Some(vec![true; file.len()]);
        }
        206 => {}
        416 => {
            assert_eq!(answer.field("content-range"), Some(format!("bytes */{}", file.len())), "{of}");
            return None;
        }
        _ => panic!("{of}: {answer:?}"),
    }
    if let Some(range) = answer.field("content-range") {
        part(&range, &answer.body);
        return Some(covered);
    }
    let kind = answer.field("content-type").expect("a type");
    let boundary =
        kind.strip_prefix("multipart/byteranges; boundary=").unwrap_or_else(|| panic!("{of}: {kind}"));
    let mut rest = answer.body.as_slice();
    let separator = format!("\r\n--{boundary}");
    loop {
        rest = rest.strip_prefix(separator.as_bytes()).unwrap_or_else(|| panic!("{of}: no boundary"));
        if rest == b"--\r\n" {
            return Some(covered);
        }
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
        let head = std::str::from_utf8(&rest[..end]).expect("text").to_ascii_lowercase();
        let range = head.lines().find_map(|line| line.strip_prefix("content-range: ")).expect("a range");
        let (first, last) =
            range.strip_prefix("bytes ").unwrap().split('/').next().unwrap().split_once('-').unwrap();
        let length = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        part(range, &rest[end..end + length]);
        rest = &rest[end + length..];
    }
}

/// Numbers that are the same in each run (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn spec(&mut self, size: u64) -> String {
        let near = |random: &mut Self| match random.below(4) {
            0 => random.below(3),
            1 => (size + 2).saturating_sub(random.below(4)),
            _ => random.below(size + 10),
        };
        let (a, b) = (near(self), near(self));
        match self.below(12) {
            0 => format!("-{a}"),
            1 | 2 => format!("{a}-"),
            // Numbers too large for any file are left out: nginx considers them malformed.
            3 => ["", "-", "x", "1-x", "--1", "1", "+1-2", "0x1-2"][self.below(8) as usize].to_owned(),
            4 => format!("{}-{}", a.max(b), a.min(b)),
            _ => format!("{}-{}", a.min(b), a.max(b)),
        }
    }
}

#[test]
fn nginx_answers_the_same() {
    let place = Place::new();
    for size in SIZES {
        place.file(&format!("f{size}"), pattern(size));
    }
    let server = place.serve(&[]);
    let nginx = Nginx::start(&place);
    let (mut ours, mut theirs) = (server.connect(), Client::connect(nginx.address));
    let mut random = Random(42);
    let (mut partial, mut refused, mut whole, mut merged) = (0, 0, 0, 0);
    for _ in 0..REQUESTS {
        let size = SIZES[random.below(SIZES.len() as u64) as usize];
        let file = pattern(size);
        let count = 1 + random.below(2) * random.below(5);
        let specs: Vec<String> = (0..count).map(|_| random.spec(size as u64)).collect();
        let unit = ["bytes", "bytes", "bytes", "BYTES", "lines"][random.below(5) as usize];
        let of = format!("Range: {unit}={} of {size}", specs.join(","));
        let fields = format!("Range: {unit}={}\r\n", specs.join(","));
        let mine = ours.get(&format!("/f{size}"), &fields);
        let other = theirs.get(&format!("/f{size}"), &fields);
        let (mine_covers, other_covers) = (covered(&mine, &file, &of), covered(&other, &file, &of));
        match mine.status {
            206 => partial += 1,
            416 => refused += 1,
            _ => whole += 1,
        }
        if mine_covers == other_covers {
            continue;
        }
        // An empty list element has to be ignored (RFC 9110, section 5.6.1.2); nginx refuses it.
        let has_empty = specs.len() > 1 && specs.iter().any(String::is_empty);
        // Overlapping ranges are merged here; nginx sends the whole file if the ranges add up to more.
        let sum_exceeds = other.status == 200 && mine.status == 206 && specs.len() > 1;
        assert!(has_empty || sum_exceeds, "{of}: {} against nginx's {}", mine.status, other.status);
        merged += 1;
    }
    let _ = writeln!(
        std::io::stderr(),
        "{partial} partial, {refused} refused, {whole} whole; {merged} where nginx does not merge or ignore"
    );
    assert!(partial > 500 && refused > 100 && whole > 100 && merged < REQUESTS / 10);
}

#[test]
fn ranges_of_a_large_file_are_right_by_every_engine() {
    let place = Place::new();
    let file = pattern(3_000_001);
    place.file("f", &file);
    for engine in ["auto", "sendfile", "splice", "copy"] {
        let server = place.serve(&["--engine", engine]);
        let mut client = server.connect();
        for value in
            ["0-0", "1-", "-1", "999999-2000000", "2999999-", "5-9,1000000-1999999,-7", "0-0,2-2,4-4,6-6"]
        {
            let answer = client.get("/f", &format!("Range: bytes={value}\r\n"));
            assert_eq!(answer.status, 206, "{engine} {value}");
            covered(&answer, &file, value);
        }
    }
}
