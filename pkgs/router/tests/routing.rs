//! Requests and what they are answered with: methods, handlers, middlewares, nesting, hosts, services.

use std::convert::Infallible;
use std::future::Future;
use std::net::Ipv4Addr;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use router::extract::{Body, Extension, FromParts, Path, Paths, State};
use router::{Answer, BuildError, Builder, IntoResponse, Matched, Next, Router, TrailingSlash};
use tower_service::Service;

type Out = Full<Bytes>;
type Routes<S = ()> = Builder<String, Out, S>;
type Frozen = Router<String, Out>;

/// Polls until it is ready; nothing here waits for anything outside.
fn wait<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    panic!("never ready");
}

/// Pending once.
async fn pause() {
    let mut polled = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

fn request(method: &str, uri: &str) -> Request<String> {
    Request::builder().method(method).uri(uri).body(String::new()).expect("a request")
}

fn ask(router: &Frozen, request: Request<String>) -> (StatusCode, HeaderMap, String) {
    let Ok(response) = wait(router.clone().call(request));
    let (parts, body) = response.into_parts();
    let Ok(body) = wait(body.collect());
    (parts.status, parts.headers, String::from_utf8(body.to_bytes().to_vec()).expect("text"))
}

/// Status and body of a GET.
fn get(router: &Frozen, uri: &str) -> (u16, String) {
    let (status, _, body) = ask(router, request("GET", uri));
    (status.as_u16(), body)
}

#[track_caller]
fn check(router: &Frozen, cases: &[(&str, u16, &str)]) {
    for (uri, status, body) in cases {
        assert_eq!(get(router, uri), (*status, (*body).to_owned()), "{uri}");
    }
}

async fn show(Path(id): Path<u64>) -> String {
    pause().await;
    format!("user {id}")
}

async fn two(method: Method, Paths((a, b)): Paths<(String, i8)>, Body(body): Body<String>) -> String {
    format!("{method} {a} {b} {body}")
}

#[test]
fn handlers_are_functions_of_what_they_take() {
    let router = Routes::new()
        .get("/text", || "text")
        .get("/status", || StatusCode::IM_A_TEAPOT)
        .get("/nothing", || ())
        .get("/pair", || (StatusCode::CREATED, "made"))
        .get("/response", || Response::new(Out::from("as it is")))
        .get("/fails/{n}", |Path(n): Path<u8>| if n > 1 { Ok("well") } else { Err(StatusCode::CONFLICT) })
        .get("/async", || async { "later" })
        .get("/block", || async {
            pause().await;
            String::from("even later")
        })
        .get("/users/{id:u64}", show)
        .on(Method::PUT, "/two/{a}/{b}", two)
        .get("/plain/{x}/{*y}", |request: Request<String>, matched: &Matched<'_>| {
            let decoded = matched.param(&request, "x").and_then(Result::ok).unwrap_or_default().into_owned();
            let all: Vec<_> =
                matched.params(&request).map(|(name, value)| format!("{name}={value}")).collect();
            format!("{:?} {decoded} {all:?} {:?}", matched.route(), matched.raw(&request, "z"))
        })
        .get("/uri", |uri: Uri| uri.to_string())
        .post("/body", |request: Request<String>| request.into_body())
        .get("/headers", |headers: HeaderMap| headers.len().to_string())
        .build()
        .expect("a router");
    check(
        &router,
        &[
            ("/text", 200, "text"),
            ("/status", 418, ""),
            ("/nothing", 200, ""),
            ("/pair", 201, "made"),
            ("/response", 200, "as it is"),
            ("/fails/1", 409, ""),
            ("/fails/2", 200, "well"),
            ("/async", 200, "later"),
            ("/block", 200, "even later"),
            ("/users/7", 200, "user 7"),
            ("/users/x", 404, ""),
            ("/plain/%41/b/c", 200, "Some(\"/plain/{x}/{*y}\") A [\"x=%41\", \"y=b/c\"] None"),
            ("/uri?q=1", 200, "/uri?q=1"),
            ("/headers", 200, "0"),
        ],
    );
    let mut put = request("PUT", "/two/a%2Fb/-5");
    *put.body_mut() = "body".to_owned();
    assert_eq!(ask(&router, put).2, "PUT a/b -5 body");
    let mut post = request("POST", "/body");
    *post.body_mut() = "sent".to_owned();
    assert_eq!(ask(&router, post).2, "sent");
    assert_eq!(ask(&router, request("GET", "/text")).1[CONTENT_TYPE], "text/plain; charset=utf-8");
    assert!(ask(&router, request("GET", "/response")).1.is_empty());
}

