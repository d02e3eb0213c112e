//! links with TLS, over HTTP/1.1, HTTP/2 and HTTP/3: the real binary, with curl and aioquic as clients.

mod admin;
mod answers;
mod client;
mod conforms;
mod domains;
mod floods;
mod limits;
mod logs;
mod operation;
mod raw;
mod streams;

// This is shared with other tests, which use more of it.
#[allow(dead_code)]
#[path = "../http/mod.rs"]
mod http;
#[allow(dead_code)]
#[path = "../survive/server.rs"]
mod server;
#[path = "../../../listener/tests/interop/spec.rs"]
mod spec;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;
