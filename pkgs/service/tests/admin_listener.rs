//! The answers of an admin listener.
#![forbid(unsafe_code)]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use service::admin::Admin;
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::metrics::{CONTENT_TYPE, Registry};
use service::problem::Problem;
use service::ready::Readiness;
use service::{health, problem};
use tower_service::Service;

fn ask(admin: &Admin, method: &str, path: &str, fields: &[(&str, &str)]) -> Response<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut answer = admin.clone().call(request.body(()).expect("a request"));
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// The status and a header.
fn seen<'r>(response: &'r Response<Full<Bytes>>, field: &str) -> (u16, &'r str) {
    let field = response.headers().get(field).and_then(|value| value.to_str().ok());
    (response.status().as_u16(), field.unwrap_or_default())
}

fn text(response: Response<Full<Bytes>>) -> String {
    let mut body = pin!(response.into_body());
    match body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Some(Ok(frame))) => {
            String::from_utf8(frame.into_data().expect("data").to_vec()).expect("text")
        }
        _ => String::new(),
    }
}

#[test]
fn health_and_metrics_are_told() {
    let readiness = Readiness::new();
    let admin = Admin::new(readiness.clone(), Registry::default());
    assert_eq!(text(ask(&admin, "GET", "/healthz", &[])), health::ALIVE);
    assert_eq!(ask(&admin, "GET", "/readyz", &[]).status(), 503);
    readiness.set_ready();
    let ready = ask(&admin, "GET", "/readyz", &[]);
    assert_eq!(seen(&ready, "cache-control"), (200, "no-store"));
    assert_eq!(text(ready), health::READY);
    let metrics = ask(&admin, "HEAD", "/metrics", &[]);
    assert_eq!(seen(&metrics, "content-type"), (200, CONTENT_TYPE));
    assert_eq!(text(metrics), "# EOF\n");
}

#[test]
fn what_is_not_there_is_404_and_another_method_405() {
    let admin = Admin::new(Readiness::new(), Registry::default());
    let missing = ask(&admin, "GET", "/", &[]);
    assert_eq!(seen(&missing, "content-type"), (404, problem::CONTENT_TYPE));
    let other = ask(&admin, "POST", "/metrics", &[]);
    assert_eq!(seen(&other, "allow"), (405, "GET,HEAD"));
    // The listener adds the request's id to this problem.
    for (answer, status) in [(missing, 404), (other, 405), (ask(&admin, "GET", "/readyz", &[]), 503)] {
        let problem = answer.extensions().get::<Problem>().cloned().expect("a problem");
        assert_eq!((problem.status, text(answer)), (status, problem.json()));
    }
}

#[test]
fn who_is_ready_asks_what_it_stands_on() {
    let readiness = Readiness::new();
    let admin = Admin::new(readiness.clone(), Registry::default())
        .checking(|| std::future::ready(Err("the database is away".to_owned())));
    assert!(text(ask(&admin, "GET", "/readyz", &[])).contains("starting"));
    readiness.set_ready();
    let answer = ask(&admin, "GET", "/readyz", &[]);
    assert_eq!(seen(&answer, "content-type"), (503, problem::CONTENT_TYPE));
    assert!(text(answer).contains("the database is away"));
}

#[test]
fn other_names_are_refused_whatever_they_ask_for() {
    let hosts = AllowedHosts::new(&AllowedHostArgs::default(), []);
    let admin = Admin::new(Readiness::new(), Registry::default()).only_for(hosts);
    for (path, status) in [("/healthz", 200), ("/missing", 404)] {
        assert_eq!(ask(&admin, "GET", path, &[("host", "localhost:1")]).status(), status, "{path}");
        for fields in [
            &[("host", "evil.example")][..],
            &[("host", "localhost"), ("origin", "http://evil.example")],
            &[],
        ] {
            let refused = ask(&admin, "GET", path, fields);
            assert_eq!(seen(&refused, "content-type"), (403, problem::CONTENT_TYPE));
            assert!(refused.extensions().get::<Problem>().is_some());
        }
    }
    // HTTP/2 and 3 have the name in the URI, and may have both.
    assert_eq!(ask(&admin, "GET", "http://localhost/healthz", &[]).status(), 200);
    assert_eq!(ask(&admin, "GET", "http://evil.example/healthz", &[("host", "localhost")]).status(), 403);
}
