//! HTTP/2 with h2spec, completely and strictly.

use crate::server::Server;
use crate::spec::{CASES, CONCURRENCY, run};

#[test]
fn http2_conforms() {
    let server = Server::start(&[]);
    for (address, flags, known) in [
        (server.secure, &["--tls", "--insecure"][..], &[][..]),
        // A client that doesn't start as in HTTP/2 counts as HTTP/1.1 without TLS, and gets HTTP/1.1's 400.
        (server.clear, &[], &["http2/3.5"]),
    ] {
        let (cases, mut failed) = run(address, flags, "/read/4000", &[]);
        failed.retain(|suite| suite != CONCURRENCY);
        assert_eq!((cases, failed), (CASES, known.iter().map(ToString::to_string).collect()), "{address}");
        let late = run(address, flags, "/wait/3000", &[CONCURRENCY]);
        assert_eq!(late, (1, vec![]), "{address}");
    }
}
