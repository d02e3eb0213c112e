//! Tests the routes and the checks before them as a client sees them, with a service that knows one key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use service::access_log::{AuditLog, AuditLogArgs, Destination, RequestContext};
use service::allowed_hosts::{AllowedHostArgs, AllowedHosts};
use service::request_id::RequestId;
use service::shutdown::Shutdown;
use service::socket::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower_service::Service;

use super::router;
use crate::answer_cache::AnswerCache;
use crate::app::{self, App, Known};
use crate::csrf::Secret;
use crate::imports::Imports;
use crate::live::Live;
use crate::machine::{Examined, Host, Machine, Queues, Watch, Watched};
use crate::overview::Sampler;
use crate::profiles::Profiles;
use crate::session::{Grant, SessionLifetime, Sessions};
use crate::sign_in_limits::SignInLimits;
use crate::upstream::Upstream;

const KEY: &str = "lr_known";

/// A machine that reports nothing except the names of its processes.
struct Nothing;

impl Machine for Nothing {
    fn doctor(&self) -> Result<Examined, String> {
        Err("nobody knows".into())
    }

    fn queues(&self) -> Result<Queues, String> {
        Ok(Queues::default())
    }

    fn host(&self) -> Host {
        Host::default()
    }

    fn helped(&self) -> bool {
        true
    }

    fn watch(&self, watch: &Watch, by: &str) -> Result<Watched, String> {
        assert!(!by.contains(KEY), "{by}");
        let folded = "</svg><script>alert(1)</script>;\u{202e}\" onload=alert(2) x=\" 3\nmain 1\n".to_owned();
        match watch.service.as_deref() {
            Some("panics") => panic!("as asked for"),
            Some(name) => Err(format!("{name}: <b>none</b>")),
            None => Ok(Watched { folded, event: "<i>".into(), kernel: true, lost: 7 }),
        }
    }
}

/// A service without links, which accepts one key.
#[derive(Default)]
struct Links {
    /// How often it was asked about a client's permissions.
    asked_who: AtomicUsize,
    /// Whether the key is revoked.
    revoked: AtomicBool,
}

fn serve(path: &std::path::Path) -> Arc<Links> {
    let listener = UnixListener::bind(path).expect("a socket");
    let links = Arc::new(Links::default());
    let state = Arc::clone(&links);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.expect("a head"));
            }
            state.asked_who.fetch_add(usize::from(head.starts_with(b"GET /api/v1/whoami ")), Relaxed);
            let known = !state.revoked.load(Relaxed)
                && String::from_utf8_lossy(&head).contains(&format!("Bearer {KEY}\r\n"));
            let (status, body) = match known {
                true => ("200 OK", r#"{"links":[],"next":null,"scope":"write"}"#),
                false => ("401 Unauthorized", r#"{"title":"","status":401,"detail":"unknown"}"#),
            };
            let length = body.len();
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.expect("a client");
        }
    });
    links
}

/// A console, which `change` adapts; the directory with the service's socket and the console's audit log; and the
/// service.
fn console(open: bool, change: impl FnOnce(&mut App)) -> (tempfile::TempDir, axum::Router, Arc<Links>) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("links");
    let service = serve(&socket);
    let log = AuditLogArgs { audit_log: Some(Destination::File(directory.path().join("audit"))) };
    let links = Upstream { name: "links", address: Address::Unix(socket) };
    let hour = Duration::from_secs(3600);
    let (may_all, clicks) = app::answer_caches();
    let mut app = App {
        sampler: Sampler::new(vec![links.clone()]),
        links: Some(links),
        users: None,
        files: None,
        writer: None,
        users_without_key: false,
        audits: Vec::new(),
        open: open.then(|| Grant { links: Some(KEY.to_owned()), ..Grant::default() }),
        hosts: Some(AllowedHosts::new(&AllowedHostArgs::default(), [])),
        machine: Arc::new(Nothing),
        single_sign_on: None,
        sessions: Sessions::new(SessionLifetime { whole: hour, idle: hour }),
        session_seconds: 3600,
        secret: Secret::new().expect("random"),
        sign_in_limits: SignInLimits::default(),
        live: Live::default(),
        may_all,
        clicks,
        shutdown: Shutdown::new(),
        known: Known::default(),
        audit_log: AuditLog::open(&log, "console").expect("a log"),
        profiles: Profiles::default(),
        imports: Imports::default(),
        writes: watch::Sender::new(()),
    };
    change(&mut app);
    (directory, router(Arc::new(app)), service)
}

