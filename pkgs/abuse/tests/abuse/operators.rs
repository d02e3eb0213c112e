//! Crowds on the admin listeners, over TCP and Unix sockets. An admin listener has slots for a few hundred clients.
//! Idle clients give up their slots at once for clients that request health and metrics.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use abuse::client::narrow;
use abuse::program::{PATIENCE, Place, Program, raise_file_limit};

/// More than any admin listener has slots for.
const CROWD: usize = 300;

/// How often the listener is requested beside each crowd.
const VISITS: usize = 3;

/// The address of an admin listener.
enum Door {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection to a door.
trait Stream: Read + Write {
    fn set_nonblocking(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        TcpStream::set_nonblocking(self, true)
    }
}

impl Stream for UnixStream {
    fn set_nonblocking(&self) -> io::Result<()> {
        UnixStream::set_nonblocking(self, true)
    }
}

impl Door {
    /// A connection, with a small receive buffer if that can be set.
    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = narrow(*address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// The status of an answer on a new connection.
    fn visit(&self, target: &str) -> io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(
            format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
    }
}

/// What the members of a crowd send at first, and the bytes that they then repeat.
fn habits() -> Vec<(&'static str, String, &'static [u8])> {
    let get = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let form = "POST /healthz HTTP/1.1\r\nHost: localhost\r\n";
    vec![
        ("who say nothing", String::new(), b""),
        ("who say half a head", "GET / HT".to_owned(), b""),
        ("who drip a head", format!("{form}X: y"), b"y"),
        ("who say half a body", format!("{form}Content-Length: 1000\r\n\r\nhalf"), b""),
        ("who drip a body", format!("{form}Content-Length: 1000\r\n\r\nhalf"), b"y"),
        ("who are idle", get.to_owned(), b""),
        // So many requests that no buffer holds the answers.
        ("who never read", get.repeat(400), b""),
    ]
}

/// What is wrong with an admin listener beside each crowd in turn.
fn hold(name: &str, door: &Door) -> Vec<String> {
    let mut wrong = Vec::new();
    for (habit, begin, drip) in habits() {
        let mut crowd = Vec::new();
        for _ in 0..CROWD {
            let Ok(mut client) = door.connect() else { break };
            client.set_nonblocking().expect("an option");
            // Sends as much as is accepted.
            let _ = client.write(begin.as_bytes());
            crowd.push(client);
        }
        for _ in 0..VISITS {
            for client in &mut crowd {
                let _ = client.write(drip);
            }
            for target in ["/healthz", "/metrics"] {
                match door.visit(target) {
                    Ok(status) if status == "200" => {}
                    told => {
                        wrong.push(format!("{name}: beside {} {habit}, {target} gets {told:?}", crowd.len()))
                    }
                }
            }
        }
        if crowd.len() < CROWD {
            wrong.push(format!("{name}: {} of {CROWD} {habit} could connect", crowd.len()));
        }
    }
    wrong
}

/// Sends the crowds to one service, over TCP and over a Unix socket.
fn hold_service(name: &str, own: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for unix in [false, true] {
        let place = Place::new();
        place.file("root/a", "a");
        let path = place.path("admin.sock");
        let admin = if unix { format!("unix:{}", path.display()) } else { "127.0.0.1:0".to_owned() };
        let flags = ["--listen", "127.0.0.1:0", "--workers", "1", "--admin", &admin];
        let program = Program::serve(name, &place, &[&flags[..], own].concat());
        let door = if unix { Door::Unix(path) } else { Door::Tcp(program.listens("admin", "http")) };
        let kind = if unix { "a Unix socket" } else { "TCP" };
        wrong.extend(hold(&format!("{name} by {kind}"), &door));
        program.assert_runs("crowds of operators");
    }
    wrong
}

#[test]
fn crowds_keep_nobody_from_health_and_metrics() {
    raise_file_limit();
    let services: [(&str, &[&str]); 3] = [
        ("links", &["--database", "links.db"]),
        ("api", &["--database-url", "sqlite:users.db"]),
        ("files", &["--root", "root"]),
    ];
    let wrong: Vec<_> = services.iter().flat_map(|(name, own)| hold_service(name, own)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
