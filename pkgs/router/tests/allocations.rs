//! Operations that allocate no memory, checked by an allocator that counts.

use http::Method;
use router::{Builder, Lookup};
use testkit::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn matching_takes_no_memory() {
    let mut builder = Builder::new();
    for route in ["/", "/a/{b}/{c}", "/{x}.json", "/files/{*rest}", "/a/b/static"] {
        builder.insert(Method::GET, route, ()).expect("a route");
    }
    let router = builder.build().expect("a tree");
    for (method, path, status) in [
        (Method::GET, "/", 200),
        (Method::HEAD, "/a/x/1", 200),
        (Method::GET, "/a/b/x", 200),
        (Method::GET, "/q.json", 200),
        (Method::GET, "/files/%20", 200),
        (Method::PUT, "/a/b/static", 405),
        (Method::OPTIONS, "/a/x/1", 405),
        (Method::GET, "/none", 404),
        (Method::GET, "/none/%20/../x", 404),
    ] {
        let (count, told) = allocations(|| match router.find(&method, path) {
            Lookup::Match(found) => found.params().map(|_| 0).sum::<u16>() + 200,
            Lookup::MethodNotAllowed(_) => 405,
            Lookup::NotFound => 404,
        });
        assert_eq!((count, told), (0, status), "{method} {path}");
    }
}
