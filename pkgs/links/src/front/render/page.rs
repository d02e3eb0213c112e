//! The content of answers: small pages without external resources for people, and problem details for programs.

use std::borrow::Cow;

use service::problem::Problem;

use crate::cache::Entry;

/// Content type of the pages.
pub const HTML: &str = "text/html; charset=utf-8";

/// Content type of problem details (RFC 9457).
pub const PROBLEM: &str = "application/problem+json";

/// Forbids caching, framing and sniffing of the password page and of refusals.
pub const PAGE_FIELDS: &str = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
    content-security-policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
    base-uri 'none'\r\n";

/// The fields of a domain's own page, which may have images but neither scripts nor forms.
pub const OWN_PAGE_FIELDS: &str = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n\
    content-security-policy: default-src 'none'; style-src 'unsafe-inline'; img-src data: https:; \
    form-action 'none'; frame-ancestors 'none'; base-uri 'none'\r\n";

/// Answers without a redirect. The listener itself refuses bytes that are not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400: the form is incomplete or has no password, or a request without TLS has no target to redirect to.
    Malformed,
    /// 403: the password is wrong.
    WrongPassword,
    /// 404: no such link.
    Missing,
    /// 405: only `GET` and `HEAD` are answered.
    Method,
    /// 408: the request was not complete in time.
    Timeout,
    /// 410: expired or used up.
    Gone,
    /// 413: the body is longer than a password.
    Body,
    /// 429: too many password attempts.
    Attempts,
    /// 503: the store cannot be read.
    Unavailable,
}

impl Refusal {
    /// All refusals, in the order of their discriminants.
    pub const ALL: [Self; 9] = [
        Self::Malformed,
        Self::WrongPassword,
        Self::Missing,
        Self::Method,
        Self::Timeout,
        Self::Gone,
        Self::Body,
        Self::Attempts,
        Self::Unavailable,
    ];

    /// Status code, reason phrase, and a sentence for the reader.
    pub const fn text(self) -> (u16, &'static str, &'static str) {
        match self {
            Self::Malformed => (400, "Bad Request", "The request could not be understood."),
            Self::WrongPassword => (403, "Forbidden", "That password is not the one."),
            Self::Missing => (404, "Not Found", "There is no link here."),
            Self::Method => (405, "Method Not Allowed", "Links are followed with GET or HEAD."),
            Self::Timeout => (408, "Request Timeout", "The request took too long to arrive."),
            Self::Gone => (410, "Gone", "This link has expired."),
            Self::Body => (413, "Content Too Large", "The form is larger than a password needs."),
            Self::Attempts => (429, "Too Many Requests", "Too many tries. Wait a little."),
            Self::Unavailable => (503, "Service Unavailable", "The link cannot be looked up just now."),
        }
    }

    /// Field lines that belong to the status, each with its line end.
    pub const fn fields(self) -> &'static str {
        match self {
            Self::Method => "allow: GET, HEAD\r\n",
            Self::Unavailable => "retry-after: 1\r\n",
            _ => "",
        }
    }

    /// The body for a program.
    pub fn problem(self) -> Problem {
        let (status, _, detail) = self.text();
        Problem::new(status, detail)
    }

    /// The body for a person.
    pub fn html(self) -> String {
        let (status, title, detail) = self.text();
        frame(title, &format!("<h1>{status}</h1><p>{detail}</p>"))
    }
}

/// The page at `/` if it does not redirect.
pub fn welcome() -> String {
    frame("linerate-links", "<h1>linerate-links</h1><p>Short links are followed here, each at its code.</p>")
}

/// The page for a HEAD request or a bot at a link with a click limit. Browsers that are mistaken for a bot show it.
pub fn limited() -> String {
    frame(
        "Link",
        "<h1>This link works a limited number of times</h1><p>Bots and previews are not shown where it leads. Open it \
         in a browser.</p>",
    )
}

/// The page that asks for a password. `wrong` is true after a failed attempt.
pub fn ask(wrong: bool) -> String {
    let note = if wrong { "<p role=alert>That password is not the one.</p>" } else { "" };
    frame(
        "Password",
        &format!(
            "<h1>This link is protected</h1>{note}<form method=post><label>Password \
             <input type=password name=password required autofocus maxlength=256 \
             autocomplete=current-password></label> <button>Continue</button></form>"
        ),
    )
}

/// The small page of a redirect (RFC 9110, section 15.4).
pub fn moved(location: &[u8]) -> String {
    let href = escape(&String::from_utf8_lossy(location));
    frame("Moved", &format!("<p><a href=\"{href}\">{href}</a></p>"))
}

/// The target of `entry`'s redirect, for a visit with this query string.
#[inline]
pub fn location<'e>(entry: &'e Entry, query: Option<&str>) -> Cow<'e, [u8]> {
    match query {
        // A query with bytes that no URL contains cannot go into a header field.
        Some(query)
            if entry.forward_query() && !query.is_empty() && query.bytes().all(|b| b.is_ascii_graphic()) =>
        {
            with_query(entry.target(), query.as_bytes()).into()
        }
        _ => entry.target().into(),
    }
}

/// A separate function, so that its caller is small enough to be inlined.
#[inline(never)]
fn with_query(target: &[u8], query: &[u8]) -> Vec<u8> {
    let find = |text: &[u8], what| text.iter().position(|byte| *byte == what);
    let (base, fragment) = target.split_at(find(target, b'#').unwrap_or(target.len()));
    let joint: &[u8] = match find(base, b'?') {
        None => b"?",
        Some(at) if at + 1 == base.len() => b"",
        Some(_) => b"&",
    };
    [base, joint, query, fragment].concat()
}

fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content=\"width=device-width\"><meta name=robots content=noindex>\
         <title>{title}</title><style>body{{font:1rem/1.5 system-ui;margin:15vh auto;max-width:32rem;\
         padding:0 1rem;color-scheme:light dark}}input,button{{font:inherit;padding:.3em .6em}}</style>{body}"
    )
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}
