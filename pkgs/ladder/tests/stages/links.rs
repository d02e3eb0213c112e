//! The URL shortener, each stage with its own file, since WAL is a property of the file.

use ladder::links::STAGES;

use crate::{ask, header, start};

#[test]
fn all_stages_answer_alike() {
    let directory = tempfile::tempdir().expect("a directory");
    for (stage, number) in STAGES.iter().zip(1..) {
        let file = directory.path().join(format!("{number}.db"));
        let server = start("links", number, stage.name, file.to_str().expect("the path is text"));
        let cases = [
            ("/c1", 307, "https://example.com/some/landing/page?id=1"),
            ("/c10000", 307, "https://example.com/some/landing/page?id=10000"),
            // From the cache, if there is one.
            ("/c1", 307, "https://example.com/some/landing/page?id=1"),
            ("/c0", 404, ""),
            ("/c10001", 404, ""),
            ("/", 404, ""),
            ("/a/b", 404, ""),
        ];
        for (path, status, target) in cases {
            let mut response = ask(&server, "GET", path, "", b"");
            assert_eq!(response.status().as_u16(), status, "{} {path}", stage.name);
            assert_eq!(header(&response, "location"), target, "{} {path}", stage.name);
            let body = response.body_mut().read_to_vec().expect("a body");
            assert!(body.is_empty(), "{} {path}", stage.name);
            assert_eq!(header(&response, "content-encoding"), "", "{} {path}", stage.name);
        }
    }
}