/// A client of the console, with the last cookie that it got.
struct Client {
    router: axum::Router,
    cookie: Option<String>,
    directory: tempfile::TempDir,
    links: Arc<Links>,
}

impl Client {
    fn new(open: bool) -> Self {
        Self::of(open, |_| {})
    }

    fn of(open: bool, change: impl FnOnce(&mut App)) -> Self {
        let (directory, router, links) = console(open, change);
        Self { router, cookie: None, directory, links }
    }

    async fn send(&mut self, request: Request<Body>) -> (Response<()>, String) {
        let (parts, body) = self.begin(request).await.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (Response::from_parts(parts, ()), String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends a request, and returns its response before its body has arrived.
    async fn begin(&mut self, mut request: Request<Body>) -> Response<Body> {
        let fields = request.headers_mut();
        fields.entry(header::HOST).or_insert(HeaderValue::from_static("localhost:8110"));
        if let Some(cookie) = &self.cookie {
            fields.insert(header::COOKIE, cookie.parse().expect("a value"));
        }
        let response = self.router.call(request).await.expect("an answer");
        if let Some(set) = response.headers().get(header::SET_COOKIE) {
            let set = set.to_str().expect("text");
            assert!(set.contains("HttpOnly; SameSite=Strict"), "{set}");
            self.cookie = set.split(';').next().map(str::to_owned);
        }
        response
    }

    async fn get(&mut self, path: &str) -> (Response<()>, String) {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    /// Posts a form, as a browser does.
    async fn post(&mut self, path: &str, form: &str) -> (Response<()>, String) {
        let request = Request::post(path)
            .header(header::ORIGIN, "http://localhost:8110")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request.body(Body::from(form.to_owned())).expect("a request")).await
    }

    async fn sign_in(&mut self) -> String {
        let (_, page) = self.get("/sign-in").await;
        let form = format!("csrf={}&key={KEY}", token(&page));
        let (response, _) = self.post("/sign-in", &form).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER);
        let (_, page) = self.get("/links").await;
        token(&page)
    }
}

/// The token in a page's forms.
fn token(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("no form: {page}"));
    rest[..rest.find('"').expect("an end")].to_owned()
}

fn location(response: &Response<()>) -> &str {
    response.headers().get(header::LOCATION).map_or("", |value| value.to_str().expect("text"))
}

#[tokio::test]
async fn every_page_and_every_form_asks_who_it_is() {
    let mut client = Client::new(false);
    for path in [
        "/",
        "/links",
        "/links/new",
        "/link/a",
        "/link/a/edit",
        "/link/a/delete",
        "/doctor",
        "/queues",
        "/profile",
        "/profile/1",
        "/profile/1/svg",
        "/profile/1/folded",
        "/users",
        "/users/new",
        "/user/a",
        "/user/a/edit",
        "/access",
        "/access/key",
        "/access/keys/links/new",
        "/access/keys/links/1/revoke",
        "/none",
    ] {
        let (response, page) = client.get(path).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{path}");
        assert!(location(&response).starts_with("/sign-in") && page.is_empty(), "{path}");
    }
    for path in [
        "/links",
        "/links/new",
        "/link/a/edit",
        "/link/a/delete",
        "/users/new",
        "/user/a/edit",
        "/user/a/delete",
        "/access/key",
        "/access/end",
        "/access/keys/links/new",
        "/access/keys/links/1/revoke",
        "/queues",
        "/profile",
        "/sign-out",
    ] {
        let (response, _) = client.post(path, "link=/a&action=delete&sure=yes").await;
        assert_eq!((response.status(), location(&response)), (StatusCode::SEE_OTHER, "/sign-in"), "{path}");
    }
    // A live page would show its last figures on if it got anything but an event.
    for (path, name) in
        [("/live/overview", "overview"), ("/live/queues", "queues"), ("/live/import/a", "import")]
    {
        let (response, events) = client.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream", "{path}");
        assert!(events.starts_with(&format!("event: {name}\n")) && events.contains("You are signed out."));
        assert!(events.contains("\n\nevent: over\n"), "{path}: {events}");
    }
    assert_eq!(client.get("/live/none").await.0.status(), StatusCode::UNAUTHORIZED);
    // The script would follow a redirect.
    for (method, path) in
        [("POST", "/files/uploads"), ("PATCH", "/files/uploads/a"), ("HEAD", "/files/uploads/a")]
    {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let (response, problem) = client.send(request.expect("a request")).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method}");
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/problem+json", "{method}");
        assert!(method == "HEAD" || problem.contains("you are signed out"), "{method}: {problem}");
    }
}