#[test]
fn what_cannot_be_extracted_is_refused_with_a_problem() {
    let router = Routes::new()
        .get("/n/{n}", |Path(n): Path<u8>| n.to_string())
        .get("/ext", |Extension(n): Extension<u8>| n.to_string())
        .build()
        .expect("a router");
    for (uri, status, detail) in [
        ("/n/256", 400, "a parameter of the path is not of its type"),
        ("/n/%ff", 400, "the escapes of a parameter are not UTF-8"),
        ("/ext", 500, "an extension of the request is missing"),
    ] {
        let (found, headers, body) = ask(&router, request("GET", uri));
        assert_eq!(
            (found.as_u16(), headers[CONTENT_TYPE].to_str().expect("text")),
            (status, "application/problem+json"),
            "{uri}"
        );
        let problem: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((&problem["status"], &problem["detail"]), (&status.into(), &detail.into()), "{uri}");
    }
    assert_eq!(get(&router, "/n/%31%32"), (200, "12".to_owned()));
}

#[test]
fn parameters_are_counted_when_the_router_is_built() {
    let arity = |router: Routes| router.build().expect_err("too few or too many");
    assert_eq!(
        arity(Routes::new().get("/{a}/{b}", |Path(_): Path<u8>| ())),
        BuildError::Arity { route: "/{a}/{b}".into(), has: 2, takes: 1 }
    );
    assert_eq!(
        arity(Routes::new().get("/a", |_: Method, Paths(_): Paths<(u8, u8)>| ())),
        BuildError::Arity { route: "/a".into(), has: 0, takes: 2 }
    );
    // Prefixes count.
    Routes::new()
        .nest("/{a}", Routes::new().get("/{b}", |Paths(_): Paths<(u8, u8)>| ()))
        .build()
        .expect("two and two");
}

#[test]
fn methods_that_have_no_handler_are_answered() {
    let router = Routes::new()
        .get("/both", || "got")
        .post("/both", || "posted")
        .post("/post", || "posted")
        .get("/own", || "got")
        .head("/own", || StatusCode::ACCEPTED)
        .options("/own", || "options")
        .any("/any", |method: Method| method.to_string())
        .delete("/any", || "deleted")
        .on(Method::from_bytes(b"PURGE").expect("a token"), "/purge", || "purged")
        .get("/large", || {
            Response::builder().header(CONTENT_LENGTH, 5).body(Out::from("large")).expect("a response")
        })
        .build()
        .expect("a router");
    // Method, path, status, body, Allow, Content-Length.
    let cases = [
        ("GET", "/both", 200, "got", None, None),
        ("HEAD", "/both", 200, "", None, Some("3")),
        ("OPTIONS", "/both", 204, "", Some("GET, HEAD, POST, OPTIONS"), None),
        ("PUT", "/both", 405, "", Some("GET, HEAD, POST, OPTIONS"), None),
        ("BREW", "/both", 405, "", Some("GET, HEAD, POST, OPTIONS"), None),
        ("GET", "/post", 405, "", Some("POST, OPTIONS"), None),
        ("HEAD", "/post", 405, "", Some("POST, OPTIONS"), None),
        ("HEAD", "/own", 202, "", None, None),
        ("OPTIONS", "/own", 200, "options", None, None),
        ("BREW", "/any", 200, "BREW", None, None),
        ("OPTIONS", "/any", 200, "OPTIONS", None, None),
        ("DELETE", "/any", 200, "deleted", None, None),
        ("PURGE", "/purge", 200, "purged", None, None),
        ("GET", "/purge", 405, "", Some("OPTIONS, PURGE"), None),
        ("HEAD", "/large", 200, "", None, Some("5")),
        ("GET", "/none", 404, "", None, None),
        ("OPTIONS", "/none", 404, "", None, None),
        ("OPTIONS", "*", 204, "", None, None),
        ("GET", "*", 404, "", None, None),
    ];
    for (method, uri, status, body, allow, length) in cases {
        let (found, headers, text) = ask(&router, request(method, uri));
        let field = |name| headers.get(name).map(|value| value.to_str().expect("text"));
        assert_eq!(
            (found.as_u16(), text.as_str(), field(ALLOW), field(CONTENT_LENGTH)),
            (status, body, allow, length),
            "{method} {uri}"
        );
    }
}

