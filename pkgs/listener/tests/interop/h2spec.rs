//! HTTP/2 by h2spec, whole and strict.

use crate::server::Server;
use crate::spec::{CASES, CONCURRENCY, run};

#[test]
fn http2_conforms() {
    let server = Server::start(&[]);
    for (address, flags, known) in [
        (server.secure, &["--tls", "--insecure"][..], &[][..]),
        // Who does not begin as HTTP/2 does is taken for HTTP/1.1 in the clear, and told 400 in its words.
        (server.clear, &[], &["http2/3.5"]),
    ] {
        let (cases, mut failed) = run(address, flags, "/read/4000", &[]);
        failed.retain(|suite| suite != CONCURRENCY);
        assert_eq!((cases, failed), (CASES, known.iter().map(ToString::to_string).collect()), "{address}");
        let late = run(address, flags, "/wait/3000", &[CONCURRENCY]);
        assert_eq!(late, (1, vec![]), "{address}");
    }
}
