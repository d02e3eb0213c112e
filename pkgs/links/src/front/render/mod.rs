//! Renders an outcome, in each form of answer.

pub mod page;
pub mod response;
pub mod templates;

use crate::link::RedirectStatus;

use crate::front::request::Request;
use crate::front::visit::Outcome;
use page::{HTML, OWN_PAGE_FIELDS, PAGE_FIELDS, Refusal};

/// Writes answers in one form: as HTTP/1.1 bytes, or as responses for the `listener` crate.
pub trait Render: Sized {
    /// The type of an answer.
    type Answer;

    /// A redirect.
    fn redirect(self, redirect: Redirect, reuse: Reuse, location: &[u8], head: bool) -> Self::Answer;

    /// An answer with its own body.
    fn page(self, page: &Page<'_>, head: bool) -> Self::Answer;

    /// A refusal, as a page for people and as problem details for programs.
    fn refuse(self, refusal: Refusal, html: bool, head: bool) -> Self::Answer;
}

/// The kind of redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirect {
    /// The link's own status.
    As(RedirectStatus),
    /// 303, after a form was posted.
    SeeOther,
}

impl Redirect {
    /// All kinds, each at its [index](Self::index), with status and reason phrase.
    pub const ALL: [(u16, &'static str); 5] = [
        (301, "Moved Permanently"),
        (302, "Found"),
        (307, "Temporary Redirect"),
        (308, "Permanent Redirect"),
        (303, "See Other"),
    ];

    /// Its index in [`ALL`](Self::ALL).
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Self::As(status) => status as usize,
            Self::SeeOther => Self::ALL.len() - 1,
        }
    }

    /// Its status code.
    #[inline]
    pub const fn code(self) -> u16 {
        match self {
            Self::As(status) => status.code(),
            Self::SeeOther => 303,
        }
    }
}

/// Whether a client may follow a redirect again without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// For as long as the settings say.
    Configured,
    /// Never: the next answer may be another one without any edit of this link.
    Never,
}

impl Reuse {
    /// Both, each at its discriminant.
    pub const ALL: [Self; 2] = [Self::Configured, Self::Never];
}

/// An answer with a body.
pub struct Page<'p> {
    /// Status code and reason phrase.
    pub status: (u16, &'p str),
    /// Field lines, each with its line end.
    pub fields: &'p str,
    /// The content type.
    pub kind: &'p str,
    /// The body.
    pub body: &'p str,
}

/// The redirect of what is no link.
const FOUND: Redirect = Redirect::As(RedirectStatus::Found);

/// A page with this body.
fn ok(body: &str) -> Page<'_> {
    Page { status: (200, "OK"), fields: PAGE_FIELDS, kind: HTML, body }
}

/// Renders the answer to `request`. `posted` says whether it is a form, whose password was right when it was verified.
#[inline]
pub fn render<R: Render>(to: R, request: &Request<'_>, posted: bool, outcome: Outcome<'_>) -> R::Answer {
    let refusal = match outcome {
        Outcome::Follow(entry) => {
            let location = page::location(entry, request.query);
            // A 307 would send the password to the target. A 303 makes it a GET (RFC 9110, section 15.4.4).
            let redirect = if posted { Redirect::SeeOther } else { Redirect::As(entry.redirect()) };
            let reuse = if entry.lasts() { Reuse::Configured } else { Reuse::Never };
            return to.redirect(redirect, reuse, &location, request.head);
        }
        Outcome::Root(target) | Outcome::Favicon(target) => {
            return to.redirect(FOUND, Reuse::Configured, target.as_bytes(), request.head);
        }
        // A link with this code may be created at any time.
        Outcome::Elsewhere(target) => {
            return to.redirect(FOUND, Reuse::Never, target.as_bytes(), request.head);
        }
        // The link got another password while the form arrived.
        Outcome::Ask(_) if posted => return deny(to, request, Refusal::WrongPassword),
        Outcome::Ask(_) => return to.page(&ok(&page::ask(false)), request.head),
        Outcome::Welcome => return to.page(&ok(&page::welcome()), request.head),
        Outcome::Limited => return to.page(&ok(&page::limited()), request.head),
        Outcome::Robots(text) => {
            let fields = "cache-control: max-age=86400\r\n";
            return to.page(&Page { fields, kind: "text/plain", ..ok(text) }, request.head);
        }
        Outcome::Lost(body) if request.html => {
            let (status, reason, _) = Refusal::Missing.text();
            return to
                .page(&Page { status: (status, reason), fields: OWN_PAGE_FIELDS, ..ok(body) }, request.head);
        }
        Outcome::Missing | Outcome::Lost(_) => Refusal::Missing,
        Outcome::Gone => Refusal::Gone,
        // Visits that can wait have already waited.
        Outcome::Unavailable | Outcome::Unread(_) => Refusal::Unavailable,
    };
    to.refuse(refusal, request.html, request.head)
}

/// Renders the answer to a form that does not unlock its link. After a wrong password, the visitor may try again.
pub fn deny<R: Render>(to: R, request: &Request<'_>, refusal: Refusal) -> R::Answer {
    if refusal == Refusal::WrongPassword && request.html {
        let (status, reason, _) = refusal.text();
        let body = page::ask(true);
        return to.page(&Page { status: (status, reason), ..ok(&body) }, request.head);
    }
    to.refuse(refusal, request.html, request.head)
}