#[test]
fn one_path_twice_conflicts_only_for_one_method() {
    let conflict = Routes::new()
        .get("/a/{x}", || ())
        .post("/a/{y}", || ())
        .nest("/a", Routes::new().get("/{z}", || ()))
        .build()
        .expect_err("GET twice");
    assert_eq!(
        conflict,
        BuildError::Conflict { new: "/a/{z}".into(), old: "/a/{x}".into(), method: Some("GET".into()) }
    );
    assert_eq!(conflict.to_string(), "route \"/a/{z}\" conflicts with \"/a/{x}\" for GET");
    let router = Routes::new()
        .get("/a/{x}", |request: Request<String>, matched: &Matched<'_>| {
            format!("{:?}", matched.raw(&request, "x"))
        })
        .post("/a/{y}", |request: Request<String>, matched: &Matched<'_>| {
            format!("{:?}", matched.raw(&request, "y"))
        })
        .build()
        .expect("a router");
    assert_eq!(ask(&router, request("GET", "/a/1")).2, "Some(\"1\")");
    assert_eq!(ask(&router, request("POST", "/a/2")).2, "Some(\"2\")");
}

#[test]
fn a_slash_too_many_or_too_few_is_a_policy() {
    let build = |policy| {
        Routes::new()
            .trailing_slash(policy)
            .get("/", || "root")
            .get("/a", || "a")
            .get("/b/", || "b")
            .get("/u/{id}", |Path(id): Path<String>| id)
            .get("//evil.example", || "two slashes")
            .get("/{name}.example", |Path(name): Path<String>| name)
            .build()
            .expect("a router")
    };
    let location = |router: &Frozen, uri: &str| {
        let (status, headers, body) = ask(router, request("GET", uri));
        let location = headers.get(LOCATION).map(|value| value.to_str().expect("text").to_owned());
        (status.as_u16(), location.unwrap_or(body))
    };
    let [strict, ignore, redirect] =
        [TrailingSlash::Strict, TrailingSlash::Ignore, TrailingSlash::Redirect].map(build);
    for (uri, by_strict, by_ignore, by_redirect) in [
        ("/", (200, "root"), (200, "root"), (200, "root")),
        ("/a", (200, "a"), (200, "a"), (200, "a")),
        ("/a/", (404, ""), (200, "a"), (308, "/a")),
        ("/a/?q=1", (404, ""), (200, "a"), (308, "/a?q=1")),
        ("/b", (404, ""), (200, "b"), (308, "/b/")),
        ("/u/7/", (404, ""), (200, "7"), (308, "/u/7")),
        ("/a//", (404, ""), (404, ""), (404, "")),
        ("/none/", (404, ""), (404, ""), (404, "")),
        // A browser would take //evil.example for another host.
        ("//evil.example/", (404, ""), (200, "two slashes"), (404, "")),
        // And a backslash for a slash (WHATWG URL, "special" schemes).
        ("/\\evil.example/", (404, ""), (200, "\\evil"), (404, "")),
        ("/good.example/", (404, ""), (200, "good"), (308, "/good.example")),
    ] {
        for (router, (status, text)) in [(&strict, by_strict), (&ignore, by_ignore), (&redirect, by_redirect)]
        {
            assert_eq!(location(router, uri), (status, text.to_owned()), "{uri}");
        }
    }
}

