//! A gateway with a bucket, a meddler in front of it, and servers that use it.

use std::path::PathBuf;
use std::process::Command;

use bench::gateway::{ACCESS_KEY, BUCKET, Gateway, SECRET_KEY};

use crate::meddler::Meddler;
use crate::place::{BINARY, Place, Server};

/// Whether a file is served with this text.
pub fn is(server: &Server, path: &str, text: &str) -> bool {
    let answer = server.get(path, "");
    answer.status == 200 && answer.body == text.as_bytes()
}

/// The gateway, the meddler, and the files of the servers.
pub struct Fixture {
    pub gateway: Gateway,
    pub meddler: Meddler,
    pub place: Place,
}

impl Fixture {
    /// None, with a message, if there is no gateway.
    pub fn new(test: &str) -> Option<Self> {
        let gateway = Gateway::start(test)?;
        let meddler = Meddler::before(gateway.address());
        Some(Self { gateway, meddler, place: Place::new() })
    }

    /// The server's command, with the key for signing.
    pub fn command() -> Command {
        let mut command = Command::new(BINARY);
        Self::signs(&mut command);
        command
    }

    /// Gives a command the key for signing.
    pub fn signs(command: &mut Command) {
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// The cache directory of its servers.
    pub fn cache(&self) -> PathBuf {
        self.place.beside("cache")
    }

    /// A server for the bucket, with these additional flags.
    pub fn serve(&self, flags: &[&str]) -> Server {
        self.serve_by(Self::command(), flags)
    }

    /// The same with a command that ends with the binary's name.
    pub fn serve_by(&self, command: Command, flags: &[&str]) -> Server {
        let (bucket, endpoint) = (format!("s3://{BUCKET}/"), self.meddler.endpoint());
        let cache = self.cache();
        let origin = [
            "--admin",
            "127.0.0.1:0",
            "--origin",
            &bucket,
            "--origin-endpoint",
            &endpoint,
            "--origin-allow-http",
            "--origin-cache",
            cache.to_str().expect("a path of text"),
        ];
        self.place.serve_by(command, &[&origin[..], flags].concat())
    }

    /// The request lines that reached the gateway, without what follows the path.
    pub fn asked(&self) -> Vec<String> {
        let lines = self.meddler.asked().into_iter().map(|asked| {
            let line = asked.line.trim_end_matches(" HTTP/1.1").to_owned();
            line.split_once('?').map_or(line.clone(), |(path, _)| path.to_owned())
        });
        lines.map(|line| line.replace(&format!("/{BUCKET}/"), "/")).collect()
    }
}
