//! From nothing to a response: a request is made and its URI read, as silent's own bench does; then its
//! route is found, its handler called and polled until it has answered. All handlers are asynchronous
//! closures that give a text without header fields, which would cost each the same.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use criterion::{BenchmarkGroup, measurement::WallTime};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Empty, Full};
use silent::Handler as _;
use tower_service::Service as _;

use crate::lines::Line;

const TEXT: &str = "hello world";

/// What a future gives that waits for nothing.
fn now<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a handler waits"),
    }
}

/// Measures all peers that dispatch.
pub fn measure(group: &mut BenchmarkGroup<'_, WallTime>, line: &Line) {
    let router = ours(line);
    group.bench_function("router", |b| {
        b.iter(|| {
            line.requests(|uri| {
                let response = now(router.handle(request(line, uri, Empty::<Bytes>::new())));
                assert_eq!(response.status(), StatusCode::OK);
                response
            });
        });
    });

    let route = silents(line);
    let tree = route.clone().into_route_tree();
    group.bench_function("silent", |b| {
        b.iter(|| {
            line.requests(|uri| {
                let response = now(tree.call(silent_request(line, uri))).expect("a response");
                assert_eq!(response.status(), StatusCode::OK);
                response
            });
        });
    });
    // Its own bench drops the future before it is polled: nothing is routed, nobody is called.
    group.bench_function("silent, not run", |b| {
        b.iter(|| line.requests(|uri| drop(black_box(route.call(silent_request(line, uri))))));
    });

    let mut axum = axums(line);
    group.bench_function("axum", |b| {
        b.iter(|| {
            line.requests(|uri| {
                let Ok(response) = now(axum.call(request(line, uri, axum::body::Body::empty())));
                assert_eq!(response.status(), StatusCode::OK);
                response
            });
        });
    });
}

impl Line {
    /// Makes all requests of the line; what is measured of a request begins with its URI.
    fn requests<T>(&self, mut ask: impl FnMut(Option<&str>) -> T) {
        match (self.requests, self.path) {
            // As silent's bench has it: a new request is for `/` already.
            (1, "/") => drop(black_box(ask(None))),
            (1, path) => drop(black_box(ask(Some(path)))),
            (many, _) => (0..many).for_each(|number| drop(black_box(ask(Some(&self.uri(number)))))),
        }
    }
}

fn request<B>(line: &Line, uri: Option<&str>, body: B) -> Request<B> {
    let mut request = Request::new(body);
    if let Some(uri) = uri {
        *request.uri_mut() = uri.parse().expect("a URI");
    }
    if line.method != Method::GET {
        *request.method_mut() = line.method.clone();
    }
    request
}

fn silent_request(line: &Line, uri: Option<&str>) -> silent::Request {
    let mut request = silent::Request::default();
    if let Some(uri) = uri {
        *request.uri_mut() = uri.parse().expect("a URI");
    }
    if line.method != Method::GET {
        *request.method_mut() = line.method.clone();
    }
    request
}

fn ours(line: &Line) -> router::Router<Empty<Bytes>, Full<Bytes>> {
    let mut builder = router::Builder::new();
    for (route, methods) in line.routes {
        for method in *methods {
            builder = builder.on(method.clone(), route, |_request: Request<Empty<Bytes>>| async {
                Response::new(Full::new(Bytes::from_static(TEXT.as_bytes())))
            });
        }
    }
    for _ in 0..line.middlewares {
        builder = builder.around(router::middleware::log);
    }
    builder.build().expect("a router")
}

fn silents(line: &Line) -> silent::prelude::Route {
    use silent::prelude::{Request, Response, Route, full};

    let mut root = Route::new("");
    for _ in 0..line.middlewares {
        root = root.hook(silent::middlewares::Logger);
    }
    for (route, methods) in line.routes {
        // Its parameters are `<name>`.
        let path = route.replace('{', "<").replace('}', ">");
        let mut node = if path == "/" { std::mem::take(&mut root) } else { Route::new(&path) };
        for method in *methods {
            let handler = |_request: Request| async { Ok(Response::empty().with_body(full(TEXT))) };
            node = if *method == Method::GET { node.get(handler) } else { node.post(handler) };
        }
        root = if path == "/" { node } else { root.append(node) };
    }
    root
}

fn axums(line: &Line) -> axum::Router {
    use axum::routing::{MethodFilter, on};

    let mut router = axum::Router::new();
    for (route, methods) in line.routes {
        for method in *methods {
            let filter = MethodFilter::try_from(method.clone()).expect("GET or POST");
            let handler =
                |_request: axum::extract::Request| async { Response::new(axum::body::Body::from(TEXT)) };
            router = router.route(&Line::untyped(route), on(filter, handler));
        }
    }
    for _ in 0..line.middlewares {
        router = router.layer(axum::middleware::from_fn(log));
    }
    router
}

/// What the router's own logging does, for axum.
async fn log(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    if !tracing::enabled!(tracing::Level::INFO) {
        return next.run(request).await;
    }
    let started = std::time::Instant::now();
    let method = request.method().clone();
    let response = next.run(request).await;
    tracing::info!(%method, status = response.status().as_u16(), micros = started.elapsed().as_micros() as u64);
    response
}