#[test]
fn middlewares_run_from_the_outside_in_and_back() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let log = log.clone();
        move || log.lock().expect("a log").push(text)
    };
    let (outer_before, outer_after) = (note("outer before"), note("outer after"));
    let (around_in, around_out) = (note("around in"), note("around out"));
    let (inner_before, inner_after) = (note("inner before"), note("inner after"));
    let around_out = Arc::new(around_out);
    let router = Routes::new()
        .before(move |_, _| {
            outer_before();
            ControlFlow::Continue(())
        })
        .after(move |_| outer_after())
        .around(move |request: Request<String>, next: Next<String, Out>| {
            around_in();
            let out = around_out.clone();
            async move {
                let response = next.run(request).await;
                out();
                response
            }
        })
        .get("/outer", note_and("handler", &log))
        .nest(
            "/inner",
            Routes::new()
                .get("/ready", note_and("handler", &log))
                .get("/later", {
                    let log = log.clone();
                    move || {
                        let log = log.clone();
                        async move {
                            pause().await;
                            log.lock().expect("a log").push("handler");
                        }
                    }
                })
                .before(move |request: &mut Request<String>, matched| {
                    inner_before();
                    assert!(matched.route().is_some_and(|route| route.starts_with("/inner/")));
                    match request.uri().query() {
                        Some("stop") => ControlFlow::Break(StatusCode::UNAUTHORIZED.into_response()),
                        _ => ControlFlow::Continue(()),
                    }
                })
                .after(move |response| {
                    inner_after();
                    response.headers_mut().insert("x-inner", 1.into());
                }),
        )
        .build()
        .expect("a router");
    let outside = |inside: &[&'static str]| {
        let mut all = vec!["outer before", "around in"];
        all.extend(inside);
        all.extend(["around out", "outer after"]);
        all
    };
    let inside = ["inner before", "handler", "inner after"];
    for (method, uri, status, inner, expected) in [
        ("GET", "/outer", 200, false, outside(&["handler"])),
        ("GET", "/inner/ready", 200, true, outside(&inside)),
        ("GET", "/inner/later", 200, true, outside(&inside)),
        ("HEAD", "/inner/later", 200, true, outside(&inside)),
        // The middleware that answers is the innermost that was reached.
        ("GET", "/inner/ready?stop", 401, false, outside(&["inner before"])),
        ("POST", "/inner/ready", 405, true, outside(&["inner before", "inner after"])),
        ("OPTIONS", "/inner/ready", 204, true, outside(&["inner before", "inner after"])),
        ("GET", "/inner/none", 404, false, outside(&[])),
    ] {
        let (found, headers, _) = ask(&router, request(method, uri));
        let noted = std::mem::take(&mut *log.lock().expect("a log"));
        assert_eq!((found.as_u16(), noted), (status, expected), "{method} {uri}");
        assert_eq!(headers.contains_key("x-inner"), inner, "{method} {uri}");
    }
}

/// A handler that writes into a log.
fn note_and(text: &'static str, log: &Arc<Mutex<Vec<&'static str>>>) -> impl Fn() + Send + Sync + use<> {
    let log = log.clone();
    move || log.lock().expect("a log").push(text)
}

#[test]
fn an_around_may_answer_itself_or_change_the_request() {
    let router = Routes::new()
        .around(|mut request: Request<String>, next: Next<String, Out>| {
            if request.uri().query() == Some("stop") {
                return Answer::from(Response::new(Out::from("stopped")));
            }
            let matched = next.matched();
            let seen = format!("{:?} {:?}", matched.route(), matched.raw(&request, "id"));
            request.extensions_mut().insert(seen);
            next.run(request).map(|mut response| {
                *response.status_mut() = StatusCode::ACCEPTED;
                response
            })
        })
        .get("/x/{id}", |Extension(seen): Extension<String>| seen)
        .build()
        .expect("a router");
    check(
        &router,
        &[("/x/7?stop", 200, "stopped"), ("/x/7", 202, "Some(\"/x/{id}\") Some(\"7\")"), ("/none", 202, "")],
    );
}

#[test]
fn requests_are_logged_with_their_route() {
    /// Collects the fields of events.
    struct Lines(Arc<Mutex<Vec<String>>>);
    struct Fields(String);
    impl tracing::field::Visit for Fields {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            if field.name() != "micros" {
                self.0 += &format!("{}={value:?} ", field.name());
            }
        }
    }
    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields(String::new());
            event.record(&mut fields);
            self.0.lock().expect("lines").push(fields.0.trim_end().to_owned());
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    let router =
        Routes::new().around(router::middleware::log).get("/users/{id:u64}", show).build().expect("a router");
    let lines = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Lines(lines.clone()), || {
        assert_eq!(get(&router, "/users/7").0, 200);
        assert_eq!(get(&router, "/none").0, 404);
    });
    let logged = if cfg!(feature = "no-tracing") {
        vec![]
    } else {
        vec![
            "message=answered method=GET route=\"/users/{id:u64}\" status=200",
            "message=answered method=GET status=404",
        ]
    };
    assert_eq!(*lines.lock().expect("lines"), logged);
}

#[test]
fn routers_nest_below_prefixes() {
    let leaf =
        || Routes::new().get("/", || "leaf").get("/{b}", |Paths((a, b)): Paths<(String, String)>| a + &b);
    let router = Routes::new()
        .get("/", || "root")
        .nest("/api/{a}", leaf())
        .nest("/deep", Routes::new().nest("/er/", Routes::new().get("/x", || "deeper")))
        .nest("", Routes::new().get("/same", || "same level"))
        .nest("/", Routes::new().get("/too", || "same level too"))
        .build()
        .expect("a router");
    check(
        &router,
        &[
            ("/", 200, "root"),
            ("/api/1", 200, "leaf"),
            ("/api/1/", 404, ""),
            ("/api/1/2", 200, "12"),
            ("/deep/er/x", 200, "deeper"),
            ("/deep", 404, ""),
            ("/same", 200, "same level"),
            ("/too", 200, "same level too"),
        ],
    );
}

