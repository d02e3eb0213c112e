//! Load from wrk, and its result.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::h2load::{self, Streams};
use crate::server::{Placement, Server};

pub use crate::load::{Load, Outcome};

/// What each connection requests.
#[derive(Clone, Debug)]
pub struct Requests {
    /// The path of every request, unless `script` says otherwise.
    pub path: String,
    /// Lua that defines wrk's `setup`, `init` or `request`; may be empty. `done` is taken.
    pub script: String,
    /// The status of every answer.
    pub status: u16,
    /// Uses HTTP/2 and h2load, which has neither scripts nor content, instead of HTTP/1.1 and wrk.
    pub http2: Option<Streams>,
    /// Sent with POST; without it, every request is a GET.
    pub content: Option<Content>,
    /// The server's TLS address; if absent, its usual address is used without TLS.
    pub secure: Option<SocketAddr>,
}

/// The content of a POST.
#[derive(Clone, Debug)]
pub struct Content {
    /// Its media type.
    pub media_type: &'static str,
    /// UTF-8, without anything that ends a Lua string in long brackets (`]==]`).
    pub text: String,
}

/// Makes wrk print its own figures exactly instead of rounding them for people.
const DONE: &str = r#"
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format('\n{"requests":%d,"elapsed_us":%d,"p50_us":%d,"p99_us":%d,"socket_errors":%d,"status_errors":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.timeout, errors.status))
end
"#;

#[derive(Deserialize)]
struct Summary {
    requests: u64,
    elapsed_us: u64,
    p50_us: u64,
    p99_us: u64,
    socket_errors: u64,
    /// Answers with a status above 399.
    status_errors: u64,
}

impl Requests {
    /// The same path, over and over.
    pub fn same(path: &str, status: u16) -> Self {
        Self::scripted(path, String::new(), status)
    }

    /// Requests that `script` makes; `path` is one of them.
    pub fn scripted(path: impl Into<String>, script: String, status: u16) -> Self {
        Self { path: path.into(), script, status, http2: None, content: None, secure: None }
    }

    /// The same content to the same path, over and over.
    pub fn posting(path: &str, content: Content, status: u16) -> Self {
        Self { content: Some(content), ..Self::same(path, status) }
    }

    /// The same path, with `depth` requests sent at once. They share the kernel's part of the cost, so this shows the
    /// rest of each request's cost.
    pub fn pipelined(path: &str, depth: usize, status: u16) -> Self {
        let script = format!(
            "local batch\n\
             function init() batch = string.rep(wrk.format(), {depth}) end\n\
             function request() return batch end\n"
        );
        Self::scripted(path, script, status)
    }

    /// The same path over and over, each time on a new connection.
    pub fn closing(path: &str, status: u16) -> Self {
        let script = "wrk.headers['Connection'] = 'close'\n".into();
        Self::scripted(path, script, status)
    }

    /// The same path over and over with HTTP/2.
    pub fn http2(path: &str, streams: Streams, status: u16) -> Self {
        Self { http2: Some(streams), ..Self::same(path, status) }
    }

    /// The same with wrk and TLS, at the server's address for it.
    #[must_use]
    pub fn by_tls(self, address: SocketAddr) -> Self {
        Self { secure: Some(address), ..self }
    }

    fn url(&self, server: &Server) -> String {
        match self.secure {
            Some(address) => format!("https://{address}{}", self.path),
            None => format!("http://{}{}", server.address(), self.path),
        }
    }

    /// The whole script for wrk.
    fn lua(&self) -> String {
        let content = self.content.as_ref().map_or_else(String::new, |Content { media_type, text }| {
            // Lua drops a line end right after the opening bracket, but no others.
            format!(
                "wrk.method = 'POST'\nwrk.headers['Content-Type'] = '{media_type}'\nwrk.body = [==[\n{text}]==]\n"
            )
        });
        format!("{content}{}{DONE}", self.script)
    }
}

impl Load {
    /// Loads `server` for the given time.
    ///
    /// # Errors
    /// When wrk can't be run, and when any request had an error or a status that the case doesn't expect: figures from
    /// failures mean nothing.
    pub fn run(
        &self,
        server: &Server,
        placement: Placement,
        case: &str,
        requests: &Requests,
    ) -> Result<Outcome, Error> {
        if let Some(streams) = requests.http2 {
            let asked = (requests.path.as_str(), requests.status);
            return h2load::run(self, server, placement, case, asked, streams);
        }
        let directory = tempfile::tempdir()?;
        let script = directory.path().join("requests.lua");
        fs::write(&script, requests.lua()).map_err(Error::file(&script))?;
        let output = placement
            .command("wrk")
            .arg(format!("-t{}", self.threads))
            .arg(format!("-c{}", self.connections))
            .arg(format!("-d{}s", self.seconds))
            .arg("-s")
            .arg(&script)
            .arg(requests.url(server))
            .output()
            .map_err(|source| Error::Run { program: "wrk".into(), source })?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let summary = printed.lines().find_map(|line| serde_json::from_str(line).ok());
        let Some(summary) = summary.filter(|_| output.status.success()) else {
            let output_text = format!("{printed}{}", String::from_utf8_lossy(&output.stderr));
            let output_text = output_text.trim().to_owned();
            return Err(Error::Failed { program: "wrk".into(), status: output.status, output: output_text });
        };
        judge(&summary, requests.status).map_err(|what| Error::Load {
            server: server.name().into(),
            case: case.into(),
            what,
        })
    }
}

fn judge(summary: &Summary, expected: u16) -> Result<Outcome, String> {
    let failures = if expected > 399 { summary.requests } else { 0 };
    if summary.requests == 0 {
        return Err("no request was answered".into());
    }
    if summary.socket_errors > 0 {
        return Err(format!("{} socket errors", summary.socket_errors));
    }
    if summary.status_errors != failures {
        return Err(format!(
            "{} of {} answers had a status above 399, {failures} should",
            summary.status_errors, summary.requests
        ));
    }
    Ok(Outcome {
        requests: summary.requests,
        elapsed: Duration::from_micros(summary.elapsed_us),
        p50: percentile(summary.p50_us),
        p99: percentile(summary.p99_us),
    })
}

/// wrk returns 0 for a percentile without a sample.
fn percentile(us: u64) -> Option<Duration> {
    (us > 0).then(|| Duration::from_micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_reaches_lua_as_it_is() {
        let text = "\n{\"a\": \"\\n]]'\"}".to_owned();
        let content = Content { media_type: "application/json", text };
        let lua = Requests::posting("/users", content, 200).lua();
        assert!(lua.contains("wrk.body = [==[\n\n{\"a\": \"\\n]]'\"}]==]\n"), "{lua}");
    }

    #[test]
    fn figures_of_failures_are_refused() {
        let cases = [
            // requests, socket errors, status errors, expected, accepted
            (9, 0, 0, 307, true),
            (9, 0, 9, 404, true),
            (9, 0, 1, 307, false),
            (9, 0, 8, 404, false),
            (9, 1, 0, 307, false),
            (0, 0, 0, 307, false),
        ];
        for (requests, socket_errors, status_errors, expected, accepted) in cases {
            let summary =
                Summary { requests, elapsed_us: 1, p50_us: 1, p99_us: 1, socket_errors, status_errors };
            assert_eq!(
                judge(&summary, expected).is_ok(),
                accepted,
                "{requests} {socket_errors} {status_errors}"
            );
        }
    }
}
