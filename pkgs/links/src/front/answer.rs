//! Writing the fast lane's answers: fixed pieces, made once at start, around what differs.

use crate::link::RedirectStatus;

use super::Settings;
use super::page::{self, Refusal};
use super::request::Request;
use super::visit::Outcome;

/// The most bytes of a date in a header (RFC 9110, section 5.6.7).
pub const DATE_BYTES: usize = 29;

/// Says that the password page and refusals may not be kept, framed or sniffed.
pub const PAGE_FIELDS: &str = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
    content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
    base-uri 'none'\r\n";

/// The `Cache-Control` of a redirect. `no-cache` makes even a 301 come back to be counted.
pub fn cache_control(settings: &Settings) -> String {
    match settings.redirect_max_age {
        0 => "private, no-cache".to_owned(),
        seconds => format!("private, max-age={seconds}"),
    }
}

/// The answers' fixed pieces.
pub struct Pieces {
    /// From the status line to the last field before `location`, by status.
    redirects: [Box<[u8]>; 4],
    redirect_body: bool,
    /// Head and body of each refusal, for programs and for people.
    refusals: [[Whole; 2]; Refusal::ALL.len()],
}

/// A head up to its tail, and the body.
type Whole = (Box<[u8]>, Box<[u8]>);

impl Pieces {
    /// The pieces for these settings.
    pub fn new(settings: &Settings) -> Self {
        let cache_control = cache_control(settings);
        let redirects = [
            (301, "Moved Permanently"),
            (302, "Found"),
            (307, "Temporary Redirect"),
            (308, "Permanent Redirect"),
        ]
        .map(|(status, reason)| {
            let length = if settings.redirect_body { "" } else { "content-length: 0\r\n" };
            format!("HTTP/1.1 {status} {reason}\r\ncache-control: {cache_control}\r\n{length}")
                .into_bytes()
                .into_boxed_slice()
        });
        let refusals = Refusal::ALL.map(|refusal| {
            let (status, reason, _) = refusal.text();
            [(page::PROBLEM, refusal.problem()), (page::HTML, refusal.html())].map(|(kind, body)| {
                let mut head = Vec::new();
                describe(&mut head, (status, reason), [PAGE_FIELDS, refusal.fields()], kind, body.len());
                (head.into_boxed_slice(), body.into_bytes().into_boxed_slice())
            })
        });
        Self { redirects, redirect_body: settings.redirect_body, refusals }
    }

    /// Appends the answer to `request`; `tail` is what all answers end with: the date, and
    /// `connection: close` where it closes. Returns the status.
    pub fn write(&self, out: &mut Vec<u8>, tail: &[u8], request: &Request<'_>, outcome: Outcome<'_>) -> u16 {
        let refusal = match outcome {
            Outcome::Follow(entry) => {
                let location = page::location(entry, request.query);
                return self.redirect(out, tail, entry.redirect(), &location, request.head);
            }
            Outcome::Root(target) | Outcome::Favicon(target) => {
                return self.redirect(out, tail, RedirectStatus::Found, target, request.head);
            }
            Outcome::Ask(_) => {
                let body = page::ask(false);
                return whole(out, tail, (200, "OK"), PAGE_FIELDS, page::HTML, &body, request.head);
            }
            Outcome::Robots(text) => {
                let fields = "cache-control: max-age=86400\r\n";
                return whole(out, tail, (200, "OK"), fields, "text/plain", text, request.head);
            }
            Outcome::Missing => Refusal::Missing,
            Outcome::Gone => Refusal::Gone,
            Outcome::Unavailable => Refusal::Unavailable,
        };
        self.refuse(out, tail, refusal, request.html, request.head)
    }

    /// Appends a refusal, as a page for people and as problem details for programs.
    pub fn refuse(&self, out: &mut Vec<u8>, tail: &[u8], refusal: Refusal, html: bool, head: bool) -> u16 {
        let (described, body) = &self.refusals[refusal as usize][usize::from(html)];
        out.extend_from_slice(described);
        out.extend_from_slice(tail);
        if !head {
            out.extend_from_slice(body);
        }
        refusal.text().0
    }

    fn redirect(
        &self,
        out: &mut Vec<u8>,
        tail: &[u8],
        status: RedirectStatus,
        location: &str,
        head: bool,
    ) -> u16 {
        out.extend_from_slice(&self.redirects[status as usize]);
        out.extend_from_slice(b"location: ");
        out.extend_from_slice(location.as_bytes());
        if self.redirect_body {
            let body = page::moved(location);
            let fields = format!("\r\ncontent-type: {}\r\ncontent-length: {}\r\n", page::HTML, body.len());
            out.extend_from_slice(fields.as_bytes());
            out.extend_from_slice(tail);
            if !head {
                out.extend_from_slice(body.as_bytes());
            }
        } else {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(tail);
        }
        status.code()
    }
}

fn whole(
    out: &mut Vec<u8>,
    tail: &[u8],
    status: (u16, &str),
    fields: &str,
    kind: &str,
    body: &str,
    head: bool,
) -> u16 {
    describe(out, status, [fields, ""], kind, body.len());
    out.extend_from_slice(tail);
    if !head {
        out.extend_from_slice(body.as_bytes());
    }
    status.0
}

/// Appends all of a head but its tail.
fn describe(out: &mut Vec<u8>, (status, reason): (u16, &str), fields: [&str; 2], kind: &str, length: usize) {
    let [first, second] = fields;
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\n{first}{second}content-type: {kind}\r\ncontent-length: {length}\r\n"
    );
    out.extend_from_slice(head.as_bytes());
}
