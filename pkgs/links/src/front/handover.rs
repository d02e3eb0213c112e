//! What the fast lane does not know continues here, on the same socket, in actix-web.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_service::{Service, ServiceFactory, map_config};
use actix_web::dev::AppConfig;
use actix_web::http::{KeepAlive, Method, StatusCode, header};
use actix_web::{App, HttpRequest, HttpResponse, HttpResponseBuilder, web};
use futures_util::future::LocalBoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::password;

use super::answer::{PAGE_FIELDS, cache_control};
use super::page::{self, Refusal};
use super::visit::{Outcome, Visitor};
use super::worker::Worker;

/// The most bytes of a form: a password of 256 bytes, each percent-encoded, and its name.
const MAX_FORM_BYTES: usize = 1024;

/// Serves connections handed over.
pub struct Handover {
    serve: Box<dyn Fn(Resumed, SocketAddr) -> LocalBoxFuture<'static, ()>>,
}

impl Handover {
    /// Sets actix-web up on the worker's own thread.
    pub async fn new(worker: &Rc<Worker>) -> Self {
        let worker = Rc::clone(worker);
        let head_timeout = worker.front.settings.head_timeout;
        let app = move || {
            let worker = Rc::clone(&worker);
            App::new().app_data(web::PayloadConfig::new(MAX_FORM_BYTES)).default_service(web::to(
                move |request: HttpRequest, body: web::Payload| answer(Rc::clone(&worker), request, body),
            ))
        };
        let factory = actix_http::HttpService::build()
            .keep_alive(KeepAlive::Disabled)
            .client_request_timeout(head_timeout)
            .client_disconnect_timeout(Duration::from_secs(1))
            .h1(map_config(app(), |()| AppConfig::default()));
        let service = factory.new_service(()).await.expect("a fixed set of routes cannot fail to start");
        Self {
            serve: Box::new(move |stream, peer| {
                let ended = service.call((stream, Some(peer)));
                Box::pin(async move {
                    if let Err(error) = ended.await {
                        tracing::debug!(%error, "a connection ended early");
                    }
                })
            }),
        }
    }

    /// Serves a connection whose first bytes were already read.
    pub async fn serve(&self, received: Vec<u8>, stream: TcpStream, peer: SocketAddr) {
        (self.serve)(Resumed { received, given: 0, stream }, peer).await;
    }
}

async fn answer(worker: Rc<Worker>, request: HttpRequest, body: web::Payload) -> HttpResponse {
    let response = match *request.method() {
        Method::GET | Method::HEAD => visit(&worker, &request, false),
        Method::POST => unlock(&worker, &request, body).await,
        _ => refuse(Refusal::Method, is_html(&request)),
    };
    worker.metrics.answered(response.status().as_u16());
    response
}

/// Checks a password, then answers as any visit.
async fn unlock(worker: &Worker, request: &HttpRequest, body: web::Payload) -> HttpResponse {
    let html = is_html(request);
    let code = code(request);
    let unknown = Visitor { head: true, ..Visitor::default() };
    let asked = worker.visit(&code, &unknown, |outcome| match outcome {
        Outcome::Ask(entry) => Ok((entry.link(), entry.password_hash().map(str::to_owned))),
        Outcome::Gone => Err(Refusal::Gone),
        Outcome::Unavailable => Err(Refusal::Unavailable),
        Outcome::Missing => Err(Refusal::Missing),
        _ => Err(Refusal::Method),
    });
    let (link, hash) = match asked {
        Ok((link, hash)) => (link, hash.unwrap_or_default()),
        Err(refusal) => return refuse(refusal, html),
    };
    let Ok(Ok(body)) = body.to_bytes_limited(MAX_FORM_BYTES).await else {
        return refuse(Refusal::Body, html);
    };
    let Some(password) = password_of(&body) else { return refuse(Refusal::Malformed, html) };
    let address = request.peer_addr().map_or(IpAddr::from([0; 4]), |peer| peer.ip());
    let Some(_turn) = worker.front.attempts.begin(link, address) else {
        return refuse(Refusal::Attempts, html);
    };
    let right = tokio::task::spawn_blocking(move || password::verify(&password, &hash)).await;
    if right.is_ok_and(|right| right) {
        visit(worker, request, true)
    } else if html {
        page(StatusCode::FORBIDDEN, page::ask(true))
    } else {
        refuse(Refusal::WrongPassword, false)
    }
}