#[test]
fn handlers_get_the_state_of_their_builder() {
    #[derive(Clone)]
    struct Inner(&'static str);
    let inner = Builder::<String, Out, Inner>::new()
        .get("/inner", |State(Inner(text)): State<Inner>| text)
        .with_state(Inner("inner"));
    let router = Builder::<String, Out, Arc<AtomicUsize>>::new()
        .get("/count", |State(count): State<Arc<AtomicUsize>>| {
            count.fetch_add(1, Ordering::Relaxed).to_string()
        })
        .nest("/nested", inner)
        .fallback(|State(count): State<Arc<AtomicUsize>>| async move {
            (StatusCode::NOT_FOUND, format!("after {}", count.load(Ordering::Relaxed)))
        })
        .with_state(Arc::new(AtomicUsize::new(5)))
        .build()
        .expect("a router");
    check(
        &router,
        &[
            ("/count", 200, "5"),
            ("/count", 200, "6"),
            ("/nested/inner", 200, "inner"),
            ("/none", 404, "after 7"),
        ],
    );
}

#[test]
fn anyone_can_add_an_extractor() {
    struct Agent(String);
    impl<B, S> FromParts<B, S> for Agent {
        type Rejection = (StatusCode, &'static str);
        fn from_parts(request: &mut Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Self::Rejection> {
            let agent = request.headers().get("user-agent").and_then(|agent| agent.to_str().ok());
            agent.map(|agent| Self(agent.to_owned())).ok_or((StatusCode::FORBIDDEN, "who are you?"))
        }
    }
    let router = Routes::new().get("/", |Agent(agent): Agent| agent).build().expect("a router");
    assert_eq!(get(&router, "/"), (403, "who are you?".to_owned()));
    let mut named = request("GET", "/");
    named.headers_mut().insert("user-agent", "curl".parse().expect("a value"));
    assert_eq!(ask(&router, named).2, "curl");
}

#[test]
fn hosts_have_their_own_routes_first() {
    let router = Routes::new()
        .get("/", || "anyone")
        .get("/shared", || "shared")
        .host("a.example", Routes::new().get("/", || "a").get("/{x}/y", |Path(x): Path<String>| x))
        .host("*.example", Routes::new().get("/", || "any below").get("/{x}/z", |Path(x): Path<String>| x))
        .build()
        .expect("a router");
    for (host, uri, status, body) in [
        ("a.example", "/", 200, "a"),
        ("A.EXAMPLE:80", "/", 200, "a"),
        ("b.example", "/", 200, "any below"),
        ("example", "/", 200, "anyone"),
        ("other", "/", 200, "anyone"),
        ("a.example", "/shared", 200, "shared"),
        ("a.example", "/p/y", 200, "p"),
        ("a.example", "/p/z", 200, "p"),
        ("other", "/p/z", 404, ""),
    ] {
        let mut by_field = request("GET", uri);
        by_field.headers_mut().insert(HOST, host.parse().expect("a host"));
        let by_uri = request("GET", &format!("http://{host}{uri}"));
        for request in [by_field, by_uri] {
            let (found, _, text) = ask(&router, request);
            assert_eq!((found.as_u16(), text.as_str()), (status, body), "{host}{uri}");
        }
    }
    let error = Routes::new().host("no/host", Routes::new().get("/", || ())).build().expect_err("no host");
    assert_eq!(error.to_string(), "\"no/host\" is no host: a name, or *. and a name");
}

#[test]
fn types_of_nested_builders_are_known() {
    let nested =
        || Routes::new().kind::<Ipv4Addr>("ip").get("/{ip:ip}", |Path(ip): Path<Ipv4Addr>| ip.to_string());
    let router = Routes::new()
        .nest("/a", nested())
        .nest("/b", nested())
        .get("/a/{other}", |Path(other): Path<String>| other)
        .build()
        .expect("a router");
    check(
        &router,
        &[("/a/10.0.0.1", 200, "10.0.0.1"), ("/b/10.0.0.1", 200, "10.0.0.1"), ("/a/10.0", 200, "10.0")],
    );
    let twice = nested().kind::<u8>("ip").build().expect_err("another type of the same name");
    assert_eq!(twice, BuildError::TypeTwice("ip".into()));
}

/// A service that says what path it saw, once it was asked for readiness often enough.
#[derive(Clone)]
struct Slow {
    polls: usize,
}

impl Service<Request<String>> for Slow {
    type Response = Response<Out>;
    type Error = StatusCode;
    type Future = std::future::Ready<Result<Response<Out>, StatusCode>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StatusCode>> {
        match self.polls.checked_sub(1) {
            None => Poll::Ready(Ok(())),
            Some(left) => {
                self.polls = left;
                Poll::Pending
            }
        }
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        assert_eq!(self.polls, 0, "called before it was ready");
        std::future::ready(match request.uri().query() {
            Some("fail") => Err(StatusCode::BAD_GATEWAY),
            _ => Ok(Response::new(Out::from(request.uri().to_string()))),
        })
    }
}

#[test]
fn services_are_mounted_below_prefixes() {
    for polls in [0, 1, 5] {
        let router = Routes::new()
            .mount("/s/{id:u64}", Slow { polls })
            .service("/whole/{*rest}", Slow { polls })
            .get("/s/{id:u64}/own", || "a route comes first")
            .build()
            .expect("a router");
        check(
            &router,
            &[
                ("/s/7", 200, "/"),
                ("/s/7?q=1", 200, "/?q=1"),
                ("/s/7/", 200, "/"),
                ("/s/7/a/b/?q", 200, "/a/b/?q"),
                ("/s/7//a", 200, "//a"),
                ("/s/7/%41%2f", 200, "/%41%2f"),
                ("/s/7/x?fail", 502, ""),
                ("/s/7/own", 200, "a route comes first"),
                ("/s/x/a", 404, ""),
                ("/whole/a?q", 200, "/whole/a?q"),
                ("http://h.example/s/7/a", 200, "http://h.example/a"),
            ],
        );
    }
}

#[test]
fn a_router_is_a_service_for_a_router() {
    let inner = Routes::new().get("/x/{y}", |Path(y): Path<String>| y).build().expect("a router");
    let router = Routes::new().mount("/in", inner).build().expect("a router");
    check(&router, &[("/in/x/1", 200, "1"), ("/in/x", 404, ""), ("/in", 404, "")]);
}

#[test]
fn axum_s_router_is_mounted_and_mounts() {
    use axum::body::Body as AxumBody;
    use axum::extract::Path as AxumPath;
    use axum::routing::get as axum_get;

    let axum = axum::Router::new().route(
        "/hello/{name}",
        axum_get(|AxumPath(name): AxumPath<String>| async move { format!("hello {name}") }),
    );
    let ours: Router<AxumBody, AxumBody> = Builder::<AxumBody, AxumBody>::new()
        .get("/own", || "own")
        .mount("/axum", axum)
        .build()
        .expect("a router");
    let text = |response: Response<AxumBody>| {
        let status = response.status().as_u16();
        let body = wait(response.into_body().collect()).expect("a body").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    };
    let mut outer = axum::Router::new().nest_service("/ours", ours.clone());
    for (uri, status, body) in [
        ("/own", 200, "own"),
        ("/axum/hello/you", 200, "hello you"),
        ("/axum/none", 404, ""),
        ("/none", 404, ""),
    ] {
        let request = |uri: &str| Request::builder().uri(uri).body(AxumBody::empty()).expect("a request");
        let Ok(response) = wait(ours.clone().call(request(uri)));
        assert_eq!(text(response), (status, body.to_owned()), "{uri}");
        let Ok(response) =
            wait(Service::<Request<AxumBody>>::call(&mut outer, request(&format!("/ours{uri}"))));
        assert_eq!(text(response), (status, body.to_owned()), "/ours{uri}");
    }
}

#[test]
fn a_router_is_what_listeners_take() {
    fn serves<S, B>(_: &S)
    where
        S: Service<Request<String>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
    {
    }
    let router = Routes::new().get("/", || "x").build().expect("a router");
    serves(&router);
    let routes: Vec<_> = router.routes().map(|(method, path)| (method.cloned(), path.to_owned())).collect();
    assert_eq!(routes, [(Some(Method::GET), "/".to_owned())]);
}

#[test]
fn one_router_serves_many_threads() {
    let router = Routes::new().get("/users/{id:u64}", show).build().expect("a router");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let router = router.clone();
            scope.spawn(move || {
                for n in 0..500 {
                    let id = thread * 1000 + n;
                    assert_eq!(get(&router, &format!("/users/{id}")), (200, format!("user {id}")));
                }
            });
        }
    });
}
