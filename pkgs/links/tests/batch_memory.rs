//! The memory of a batch, in a separate process as for an import.

mod memory;
#[allow(dead_code)]
#[path = "admin/server.rs"]
mod server;

use memory::{memory_kib, peak_kib};

#[test]
fn a_long_link_that_an_edit_names_ten_thousand_times_is_not_kept_as_often() {
    let server = server::Server::start();
    let long = format!(r#"{{"code":"long","target":"https://example.com/{}"}}"#, "x".repeat(7_900));
    assert_eq!(server.post("/api/v1/links", &long).status, 201);
    let names = vec![r#"{"code":"long"}"#; 10_000].join(",");
    let body = format!(r#"{{"links":[{names}],"set":{{"title":"x"}}}}"#);
    let before = memory_kib();
    let edit = || {
        let reply = server.post("/api/v1/links/batch-edit", &body);
        assert_eq!(reply.text().matches("200").count(), 10_000, "{}", reply.status);
    };
    let grown = peak_kib(edit) - before;
    // The results take some 10 MB; as many links would take 80 MB.
    assert!(grown < 40 * 1024, "{grown} KiB more at the peak");
}