/// The password in a form, the last where there are several.
fn password_of(form: &[u8]) -> Option<String> {
    let fields = url::form_urlencoded::parse(form);
    fields.filter(|(name, _)| name == "password").last().map(|(_, password)| password.into_owned())
}

fn visit(worker: &Worker, request: &HttpRequest, trusted: bool) -> HttpResponse {
    let field = |name| request.headers().get(name).map(header::HeaderValue::as_bytes);
    let visitor = Visitor {
        head: request.method() == Method::HEAD,
        referrer: field(header::REFERER),
        agent: field(header::USER_AGENT),
        trusted,
    };
    let settings = &worker.front.settings;
    worker.visit(&code(request), &visitor, |outcome| match outcome {
        Outcome::Follow(entry) => {
            // A 307 would send the password on to the target (RFC 9110, section 15.4.4: 303 makes it a GET).
            let status = if trusted { 303 } else { entry.redirect().code() };
            let status = StatusCode::from_u16(status).expect("a redirect status is valid");
            let location = page::location(entry, request.uri().query());
            let mut response = HttpResponseBuilder::new(status);
            response.insert_header((header::LOCATION, location.as_ref()));
            response.insert_header((header::CACHE_CONTROL, cache_control(settings)));
            if settings.redirect_body {
                response.content_type(page::HTML).body(page::moved(&location))
            } else {
                response.finish()
            }
        }
        Outcome::Root(target) | Outcome::Favicon(target) => HttpResponse::Found()
            .insert_header((header::LOCATION, target))
            .insert_header((header::CACHE_CONTROL, cache_control(settings)))
            .finish(),
        Outcome::Ask(_) => page(StatusCode::OK, page::ask(false)),
        Outcome::Robots(text) => HttpResponse::Ok().content_type("text/plain").body(text.to_owned()),
        Outcome::Missing => refuse(Refusal::Missing, is_html(request)),
        Outcome::Gone => refuse(Refusal::Gone, is_html(request)),
        Outcome::Unavailable => refuse(Refusal::Unavailable, is_html(request)),
    })
}

/// The code a request names, with percent-encoding undone (RFC 3986, section 2.4).
fn code(request: &HttpRequest) -> String {
    let path = request.uri().path();
    let code = path.strip_prefix('/').unwrap_or(path);
    percent_encoding::percent_decode_str(code).decode_utf8_lossy().into_owned()
}

fn is_html(request: &HttpRequest) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/html"))
}

fn page(status: StatusCode, body: String) -> HttpResponse {
    let mut response = HttpResponseBuilder::new(status);
    insert_fields(&mut response, PAGE_FIELDS);
    response.content_type(page::HTML).body(body)
}

fn refuse(refusal: Refusal, html: bool) -> HttpResponse {
    let (status, _, _) = refusal.text();
    let mut response =
        HttpResponseBuilder::new(StatusCode::from_u16(status).expect("a refusal's status is valid"));
    insert_fields(&mut response, PAGE_FIELDS);
    insert_fields(&mut response, refusal.fields());
    if html {
        response.content_type(page::HTML).body(refusal.html())
    } else {
        response.content_type(page::PROBLEM).body(refusal.problem())
    }
}

/// Inserts the field lines that the fast lane writes as they are.
fn insert_fields(response: &mut HttpResponseBuilder, lines: &'static str) {
    for (name, value) in lines.split_terminator("\r\n").filter_map(|line| line.split_once(": ")) {
        response.insert_header((name, value));
    }
}

/// A connection that first gives the bytes already read.
struct Resumed {
    received: Vec<u8>,
    given: usize,
    stream: TcpStream,
}

impl AsyncRead for Resumed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let left = &this.received[this.given..];
        if left.is_empty() {
            return Pin::new(&mut this.stream).poll_read(context, buffer);
        }
        let part = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..part]);
        this.given += part;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Resumed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
