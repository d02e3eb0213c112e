//! A condition of a write holds or not by the database, however outdated the node's cache is.

use api::http::{Api, Front, Settings, routes};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use tower_service::Service;

use super::*;

/// The status of the answer to a request about a user.
async fn status(
    front: &mut Front,
    method: Method,
    id: UserId,
    condition: (&str, String),
    body: &str,
) -> StatusCode {
    let request = Request::builder()
        .method(method)
        .uri(format!("/v1/users/{id}"))
        .header("content-type", "application/json")
        .header(condition.0, condition.1)
        .body(Body::from(body.to_owned()));
    let answer = front.call(request.expect("a request")).await;
    answer.expect("it never fails").status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_on_several_versions_is_judged_by_the_database() {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("users.db").display());
    let open = async || Users::open(&Options::new(url.parse().expect("a path"))).await.expect("it opens");
    // Each learns of the other's writes some 100 ms later.
    let (one, other) = (open().await, open().await);
    let mut front = Front::new(Api::new(other.clone(), false, Settings::default()), routes::router());
    let id = create(&one, 1).await.id;
    let body = r#"{"email":"a@b.example","name":"n"}"#;

    warm(&other, id).await;
    let old = rewrite(&one, id, 1).await - 1;
    let either = |version: i64| ("if-match", format!("\"{version}\", \"99\""));
    assert_eq!(status(&mut front, Method::PUT, id, either(old), body).await, StatusCode::PRECONDITION_FAILED);
    warm(&other, id).await;
    let version = rewrite(&one, id, 1).await;
    assert_eq!(status(&mut front, Method::PUT, id, either(version), body).await, StatusCode::OK);
    warm(&other, id).await;
    let version = rewrite(&one, id, 1).await;
    let but_old = ("if-none-match", format!("\"{}\"", version - 1));
    assert_eq!(status(&mut front, Method::DELETE, id, but_old, "").await, StatusCode::NO_CONTENT);
}
