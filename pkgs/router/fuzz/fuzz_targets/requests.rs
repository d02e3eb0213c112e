//! Any method, URI and host: there is an answer at once, and no redirect leads to another host.
#![no_main]

use std::ops::ControlFlow;
use std::sync::OnceLock;

use bytes::Bytes;
use http::header::{ALLOW, HOST, LOCATION};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use libfuzzer_sys::fuzz_target;
use router::extract::{Path, Paths};
use router::{Builder, Matched, Router, TrailingSlash};

type Out = Full<Bytes>;

fn routes() -> Builder<(), Out> {
    let inner = Builder::new()
        .before(|_, matched| {
            assert!(matched.route().is_some());
            ControlFlow::Continue(())
        })
        .get("/", || "inner")
        .get("/{a}/{b}.json", |Paths((_, a, b)): Paths<(String, String, String)>| a + &b);
    Builder::new()
        .get("/", || "root")
        .get("/users/{id:u64}", |Path(id): Path<u64>| id.to_string())
        .post("/users/{id:u64}/", || StatusCode::CREATED)
        .put("/users/{name}", |Path(name): Path<String>| name)
        .get("/id/{id:uuid}", || ())
        .get("/~caf\u{e9}/{{x}}", || ())
        .any("/any/{*rest}", |request: Request<()>, matched: &Matched<'_>| {
            assert!(matched.raw(&request, "rest").is_some_and(|rest| !rest.is_empty()));
        })
        .get("//double/slash", || ())
        .nest("/in/{p}", inner)
        .host("*.example", Builder::new().get("/{x}", |Path(x): Path<String>| x))
        .after(|response: &mut Response<Out>| {
            response.headers_mut().insert("x-seen", http::HeaderValue::from_static("1"));
        })
}

fuzz_target!(|input: (&str, &str, &str)| {
    static ROUTERS: OnceLock<[Router<(), Out>; 3]> = OnceLock::new();
    let routers = ROUTERS.get_or_init(|| {
        [TrailingSlash::Strict, TrailingSlash::Ignore, TrailingSlash::Redirect]
            .map(|policy| routes().trailing_slash(policy).build().expect("a router"))
    });
    let (method, uri, host) = input;
    for router in routers {
        let Ok(request) = Request::builder().method(method).uri(uri).header(HOST, host).body(()) else {
            return;
        };
        let Ok(response) = router.handle(request).into_ready() else { panic!("nothing here waits") };
        assert!(response.headers().contains_key("x-seen"));
        let status = response.status();
        assert_eq!(
            response.headers().contains_key(ALLOW),
            status == StatusCode::METHOD_NOT_ALLOWED
                || status == StatusCode::NO_CONTENT && uri != "*"
        );
        if let Some(location) = response.headers().get(LOCATION) {
            // Browsers take a backslash for a slash, and two for the beginning of a host.
            let location = location.as_bytes();
            assert!(location.starts_with(b"/") && !matches!(location, [_, b'/' | b'\\', ..]));
        }
    }
});
