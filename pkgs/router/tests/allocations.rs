//! What takes no memory: counted by an allocator, not believed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use router::extract::{Path, Paths, State};
use router::{Answer, Builder, Matched, Next, Router};

/// The system's allocator, which counts what each thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often `what` allocates.
fn allocations<T>(what: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.with(Cell::get);
    let result = what();
    (ALLOCATIONS.with(Cell::get) - before, result)
}

type Out = Full<Bytes>;

/// Polls where it is, so that waiting takes no memory either.
fn wait<R>(answer: Answer<R>) -> Response<R> {
    let mut answer = pin!(answer);
    for _ in 0..10 {
        if let Poll::Ready(response) = answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return response;
        }
    }
    panic!("never ready");
}

fn done(body: &'static str) -> Response<Out> {
    Response::new(Full::new(Bytes::from_static(body.as_bytes())))
}

async fn pause() {
    let mut polled = false;
    std::future::poll_fn(
        |_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending },
    )
    .await;
}

async fn sum(Paths((a, b)): Paths<(u64, u64)>, State(c): State<u64>) -> Response<Out> {
    pause().await;
    let mut response = done("summed");
    *response.status_mut() = StatusCode::from_u16((a + b + c) as u16).unwrap_or_default();
    response
}

fn router() -> Router<(), Out> {
    let inner = Builder::new()
        .before(
            |_, matched| {
                if matched.route().is_none() { panic!("no route") } else { ControlFlow::Continue(()) }
            },
        )
        .after(|response: &mut Response<Out>| *response.status_mut() = StatusCode::ACCEPTED)
        .get("/ready", || done("ready"))
        .get("/around", || done("around"));
    let around = Builder::new()
        .around(|request: Request<()>, next: Next<(), Out>| next.run(request))
        .around(router::middleware::log)
        .get("/ready", || done("ready"));
    Builder::<(), Out, u64>::new()
        .get("/", || done("root"))
        .get(
            "/users/{id:u64}",
            |Path(id): Path<u64>| if id == 7 { Ok(done("seven")) } else { Err(StatusCode::GONE) },
        )
        .get("/plain/{*rest}", |request: Request<()>, matched: &Matched<'_>| {
            assert!(matched.raw(&request, "rest").is_some());
            done("plain")
        })
        .get("/later", || async {
            pause().await;
            done("later")
        })
        .get("/sum/{a}/{b}", sum)
        .nest("/inner", inner)
        .nest("/through", around)
        .with_state(1)
        .build()
        .expect("a router")
}

#[test]
fn dispatching_takes_no_memory() {
    let router = router();
    // The path, and the status that shows that it went where it should.
    let cases = [
        ("/", 200),
        ("/users/7", 200),
        ("/users/8", 410),
        ("/users/x", 404),
        ("/plain/a/b/c", 200),
        ("/none", 404),
        ("/none/%20/../x", 404),
        ("/plain/%2F%20", 200),
        ("/later", 200),
        ("/sum/200/3", 204),
        ("/inner/ready", 202),
        ("/through/ready", 200),
    ];
    for (uri, status) in cases {
        let mut request = Some(Request::builder().uri(uri).body(()).expect("a request"));
        let (count, response) = allocations(|| wait(router.handle(request.take().expect("one request"))));
        assert_eq!(response.status().as_u16(), status, "{uri}");
        assert_eq!(count, 0, "{uri}");
    }
}

#[test]
fn a_head_or_a_method_that_is_missing_takes_memory_for_its_field_only() {
    let router = router();
    for method in [Method::HEAD, Method::PUT, Method::OPTIONS] {
        let mut request = Some(Request::builder().method(&method).uri("/").body(()).expect("a request"));
        let mut expected = Response::new(());
        let (of_field, _) = allocations(|| expected.headers_mut().insert("allow", 1.into()));
        let (count, response) = allocations(|| wait(router.handle(request.take().expect("one request"))));
        assert_eq!(response.headers().len(), 1, "{method}");
        assert!(count <= of_field, "{method}: {count}");
    }
}

#[test]
fn matching_takes_no_memory() {
    let mut builder = router::matcher::Builder::new();
    for route in ["/", "/a/{b}/{c:u64}", "/{x}.json", "/files/{*rest}", "/a/b/static"] {
        builder.insert(route, ()).expect("a route");
    }
    let matcher = builder.build().expect("a tree");
    for (path, found) in [
        ("/", true),
        ("/a/x/1", true),
        ("/a/b/x", false),
        ("/q.json", true),
        ("/files/%20", true),
        ("/none", false),
    ] {
        let (count, is_found) = allocations(|| {
            let found = matcher.find(path);
            found.map(|found| found.params().count()).is_some()
        });
        assert_eq!((count, is_found), (0, found), "{path}");
    }
}
