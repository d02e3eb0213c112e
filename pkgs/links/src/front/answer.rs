//! Writing the fast lane's answers: fixed pieces, made once at start, around what differs.

use super::Settings;
use super::page::{self, PAGE_FIELDS, Refusal};
use super::render::{self, Page, Redirect, Render};
use super::request::Request;
use super::visit::Outcome;

/// The most bytes of a date in a header (RFC 9110, section 5.6.7).
pub const DATE_BYTES: usize = 29;

/// The `Cache-Control` of a redirect. `no-cache` makes even a 301 come back to be counted.
pub fn cache_control(settings: &Settings) -> String {
    match settings.redirect_max_age {
        0 => "private, no-cache".to_owned(),
        seconds => format!("private, max-age={seconds}"),
    }
}

/// The answers' fixed pieces.
pub struct Pieces {
    /// From the status line to the last field before `location`, by [`Redirect::index`].
    redirects: [Box<[u8]>; Redirect::ALL.len()],
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
        let redirects = Redirect::ALL.map(|(status, reason)| {
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
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>, tail: &[u8], request: &Request<'_>, outcome: Outcome<'_>) -> u16 {
        render::render(self.to(out, tail), request, false, outcome)
    }

    /// Where answers are appended to `out`, each with this `tail`.
    #[inline]
    pub fn to<'a>(&'a self, out: &'a mut Vec<u8>, tail: &'a [u8]) -> Appending<'a> {
        Appending { pieces: self, out, tail }
    }

    /// Appends a refusal, as a page for people and as problem details for programs.
    pub fn refuse(&self, out: &mut Vec<u8>, tail: &[u8], refusal: Refusal, html: bool, head: bool) -> u16 {
        self.to(out, tail).refuse(refusal, html, head)
    }
}

/// Appends answers of HTTP/1.1 to what is to be sent; each comes to its status.
pub struct Appending<'a> {
    pieces: &'a Pieces,
    out: &'a mut Vec<u8>,
    tail: &'a [u8],
}

impl Render for Appending<'_> {
    type Answer = u16;

    #[inline]
    fn redirect(self, redirect: Redirect, location: &str, head: bool) -> u16 {
        let Self { pieces, out, tail } = self;
        out.extend_from_slice(&pieces.redirects[redirect.index()]);
        out.extend_from_slice(b"location: ");
        out.extend_from_slice(location.as_bytes());
        if pieces.redirect_body {
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
        redirect.code()
    }

    fn page(self, page: &Page<'_>, head: bool) -> u16 {
        describe(self.out, page.status, [page.fields, ""], page.kind, page.body.len());
        self.out.extend_from_slice(self.tail);
        if !head {
            self.out.extend_from_slice(page.body.as_bytes());
        }
        page.status.0
    }

    fn refuse(self, refusal: Refusal, html: bool, head: bool) -> u16 {
        let (described, body) = &self.pieces.refusals[refusal as usize][usize::from(html)];
        self.out.extend_from_slice(described);
        self.out.extend_from_slice(self.tail);
        if !head {
            self.out.extend_from_slice(body);
        }
        refusal.text().0
    }
}

/// Appends all of a head but its tail.
fn describe(out: &mut Vec<u8>, (status, reason): (u16, &str), fields: [&str; 2], kind: &str, length: usize) {
    let [first, second] = fields;
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\n{first}{second}content-type: {kind}\r\ncontent-length: {length}\r\n"
    );
    out.extend_from_slice(head.as_bytes());
}