#[tokio::test]
async fn a_session_is_new_with_each_sign_in_and_ends_with_signing_out() {
    let mut client = Client::new(false);
    client.get("/sign-in").await;
    let before = client.cookie.clone();
    let form = client.sign_in().await;
    let session = client.cookie.clone();
    assert!(session.is_some() && session != before, "nobody can have set it beforehand");
    assert_eq!(client.get("/links").await.0.status(), StatusCode::OK);
    let (response, _) = client.post("/sign-out", &format!("csrf={form}")).await;
    assert_eq!(location(&response), "/sign-in");
    client.cookie = session;
    assert_eq!(
        client.get("/links").await.0.status(),
        StatusCode::SEE_OTHER,
        "its cookie is of no use any more"
    );
}

/// Lets a console ask with every request whether a key is still valid, as it otherwise does every few seconds.
fn always_ask(app: &mut App) {
    app.may_all = AnswerCache::new(Duration::ZERO);
}

#[tokio::test]
async fn every_page_ends_the_session_of_a_revoked_key() {
    for path in ["/", "/doctor", "/queues", "/access", "/users", "/links", "/none"] {
        let mut client = Client::of(false, always_ask);
        client.sign_in().await;
        assert_ne!(client.get(path).await.0.status(), StatusCode::SEE_OTHER, "{path}");
        client.links.revoked.store(true, Relaxed);
        let (response, _) = client.get(path).await;
        assert_eq!(response.status(), StatusCode::SEE_OTHER, "{path}");
        assert!(location(&response).starts_with("/sign-in"), "{path}");
        client.links.revoked.store(false, Relaxed);
        assert_eq!(client.get(path).await.0.status(), StatusCode::SEE_OTHER, "{path}: it has ended");
    }
}

#[tokio::test]
async fn a_live_page_ends_with_the_session_of_a_revoked_key() {
    let mut client = Client::of(false, always_ask);
    client.sign_in().await;
    let request = Request::get("/live/overview").body(Body::empty()).expect("a request");
    let mut events = client.begin(request).await.into_body();
    let first = events.frame().await.expect("an event").expect("a body").into_data().expect("bytes");
    assert!(!String::from_utf8_lossy(&first).contains("signed out"), "{first:?}");
    client.links.revoked.store(true, Relaxed);
    let last = events.collect().await.expect("a body").to_bytes();
    assert!(String::from_utf8_lossy(&last).contains("You are signed out."), "{last:?}");
}

