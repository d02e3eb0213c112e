//! Load over HTTP/2, or over HTTP/1.1 and TLS, from nghttp2's h2load, and its result.

use std::net::SocketAddr;
use std::time::Duration;

use crate::error::Error;
use crate::load::{Load, Outcome};
use crate::server::{Placement, Server};

/// What each connection requests.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    /// Requests in flight at once on a connection.
    pub count: usize,
    /// The server's address for this protocol, if it isn't its usual one.
    pub address: Option<SocketAddr>,
    /// Whether to use TLS.
    pub tls: bool,
    /// Whether to use HTTP/1.1 instead of HTTP/2.
    pub http1: bool,
}

/// Loads `server` for the given time.
///
/// # Errors
/// When h2load can't be run, when any request failed, or when a status isn't in the same hundred as `expected`.
pub(crate) fn run(
    load: &Load,
    server: &Server,
    placement: Placement,
    case: &str,
    (path, expected): (&str, u16),
    streams: Streams,
) -> Result<Outcome, Error> {
    let scheme = if streams.tls { "https" } else { "http" };
    let url = format!("{scheme}://{}{path}", streams.address.unwrap_or(server.address()));
    let output = placement
        .command("h2load")
        .arg(format!("-t{}", load.threads))
        .arg(format!("-c{}", load.connections))
        .arg(format!("-m{}", streams.count))
        .arg(format!("-D{}", load.seconds))
        .args(streams.http1.then_some("--h1"))
        .arg(url)
        .output()
        .map_err(|source| Error::Run { program: "h2load".into(), source })?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let output_text = format!("{printed}{}", String::from_utf8_lossy(&output.stderr)).trim().to_owned();
        return Err(Error::Failed { program: "h2load".into(), status: output.status, output: output_text });
    }
    judge(&printed, expected, load.seconds).map_err(|what| Error::Load {
        server: server.name().into(),
        case: case.into(),
        what,
    })
}

/// Parses what h2load prints for people; it has no other format.
fn judge(printed: &str, expected: u16, seconds: u64) -> Result<Outcome, String> {
    let done = count(printed, "requests: ", " done").ok_or("h2load printed no count of requests")?;
    let failed = count(printed, "requests: ", " failed").unwrap_or(0);
    let status = format!(" {}xx", expected / 100);
    let met = count(printed, "status codes: ", &status).unwrap_or(0);
    if done == 0 {
        return Err("no request was answered".into());
    }
    if failed > 0 || met < done {
        return Err(format!("{failed} requests failed, {met} of {done} answers had{status}"));
    }
    Ok(Outcome { requests: done, elapsed: Duration::from_secs(seconds), p50: None, p99: None })
}

/// The number before `what` in the line that starts with `line`.
fn count(printed: &str, line: &str, what: &str) -> Option<u64> {
    let line = printed.lines().find_map(|text| text.strip_prefix(line))?;
    line.split(", ").find_map(|part| part.strip_suffix(what))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_failures_are_refused() {
        let printed = |requests: &str, codes: &str| {
            format!("finished in 3.00s, 9.00 req/s, 1KB/s\nrequests: {requests}\nstatus codes: {codes}\n")
        };
        let good = "9 total, 9 started, 9 done, 9 succeeded, 0 failed, 0 errored, 0 timeout";
        let bad = "9 total, 9 started, 9 done, 8 succeeded, 1 failed, 0 errored, 0 timeout";
        for (requests, codes, expected) in [
            (good, "9 2xx, 0 3xx, 0 4xx, 0 5xx", Some(9)),
            (good, "10 2xx, 0 3xx, 0 4xx, 0 5xx", Some(9)),
            (good, "8 2xx, 0 3xx, 1 4xx, 0 5xx", None),
            (bad, "9 2xx, 0 3xx, 0 4xx, 0 5xx", None),
            ("", "", None),
        ] {
            let outcome = judge(&printed(requests, codes), 200, 3);
            assert_eq!(outcome.ok().map(|outcome| outcome.requests), expected, "{requests} {codes}");
        }
    }
}
