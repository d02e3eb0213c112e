//! Writes the fast path's answers from fixed templates, made once at the start.

use listener::{Connection, Exchange};
use request_head::Lines;
use service::request_id::RequestId;

use super::page::{self, PAGE_FIELDS, Refusal};
use super::{self as render, Page, Redirect, Render, Reuse};
use crate::front::Settings;
use crate::front::request::Request;
use crate::front::visit::Outcome;

/// The `Cache-Control` of a redirect. With `no-cache`, even visitors of a 301 come back to be counted.
pub fn cache_control(settings: &Settings, reuse: Reuse) -> String {
    match (reuse, settings.redirect_max_age) {
        (Reuse::Configured, seconds @ 1..) => format!("private, max-age={seconds}"),
        (Reuse::Configured, 0) | (Reuse::Never, _) => "private, no-cache".to_owned(),
    }
}

/// The fixed parts of answers.
pub struct Templates {
    /// From the status line to the name of `location`, by [`Reuse`] and [`Redirect::index`].
    redirects: [[Box<[u8]>; Redirect::ALL.len()]; Reuse::ALL.len()],
    redirect_body: bool,
    /// Each refusal, first for programs, then for people.
    refusals: [[ErrorTemplate; 2]; Refusal::ALL.len()],
}

/// An answer with a gap for a request id, which has the length of those [made here](RequestId::generate).
struct ErrorTemplate {
    /// The head without its end, before and after the id.
    head: [Box<[u8]>; 2],
    /// The body before and after the id, or the whole body if it has no id.
    body: (Box<[u8]>, Option<Box<[u8]>>),
}

impl ErrorTemplate {
    fn new(refusal: Refusal, html: bool) -> Self {
        let mark = RequestId::parse(&[b'@'; RequestId::LENGTH]).expect("it is well-formed");
        let (head, body) = refused(refusal, html, &mark);
        let around = |text: &str| {
            let (before, after) = text.split_once(mark.as_str())?;
            Some([before, after].map(|part| part.as_bytes().into()))
        };
        Self {
            head: around(&head).expect("it tells the id"),
            body: match around(&body) {
                Some([before, after]) => (before, Some(after)),
                None => (body.into_bytes().into(), None),
            },
        }
    }
}

/// A refusal's head without its end, and its body.
fn refused(refusal: Refusal, html: bool, id: &RequestId) -> (String, String) {
    let (kind, body) = match html {
        true => (page::HTML, refusal.html()),
        false => (page::PROBLEM, refusal.problem().of_request(id).json()),
    };
    let fields = format!("{}x-request-id: {id}\r\n", refusal.fields());
    let (status, reason, _) = refusal.text();
    (described((status, reason), [PAGE_FIELDS, &fields], kind, body.len()), body)
}

impl Templates {
    /// The templates for these settings.
    pub fn new(settings: &Settings) -> Self {
        let length = if settings.redirect_body { "" } else { "content-length: 0\r\n" };
        let redirects = Reuse::ALL.map(|reuse| {
            let cache_control = cache_control(settings, reuse);
            Redirect::ALL.map(|(status, reason)| {
                let head = format!(
                    "HTTP/1.1 {status} {reason}\r\ncache-control: {cache_control}\r\n{length}location: "
                );
                head.into_bytes().into_boxed_slice()
            })
        });
        let refusals =
            Refusal::ALL.map(|refusal| [false, true].map(|html| ErrorTemplate::new(refusal, html)));
        Self { redirects, redirect_body: settings.redirect_body, refusals }
    }

    /// Appends the answer to `request`. Returns its status.
    #[inline]
    pub fn write(
        &self,
        out: &mut Vec<u8>,
        head_end: HeadEnd<'_>,
        request: &Request<'_>,
        outcome: Outcome<'_>,
    ) -> u16 {
        render::render(Http1Render { templates: self, out, head_end }, request, false, outcome)
    }
}

/// The parts that complete a head.
#[derive(Clone, Copy)]
pub struct HeadEnd<'a> {
    /// Our own lines, each with its line end.
    pub lines: &'a [u8],
    /// Appends the other lines.
    pub exchange: &'a Exchange<'a>,
    /// The request's head, with the request's id that a refusal shows.
    pub head: &'a Lines<'a, 'a>,
    /// What happens to the connection.
    pub connection: Connection,
}

impl HeadEnd<'_> {
    #[inline]
    fn append(self, out: &mut Vec<u8>) {
        // Usually there are none, and copying nothing is a call, too.
        if !self.lines.is_empty() {
            out.extend_from_slice(self.lines);
        }
        self.exchange.end(out, self.connection);
    }
}

/// Appends HTTP/1.1 answers. Each returns its status.
struct Http1Render<'a> {
    templates: &'a Templates,
    out: &'a mut Vec<u8>,
    head_end: HeadEnd<'a>,
}

impl Render for Http1Render<'_> {
    type Answer = u16;

    #[inline]
    fn redirect(self, redirect: Redirect, reuse: Reuse, location: &[u8], head: bool) -> u16 {
        let Self { templates, out, head_end } = self;
        out.extend_from_slice(&templates.redirects[reuse as usize][redirect.index()]);
        out.extend_from_slice(location);
        if templates.redirect_body {
            let body = page::moved(location);
            let fields = format!("\r\ncontent-type: {}\r\ncontent-length: {}\r\n", page::HTML, body.len());
            out.extend_from_slice(fields.as_bytes());
            head_end.append(out);
            if !head {
                out.extend_from_slice(body.as_bytes());
            }
        } else {
            out.extend_from_slice(b"\r\n");
            head_end.append(out);
        }
        redirect.code()
    }

    fn page(self, page: &Page<'_>, head: bool) -> u16 {
        let described = described(page.status, [page.fields, ""], page.kind, page.body.len());
        self.out.extend_from_slice(described.as_bytes());
        self.head_end.append(self.out);
        if !head {
            self.out.extend_from_slice(page.body.as_bytes());
        }
        page.status.0
    }

    fn refuse(self, refusal: Refusal, html: bool, head: bool) -> u16 {
        let Self { templates, out, head_end } = self;
        let id = head_end.exchange.request_id(head_end.head);
        let (status, ..) = refusal.text();
        // An id from a proxy may have any length.
        let Ok(digits) = <&[u8; RequestId::LENGTH]>::try_from(id.as_bytes()) else {
            let (described, body) = refused(refusal, html, &id);
            out.extend_from_slice(described.as_bytes());
            head_end.append(out);
            if !head {
                out.extend_from_slice(body.as_bytes());
            }
            return status;
        };
        let ErrorTemplate { head: [before, after], body } =
            &templates.refusals[refusal as usize][usize::from(html)];
        out.extend_from_slice(before);
        out.extend_from_slice(digits);
        out.extend_from_slice(after);
        head_end.append(out);
        if !head {
            out.extend_from_slice(&body.0);
            if let Some(rest) = &body.1 {
                out.extend_from_slice(digits);
                out.extend_from_slice(rest);
            }
        }
        status
    }
}

/// A head without its end.
fn described((status, reason): (u16, &str), fields: [&str; 2], kind: &str, length: usize) -> String {
    let [first, second] = fields;
    format!(
        "HTTP/1.1 {status} {reason}\r\n{first}{second}content-type: {kind}\r\ncontent-length: {length}\r\n"
    )
}