#[tokio::test]
async fn a_session_goes_on_while_links_does_not_answer() {
    let mut client = Client::of(false, always_ask);
    client.sign_in().await;
    std::fs::remove_file(client.directory.path().join("links")).expect("a socket");
    assert_eq!(client.get("/doctor").await.0.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_page_that_needs_a_key_of_the_api_asks_for_it_and_signs_nobody_out() {
    let mut client = Client::of(false, |app| {
        app.users = app.links.clone().map(|links| Upstream { name: "api", ..links });
    });
    let form = format!("csrf={}", client.sign_in().await);
    for path in ["/access/keys/api/new", "/access/keys/api/1/revoke"] {
        for (response, page) in [client.get(path).await, client.post(path, &form).await] {
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert!(page.contains("A key for the users"), "{path}: {page}");
        }
    }
    assert_eq!(client.get("/links").await.0.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_file_that_is_not_read_leaves_its_place_to_others() {
    let mut client = Client::new(true);
    let (_, page) = client.get("/links/import").await;
    let form = format!("csrf={}&format=json&rows=%7B", token(&page));
    for _ in 0..3 {
        let (response, page) = client.post("/links/import", &form).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{page}");
    }
}

#[tokio::test]
async fn a_link_of_another_site_leads_here_and_takes_nobodys_session() {
    let mut client = Client::new(false);
    client.sign_in().await;
    let session = client.cookie.take();
    for (path, place) in [("/links?q=a", "/links?q=a"), ("//evil.example/", "/")] {
        let request =
            Request::get(path).header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "navigate");
        let (response, page) = client.send(request.body(Body::empty()).expect("a request")).await;
        assert_eq!((response.status(), &client.cookie), (StatusCode::OK, &None), "{path}");
        assert!(page.contains(&format!("content=\"0;url={place}\"")), "{path}: {page}");
    }
    client.cookie = session;
    assert_eq!(client.get("/links").await.0.status(), StatusCode::OK);
}

#[tokio::test]
async fn an_issuer_that_is_not_named_signs_nobody_in() {
    let mut client = Client::new(false);
    let (_, page) = client.get("/sign-in").await;
    assert!(!page.contains("/sign-in/oidc"), "{page}");
    let form = format!("csrf={}", token(&page));
    assert_eq!(client.post("/sign-in/oidc", &form).await.0.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        client.post("/sign-in/oidc", "").await.0.status(),
        StatusCode::FORBIDDEN,
        "a form of ours alone"
    );
    let (response, _) = client.get("/sign-in/oidc/callback?code=a&state=b").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn whoever_is_not_signed_in_says_how_long_a_form_is() {
    let mut client = Client::new(false);
    for (path, signed_in, status) in
        [("/sign-in", false, StatusCode::LENGTH_REQUIRED), ("/links/batch", true, StatusCode::FORBIDDEN)]
    {
        if signed_in {
            client.sign_in().await;
        }
        let piece = Ok::<_, std::io::Error>("key=a");
        let body = Body::from_stream(futures_util::stream::iter([piece]));
        let request = Request::post(path)
            .header(header::ORIGIN, "http://localhost:8110")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let (response, _) = client.send(request.body(body).expect("a request")).await;
        assert_eq!(response.status(), status, "{path}");
    }
}

#[tokio::test]
async fn what_is_told_back_is_bounded() {
    let mut client = Client::new(false);
    let (_, page) = client.get("/sign-in").await;
    let (csrf, many) = (token(&page), "&quot;".repeat(5));
    for (quotes, status) in
        [(5_000, StatusCode::PAYLOAD_TOO_LARGE), (2_000, StatusCode::UNPROCESSABLE_ENTITY)]
    {
        let form = format!("csrf={csrf}&key=&next=/{}", "\"".repeat(quotes));
        let (response, page) = client.post("/sign-in", &form).await;
        assert_eq!(response.status(), status, "{quotes}");
        assert!(!page.contains(&many), "{quotes}");
    }
    let csrf = client.sign_in().await;
    for (quotes, repeated) in [(11, true), (200_001, false)] {
        // An odd one is never closed.
        let rows = "\"".repeat(quotes);
        let body = format!(
            "--a\r\nContent-Disposition: form-data; name=\"csrf\"\r\n\r\n{csrf}\r\n\
             --a\r\nContent-Disposition: form-data; name=\"format\"\r\n\r\njson\r\n\
             --a\r\nContent-Disposition: form-data; name=\"rows\"\r\n\r\n{rows}\r\n--a--\r\n"
        );
        let request = Request::post("/links/import")
            .header(header::ORIGIN, "http://localhost:8110")
            .header(header::CONTENT_TYPE, "multipart/form-data; boundary=a");
        let (response, page) = client.send(request.body(Body::from(body)).expect("a request")).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{page}");
        assert_eq!(page.contains(&many), repeated, "{quotes}");
        assert_eq!(page.contains("paste them once more"), !repeated, "{quotes}");
    }
}

#[tokio::test]
async fn forms_are_taken_from_our_pages_alone() {
    let mut client = Client::new(false);
    let csrf = client.sign_in().await;
    let form = "application/x-www-form-urlencoded";
    for (origin, media_type, fields, status) in [
        ("http://localhost:8110", form, format!("csrf={csrf}&action="), StatusCode::UNPROCESSABLE_ENTITY),
        ("http://localhost:8110", form, "action=".to_owned(), StatusCode::FORBIDDEN),
        ("http://localhost:8110", form, format!("csrf={}", "0".repeat(32)), StatusCode::FORBIDDEN),
        ("http://a.localhost:8110", form, format!("csrf={csrf}"), StatusCode::FORBIDDEN),
        ("http://localhost:8110", "text/plain", format!("csrf={csrf}"), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (
            "http://localhost:8110",
            form,
            format!("csrf={csrf}&q={}", "a".repeat(300_000)),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ] {
        let request =
            Request::post("/links").header(header::ORIGIN, origin).header(header::CONTENT_TYPE, media_type);
        let request = request.body(Body::from(fields.clone())).expect("a request");
        let (response, _) = client.send(request).await;
        assert_eq!(response.status(), status, "{origin} {media_type} {:.60}", fields);
    }
}

#[tokio::test]
async fn a_console_without_signing_in_is_asked_by_local_names_alone() {
    for (host, status) in [
        ("localhost:8110", StatusCode::OK),
        ("127.0.0.1:8110", StatusCode::OK),
        ("evil.example", StatusCode::FORBIDDEN),
        ("127.0.0.1.evil.example:8110", StatusCode::FORBIDDEN),
    ] {
        let mut client = Client::new(true);
        for path in ["/links", "/queues"] {
            let request = Request::get(path).header(header::HOST, host).body(Body::empty());
            let (response, page) = client.send(request.expect("a request")).await;
            assert_eq!(response.status(), status, "{host}{path}");
            assert!(!page.contains(KEY), "nobody is shown the key");
        }
    }
}

#[tokio::test]
async fn browsers_are_told_what_pages_may_do() {
    let mut client = Client::new(true);
    for path in ["/", "/links", "/none", "/link/a%22%3E%3Cscript%3E", "/assets/0/none.js"] {
        let (response, page) = client.get(path).await;
        let field =
            |name: &str| response.headers().get(name).map_or("", |value| value.to_str().expect("text"));
        let policy = field("content-security-policy");
        assert!(
            policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(
            (field("x-content-type-options"), field("referrer-policy")),
            ("nosniff", "same-origin"),
            "{path}"
        );
        assert_eq!(field("cache-control"), "no-store", "{path}");
        // No page has inline styles or scripts, which the policy would block.
        let inline = page.contains(" style=") || page.contains("<style") || page.contains(" onclick=");
        assert!(
            !inline && page.matches("<script").count() == page.matches("<script src=").count(),
            "{path}: {page}"
        );
    }
}

#[tokio::test]
async fn methods_that_a_page_does_not_have_are_refused() {
    let mut client = Client::new(true);
    let (_, page) = client.get("/links/new").await;
    let form = format!("csrf={}", token(&page));
    assert_eq!(client.post("/doctor", &form).await.0.status(), StatusCode::METHOD_NOT_ALLOWED);
    let request = Request::builder().method(Method::DELETE).uri("/link/a").body(Body::empty());
    assert_eq!(client.send(request.expect("a request")).await.0.status(), StatusCode::FORBIDDEN);
}

/// Records a profile, and returns its page once it is complete.
async fn profiled(client: &mut Client, fields: &str) -> (String, String) {
    let (_, page) = client.get("/profile").await;
    let form = format!("csrf={}&kind=cpu&seconds=1{fields}", token(&page));
    let (response, page) = client.post("/profile", &form).await;
    assert_eq!(response.status(), StatusCode::SEE_OTHER, "{page}");
    let place = location(&response).to_owned();
    loop {
        let (_, page) = client.get(&place).await;
        if !page.contains("Look again") {
            return (place, page);
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_processes_call_themselves_is_text_on_pages_and_in_pictures() {
    let mut client = Client::new(true);
    let (place, page) = profiled(&mut client, "").await;
    let (zoomed, compared) = (format!("{place}?zoom=1"), format!("{place}?with=1&zoom=1"));
    let (svg, folded) = (format!("{place}/svg"), format!("{place}/folded"));
    assert!(page.contains("75.0%") && page.contains("7 records lost"), "{page}");
    for path in [&place, &zoomed, &compared, &svg] {
        let (response, page) = client.get(path).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}: {page}");
        assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert"), "{path}: {page}");
        assert!(
            !page.contains("\" onload=") && !page.contains('\u{202e}') && !page.contains("<i>"),
            "{path}: {page}"
        );
        assert!(!page.contains(" style="), "{path}: the policy would refuse it");
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().expect("text");
        assert!(!policy.contains("unsafe"), "{path}");
    }
    let (response, text) = client.get(&folded).await;
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    assert!(
        response.headers()["content-disposition"].to_str().is_ok_and(|text| text.starts_with("attachment"))
    );
    assert!(text.ends_with("main 1\n"));
    for (fields, says) in
        [("&service=links", "links: &lt;b&gt;none"), ("&other=panics", "it ended in a panic")]
    {
        let (place, page) = profiled(&mut client, fields).await;
        assert!(page.contains(says), "{page}");
        assert_eq!(client.get(&format!("{place}/svg")).await.0.status(), StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn profiles_are_asked_for_within_bounds_alone() {
    let mut client = Client::new(true);
    let (_, page) = client.get("/profile").await;
    let csrf = token(&page);
    for fields in [
        "",
        "kind=cpu&seconds=0",
        "kind=cpu&seconds=61",
        "kind=cpu&seconds=-1",
        "kind=cpu&seconds=1e3",
        "kind=all&seconds=1",
        "kind=cpu&seconds=1&other=a%3Bid",
        "kind=cpu&seconds=1&other=-h",
        "kind=cpu&seconds=1&other=..%2Fa",
    ] {
        let (response, page) = client.post("/profile", &format!("csrf={csrf}&{fields}")).await;
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{fields}: {page}");
        assert!(page.contains("role=\"alert\""), "{fields}");
    }
    for (fields, status) in [
        ("action=apply&interface=eth0", StatusCode::UNPROCESSABLE_ENTITY),
        ("action=reboot&interface=eth0", StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        assert_eq!(
            client.post("/queues", &format!("csrf={csrf}&{fields}")).await.0.status(),
            status,
            "{fields}"
        );
    }
}

#[tokio::test]
async fn an_audit_line_has_the_id_that_the_access_log_has_of_the_request() {
    let mut client = Client::new(true);
    let (_, page) = client.get("/profile").await;
    let mut request = Request::post("/profile")
        .header(header::ORIGIN, "http://localhost:8110")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Body::from(format!("csrf={}&kind=cpu&seconds=1", token(&page))))
        .expect("a request");
    let id = RequestId::parse(b"of-the-access-log").expect("an id");
    request.extensions_mut().insert(RequestContext::new(id, None));
    assert_eq!(client.send(request).await.0.status(), StatusCode::SEE_OTHER);
    let log = client.directory.path().join("audit");
    let line = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.ends_with('\n') {
            break text;
        }
        sleep(Duration::from_millis(5)).await;
    };
    let line: serde_json::Value = serde_json::from_str(&line).expect("a line");
    assert_eq!((&line["action"], &line["id"]), (&"profile".into(), &"of-the-access-log".into()), "{line}");
}

/// A writer of files, beside links, that takes its time to delete one.
fn slow_writer(links: &Upstream) -> Upstream {
    let Address::Unix(links) = &links.address else { panic!("no socket") };
    let socket = links.with_file_name("writer");
    let listener = UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        sleep(Duration::from_millis(300)).await;
        let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        stream.write_all(answer).await.expect("a client");
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
    Upstream { name: "writer", address: Address::Unix(socket) }
}

#[tokio::test]
async fn a_write_whose_client_leaves_has_its_line_in_the_audit_log() {
    let mut client = Client::of(true, |app| app.writer = app.links.as_ref().map(slow_writer));
    let (_, page) = client.get("/links/new").await;
    let form = format!("csrf={}&path=/a", token(&page));
    let left = timeout(Duration::from_millis(100), client.post("/files/delete", &form)).await;
    assert!(left.is_err(), "the client did not wait");
    let log = client.directory.path().join("audit");
    let noted = async {
        while !std::fs::read_to_string(&log).unwrap_or_default().contains("\"files.delete\"") {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(10), noted).await.expect("a line");
}

#[tokio::test]
async fn whether_a_key_may_everything_is_not_asked_with_every_request() {
    let mut client = Client::new(true);
    for _ in 0..5 {
        client.get("/profile").await;
    }
    assert_eq!(client.links.asked_who.load(Relaxed), 1);
}
