//! A plain model of HTTP/1.1 (RFC 9112), slow and simple. It says which requests a client has sent, which of them have
//! to be answered and which refused, and where a connection ends.
//!
//! It knows nothing about how the services parse. [`hold`] says whether a server may react to the bytes that it
//! received with the bytes that it sent. It requires one answer per request, in order, with correct framing; a refusal
//! of anything ambiguous; and nothing more after a refusal, or after an answer that closes.

/// A listener's limits.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The request line and all headers, with their line ends, in bytes.
    pub head_bytes: usize,
    /// The most headers.
    pub fields: usize,
    /// The largest `Content-Length`, in bytes.
    pub body_bytes: u64,
    /// Whether a connection may end after any request that has a body, or that isn't GET or HEAD.
    pub bodies_close: bool,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedRequest {
    /// Its method.
    pub method: String,
    /// Its target, as it was sent.
    pub target: String,
    /// Its `Host`; empty if it has none.
    pub host: String,
    /// Whether it says which answers it accepts (RFC 9110, section 12.5).
    pub picky: bool,
    /// Whether the client leaves the connection open.
    pub keep: bool,
    /// Whether it uses HTTP/1.0, where a server may close after any request (RFC 9112, section 9.3).
    pub old: bool,
    /// Whether it waits for 100 before it sends the body.
    pub expects: bool,
    /// Its body.
    pub body: Body,
    /// Whether a server may also refuse it: it is unusual, but unambiguous.
    pub doubtful: bool,
}

impl ParsedRequest {
    /// Whether it has no body, and its method has none.
    fn is_plain(&self) -> bool {
        self.body == Body::None && matches!(&*self.method, "GET" | "HEAD")
    }
}

/// A request's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    None,
    /// All of it.
    Whole(Vec<u8>),
    /// It ends too early, or its end can't be found: no request follows.
    Broken,
}

/// What a client sends next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request.
    Request(ParsedRequest),
    /// Bytes that have to be refused, with one of these statuses.
    Refused(Vec<u16>),
    /// Part of a head, and nothing more.
    Cut,
}

/// Everything a client sends on a connection, as steps. Only the last one may be something other than a request.
#[must_use]
pub fn steps(mut bytes: &[u8], rules: &Rules) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some((step, used)) = step(bytes, rules) {
        let last = !matches!(&step, Step::Request(asked) if asked.body != Body::Broken);
        steps.push(step);
        if last {
            break;
        }
        bytes = &bytes[used..];
    }
    steps
}

/// The first step in `bytes`, and its length. None if there is nothing.
fn step(bytes: &[u8], rules: &Rules) -> Option<(Step, usize)> {
    // Section 2.2: empty lines before a request line are skipped.
    let mut start = 0;
    while bytes[start..].starts_with(b"\r\n") {
        start += 2;
    }
    if bytes[start..].is_empty() {
        return (start >= rules.head_bytes).then(|| (Step::Refused(vec![400, 414, 431]), start));
    }
    let Some(end) = find(&bytes[start..], b"\r\n\r\n").map(|at| start + at + 4) else {
        let step =
            if bytes.len() >= rules.head_bytes { Step::Refused(vec![400, 414, 431, 505]) } else { Step::Cut };
        return Some((step, bytes.len()));
    };
    let mut faults = Vec::new();
    if end > rules.head_bytes {
        faults.extend([414, 431]);
    }
    let mut head = Head::default();
    for (number, line) in lines(&bytes[start..end - 4]).enumerate() {
        if number == 0 { head.request_line(line, &mut faults) } else { head.field(line, &mut faults) }
    }
    if head.fields > rules.fields {
        faults.push(431);
    }
    head.settle(rules, &mut faults);
    if !faults.is_empty() {
        if head.doubtful {
            // The error may concern the unusual part.
            faults.extend([400, 417, 501]);
        }
        return Some((Step::Refused(faults), bytes.len()));
    }
    let (body, used) = head.body(&bytes[end..]);
    let Head { method, target, host, picky, expects, doubtful, old, .. } = head;
    let keep = !head.closes && (!old || head.keeps);
    // RFC 9110, section 10.1.1: 100 is due if content follows. Without content, 100 isn't an error.
    let expects = expects && !old;
    Some((
        Step::Request(ParsedRequest {
            method,
            target,
            host,
            picky,
            keep,
            old,
            expects,
            body,
            doubtful: doubtful || used.1,
        }),
        end + used.0,
    ))
}

/// The position of `what`.
fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The lines, separated by CRLF. A lone CR or LF stays in its line.
fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(bytes);
    std::iter::from_fn(move || {
        let bytes = rest?;
        let line = match find(bytes, b"\r\n") {
            Some(at) => {
                rest = Some(&bytes[at + 2..]);
                &bytes[..at]
            }
            None => {
                rest = None;
                bytes
            }
        };
        Some(line)
    })
}

/// Whether this is a token (RFC 9110, section 5.6.2).
fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// What is known of a head so far.
#[derive(Default)]
struct Head {
    method: String,
    target: String,
    host: String,
    picky: bool,
    old: bool,
    fields: usize,
    hosts: usize,
    lengths: Vec<Vec<u8>>,
    codings: Vec<Vec<u8>>,
    closes: bool,
    keeps: bool,
    expects: bool,
    doubtful: bool,
}

impl Head {
    /// Section 3: `method SP request-target SP HTTP-version`.
    fn request_line(&mut self, line: &[u8], faults: &mut Vec<u16>) {
        let parts: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [method, target, version] = parts[..] else { return faults.extend([400, 505]) };
        if !is_token(method) || target.is_empty() || target.iter().any(|byte| *byte <= b' ' || *byte == 0x7f)
        {
            faults.push(400);
        }
        // RFC 9110, section 7.1: a fragment is never sent.
        if target.contains(&b'#') {
            faults.push(400);
        }
        match version {
            b"HTTP/1.1" => {}
            b"HTTP/1.0" => self.old = true,
            _ => faults.extend([400, 505]),
        }
        self.method = String::from_utf8_lossy(method).into_owned();
        self.target = String::from_utf8_lossy(target).into_owned();
        // The services decide which forms of targets are allowed, which parts of RFC 3986 they may contain, and what
        // isn't supported.
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~/?=&".contains(byte);
        self.doubtful |= !target.starts_with(b"/") || !target.iter().all(plain) || target.starts_with(b"//");
        self.doubtful |= !matches!(method, b"GET" | b"HEAD" | b"POST");
    }

    /// Section 5: `field-name ":" OWS field-value OWS`, on one line.
    fn field(&mut self, line: &[u8], faults: &mut Vec<u16>) {
        self.fields += 1;
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { return faults.push(400) };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if !is_token(name) || line.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f) {
            faults.push(400);
        }
        match &*name.to_ascii_lowercase() {
            b"host" => {
                self.hosts += 1;
                let of_authority =
                    |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:[]%".contains(byte);
                if !value.iter().all(of_authority) {
                    faults.push(400);
                }
                self.doubtful |=
                    !value.iter().all(|byte| byte.is_ascii_alphanumeric() || b".-:".contains(byte));
                self.doubtful |= value.is_empty();
                self.host = String::from_utf8_lossy(value).into_owned();
            }
            b"accept" => self.picky = true,
            b"content-length" => self.lengths.push(value.to_vec()),
            b"transfer-encoding" => self.codings.push(value.to_ascii_lowercase()),
            b"expect" => {
                self.expects = true;
                if !value.eq_ignore_ascii_case(b"100-continue") {
                    // RFC 9110, section 10.1.1: it may be ignored in HTTP/1.0.
                    if self.old { self.doubtful = true } else { faults.push(417) }
                }
            }
            b"connection" => {
                for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps |= option.eq_ignore_ascii_case(b"keep-alive");
                    // No option of HTTP/1.1 itself changes where a message ends. A request with `Upgrade` may get
                    // another answer.
                    self.doubtful |= option.eq_ignore_ascii_case(b"upgrade");
                }
            }
            _ => {}
        }
    }

    /// Draws the conclusions from the whole head (sections 3.2, 6.1 and 6.3).
    fn settle(&mut self, rules: &Rules, faults: &mut Vec<u16>) {
        if self.hosts > 1 || (self.hosts == 0 && !self.old) {
            faults.push(400);
        }
        // The host that an HTTP/1.0 client means may matter, and is unknown.
        self.doubtful |= self.hosts == 0;
        let length = match &self.lengths[..] {
            [] => None,
            [one] if !one.is_empty() && one.iter().all(u8::is_ascii_digit) => {
                std::str::from_utf8(one).ok().and_then(|digits| digits.parse::<u64>().ok())
            }
            _ => None,
        };
        if length.is_none() && !self.lengths.is_empty() {
            faults.push(400);
        }
        if length.is_some_and(|length| length > rules.body_bytes) {
            faults.push(413);
        }
        if !self.codings.is_empty() && (!self.lengths.is_empty() || self.old || self.codings.len() > 1) {
            faults.push(400);
        }
        if self.codings.iter().any(|coding| coding != b"chunked") {
            faults.push(501);
        }
    }

    /// The body at the start of `bytes`, its length, and whether a server may refuse it.
    fn body(&self, bytes: &[u8]) -> (Body, (usize, bool)) {
        if !self.codings.is_empty() {
            let mut doubtful = false;
            return match chunks(bytes, &mut doubtful) {
                Some((body, used)) => (Body::Whole(body), (used, doubtful)),
                None => (Body::Broken, (bytes.len(), doubtful)),
            };
        }
        let length = self.lengths.first().and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        match length {
            None | Some(0) => (Body::None, (0, false)),
            Some(length) => match bytes.get(..length) {
                Some(body) => (Body::Whole(body.to_vec()), (length, false)),
                None => (Body::Broken, (bytes.len(), false)),
            },
        }
    }
}

/// A chunked body (section 7.1), and its length. None if it has no end.
fn chunks(bytes: &[u8], doubtful: &mut bool) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = &bytes[at..at + find(&bytes[at..], b"\r\n")?];
        at += line.len() + 2;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        // No client here uses extensions, so a server may refuse them. A size with too many digits isn't a size.
        *doubtful |= !extension.is_empty();
        let begins = |byte: &u8| b"; \t".contains(byte);
        if !(1..=15).contains(&digits) || extension.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return None;
        }
        if !extension.first().is_none_or(begins) {
            return None;
        }
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if size == 0 {
            break;
        }
        body.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    // Section 7.1.2: trailer fields up to an empty line.
    loop {
        let line = &bytes[at..at + find(&bytes[at..], b"\r\n")?];
        at += line.len() + 2;
        if line.is_empty() {
            return Some((body, at));
        }
        *doubtful = true;
        if line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return None;
        }
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// Its body, as far as it arrived.
    pub body: Vec<u8>,
    /// Whether all of it arrived.
    pub whole: bool,
    /// Whether it ends its connection.
    pub closes: bool,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, fields, body, whole, closes } = self;
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let body = String::from_utf8_lossy(&body[..body.len().min(200)]);
        write!(f, "{status} {fields:?} {body:?}")?;
        f.write_str(if *whole { "" } else { ", cut" })?;
        f.write_str(if *closes { ", closing" } else { "" })
    }
}

impl Answer {
    /// The value of a header, if there is one.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// The answer at the start of `bytes`, to a request with this method, and its length.
///
/// # Errors
/// Says what about it isn't HTTP/1.1.
pub fn answer(bytes: &[u8], method: &str) -> Result<(Answer, usize), String> {
    let shown = || String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let end = find(bytes, b"\r\n\r\n")
        .ok_or_else(|| format!("an answer without end of its head: {:?}", shown()))?;
    let mut lines = lines(&bytes[..end]);
    let line = lines.next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or_default();
    // RFC 9110, section 2.5: a server should send 1.1, and may send 1.0. This doesn't check which one it sends.
    let old = line.starts_with("HTTP/1.0 ");
    let status = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "));
    let status = status.and_then(|rest| rest.get(..3));
    let status: u16 = status
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("no status line: {:?}", shown()))?;
    let mut fields = Vec::new();
    for line in lines {
        let text = String::from_utf8_lossy(line);
        let (name, value) = text.split_once(':').ok_or_else(|| format!("no field: {text:?}"))?;
        if !is_token(name.as_bytes()) || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
            return Err(format!("a malformed field: {text:?}"));
        }
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let count = |name: &str| fields.iter().filter(|(known, _)| known == name).count();
    if count("content-length") + count("transfer-encoding") > 1 {
        return Err(format!("framed in two ways: {fields:?}"));
    }
    let mut answer = Answer { status, fields, body: Vec::new(), whole: true, closes: false };
    answer.closes = answer
        .field("connection")
        .is_some_and(|value| value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close")));
    let keeps = answer.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("keep-alive"));
    answer.closes |= old && !keeps;
    let rest = &bytes[end + 4..];
    let used = if method == "HEAD" || status < 200 || status == 204 || status == 304 {
        0
    } else if let Some(coding) = answer.field("transfer-encoding") {
        if !coding.eq_ignore_ascii_case("chunked") {
            return Err(format!("an unknown coding: {coding}"));
        }
        match chunks(rest, &mut false) {
            Some((body, used)) => {
                answer.body = body;
                used
            }
            None => {
                answer.whole = false;
                rest.len()
            }
        }
    } else if let Some(length) = answer.field("content-length") {
        let length: usize = length.parse().map_err(|_| format!("no length: {length:?}"))?;
        answer.whole = length <= rest.len();
        let length = length.min(rest.len());
        answer.body = rest[..length].to_vec();
        length
    } else {
        answer.closes = true;
        answer.body = rest.to_vec();
        rest.len()
    };
    Ok((answer, end + 4 + used))
}

/// Whether `received` has all the answers that are due for these steps, right or wrong.
#[must_use]
pub fn is_answered(steps: &[Step], mut received: &[u8]) -> bool {
    for step in steps {
        let method = match step {
            Step::Cut => return true,
            Step::Request(asked) if asked.body == Body::Broken => return true,
            Step::Request(asked) => &*asked.method,
            Step::Refused(_) => "",
        };
        loop {
            let Ok((answer, used)) = answer(received, method) else { return false };
            if !answer.whole {
                return false;
            }
            if answer.closes {
                return true;
            }
            received = &received[used..];
            if answer.status >= 200 {
                break;
            }
        }
    }
    true
}

/// Whether a server may send `received` to a client that sent `sent` and then closed its side. `fits` says whether an
/// answer suits its request.
///
/// # Errors
/// Says what it should have sent, or should not have sent.
pub fn hold(
    sent: &[u8],
    received: &[u8],
    rules: &Rules,
    fits: impl Fn(&ParsedRequest, &Answer) -> Result<(), String>,
) -> Result<(), String> {
    let mut rest = received;
    let nothing_after = |rest: &[u8], what: &str| match rest {
        [] => Ok(()),
        rest => Err(format!("after {what} came {:?}", String::from_utf8_lossy(&rest[..rest.len().min(300)]))),
    };
    for step in steps(sent, rules) {
        match step {
            Step::Cut if rest.is_empty() => return Ok(()),
            Step::Cut => {
                let (answer, _) = refusal(rest)?;
                return if answer.status >= 400 {
                    Ok(())
                } else {
                    Err(format!("part of a head got {answer:?}"))
                };
            }
            Step::Refused(statuses) => {
                if rest.is_empty() {
                    return Err(format!("no refusal with any of {statuses:?}"));
                }
                let (answer, _) = refusal(rest)?;
                return if statuses.contains(&answer.status) {
                    Ok(())
                } else {
                    Err(format!("a refusal is none of {statuses:?}: {answer:?}"))
                };
            }
            Step::Request(asked) => {
                let broken = asked.body == Body::Broken;
                if rest.is_empty() && broken {
                    return Ok(());
                }
                let (mut answer, mut used) = answer_to(rest, &asked)?;
                if answer.status == 100 && (asked.expects || broken) {
                    rest = &rest[used..];
                    if rest.is_empty() && broken {
                        return Ok(());
                    }
                    (answer, used) = answer_to(rest, &asked)?;
                }
                if answer.status < 200 {
                    return Err(format!("{answer:?} to {asked:?}"));
                }
                if answer.closes && answer.status >= 400 && (asked.doubtful || broken) {
                    // The request is refused. Even for a HEAD, a body with the reason may follow.
                    return refusal(rest).map(drop);
                }
                if !answer.whole && !broken {
                    return Err(format!("an answer is cut: {answer:?} to {asked:?}"));
                }
                rest = &rest[used..];
                if broken {
                    return nothing_after(rest, "a body without end");
                }
                fits(&asked, &answer).map_err(|why| format!("{why}: {answer:?} to {asked:?}"))?;
                if answer.closes {
                    let may = !asked.keep
                        || asked.old
                        || asked.doubtful
                        || (rules.bodies_close && !asked.is_plain());
                    return if may {
                        nothing_after(rest, "an answer that closes")
                    } else {
                        Err(format!("closed without need by {answer:?} to {asked:?}"))
                    };
                }
                if !asked.keep {
                    return Err(format!("no word of the end in {answer:?} to {asked:?}"));
                }
            }
        }
    }
    nothing_after(rest, "the last request")
}

/// The answer to a request.
fn answer_to(bytes: &[u8], asked: &ParsedRequest) -> Result<(Answer, usize), String> {
    answer(bytes, &asked.method).map_err(|why| format!("{why}; to {asked:?}"))
}

/// A refusal, which is the last answer on a connection and ends where the connection ends.
fn refusal(bytes: &[u8]) -> Result<(Answer, usize), String> {
    let (answer, used) = answer(bytes, "")?;
    // The answer to a HEAD has no body, whatever its length says.
    if !answer.closes || (!answer.whole && !answer.body.is_empty()) {
        return Err(format!("a refusal that does not end the connection: {answer:?}"));
    }
    match &bytes[used..] {
        [] => Ok((answer, used)),
        rest => {
            Err(format!("after a refusal came {:?}", String::from_utf8_lossy(&rest[..rest.len().min(300)])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { head_bytes: 1000, fields: 8, body_bytes: 100, bodies_close: false };

    fn one(bytes: &str) -> Step {
        let mut steps = steps(bytes.as_bytes(), &RULES);
        assert_eq!(steps.len(), 1, "{bytes:?}: {steps:?}");
        steps.remove(0)
    }

    fn asked(bytes: &str) -> ParsedRequest {
        match one(bytes) {
            Step::Request(asked) => asked,
            other => panic!("{other:?}: {bytes:?}"),
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let all = "\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\nPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc\
            POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHEAD /d HTTP/1.0\r\n\r\nGET";
        let steps = steps(all.as_bytes(), &RULES);
        let targets: Vec<_> = steps
            .iter()
            .map(|step| match step {
                Step::Request(asked) => (&*asked.target, asked.keep, asked.body.clone()),
                _ => ("", false, Body::None),
            })
            .collect();
        let body = || Body::Whole(b"abc".to_vec());
        assert_eq!(
            targets,
            [
                ("/a", true, Body::None),
                ("/b", true, body()),
                ("/c", true, body()),
                ("/d", false, Body::None),
                ("", false, Body::None)
            ]
        );
        assert_eq!(steps[4], Step::Cut);
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let with = |fields: &str| format!("POST / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        for (bytes, status) in [
            (with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400),
            (with("Content-Length: 1\r\nContent-Length: 1\r\n"), 400),
            (with("Content-Length: 1, 1\r\n"), 400),
            (with("Content-Length: +1\r\n"), 400),
            (with("Content-Length:\r\n"), 400),
            (with("Content-Length : 1\r\n"), 400),
            (with("Content-Length: 101\r\n"), 413),
            (with("Transfer-Encoding: gzip\r\n"), 501),
            (with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400),
            (with("Host: i\r\n"), 400),
            (with("A: b\r\n c\r\n"), 400),
            (with("A: b\nC: d\r\n"), 400),
            (with("A: b\rc\r\n"), 400),
            (with("A: \0\r\n"), 400),
            (with("Expect: more\r\n"), 417),
            (with(&"A: b\r\n".repeat(8)), 431),
            (with(&format!("A: {}\r\n", "b".repeat(1000))), 431),
            ("GET / HTTP/1.1\r\n\r\n".into(), 400),
            ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n".into(), 505),
            ("GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
            ("GET / HTTP/1.1\nHost: h\n\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".into(), 400),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), 400),
        ] {
            match one(&bytes) {
                Step::Refused(statuses) => assert!(statuses.contains(&status), "{statuses:?}: {bytes:?}"),
                other => panic!("{other:?}: {bytes:?}"),
            }
        }
    }

    #[test]
    fn a_body_without_end_is_broken() {
        for (framing, body) in [
            ("Content-Length: 3", "ab"),
            ("Transfer-Encoding: chunked", "3\r\nab"),
            ("Transfer-Encoding: chunked", "3\r\nabcd\r\n0\r\n\r\n"),
            ("Transfer-Encoding: chunked", "3\nabc\n0\n\n"),
            ("Transfer-Encoding: chunked", "x\r\n\r\n"),
            ("Transfer-Encoding: chunked", "-1\r\n\r\n"),
            ("Transfer-Encoding: chunked", "1000000000000000\r\n\r\n"),
            ("Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n"),
        ] {
            let asked = asked(&format!("POST / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n{body}"));
            assert_eq!(asked.body, Body::Broken, "{framing} {body:?}");
        }
        let odd = asked(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nT: u\r\n\r\n",
        );
        assert!(odd.doubtful && odd.body == Body::Whole(b"x".to_vec()));
    }

    #[test]
    fn the_clients_word_on_the_connection_counts() {
        for (version, fields, keep) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: keep-alive, Close\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: keep-alive\r\n", true),
            ("1.0", "Connection: keep-alive\r\nConnection: close\r\n", false),
        ] {
            assert_eq!(
                asked(&format!("GET / HTTP/{version}\r\nHost: h\r\n{fields}\r\n")).keep,
                keep,
                "{version} {fields:?}"
            );
        }
    }

    const GET: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    const LAST: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
    const BAD: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno";
    const CLOSE: &str = "GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    const TWO: &str = "GET /a HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n";
    const HALF: &str = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf";

    fn held(sent: &[&str], received: &[&str]) -> Result<(), String> {
        let fits = |asked: &ParsedRequest, answer: &Answer| {
            if asked.target == "/a" && answer.status == 200 { Ok(()) } else { Err("another's".into()) }
        };
        hold(sent.concat().as_bytes(), received.concat().as_bytes(), &RULES, fits)
    }

    #[test]
    fn a_server_that_does_as_it_should_holds() {
        for (sent, received) in [
            (&[][..], &[][..]),
            (&[GET, GET], &[OK, OK]),
            (&[GET, CLOSE, GET], &[OK, LAST]),
            (&[GET, TWO, GET], &[OK, BAD]),
            (&[GET, "GET /b HT"], &[OK]),
            (&[GET, "GET /b HT"], &[OK, BAD]),
            (&[HALF], &[]),
            (&[HALF], &[BAD]),
            (&[HALF], &[OK]),
            (
                &["HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", GET],
                &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", OK],
            ),
            (
                &["POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx", GET],
                &["HTTP/1.1 100 Continue\r\n\r\n", OK, OK],
            ),
            (&[CLOSE], &["HTTP/1.1 200 OK\r\n\r\nuntil the end"]),
            (&["FOO /a HTTP/1.1\r\nHost: h\r\n\r\n", GET], &[BAD]),
            (&["FOO /a HTTP/1.1\r\nHost: h\r\n\r\n", GET], &[OK, OK]),
        ] {
            assert_eq!(held(sent, received), Ok(()), "{sent:?} {received:?}");
        }
    }

    #[test]
    fn a_server_that_does_otherwise_is_found_out() {
        for (sent, received) in [
            // Something is served after the last request, after a refusal, after the end, or after a body without an
            // end.
            (&[GET][..], &[OK, OK][..]),
            (&[TWO, GET], &[BAD, OK]),
            (&[CLOSE, GET], &[LAST, OK]),
            (&[CLOSE, GET], &[OK, OK]),
            (&[HALF], &[OK, OK]),
            // An answer is missing, or is cut off.
            (&[GET, GET], &[OK]),
            (&[GET], &[LAST]),
            (&[GET], &["HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok"]),
            (&[GET], &["HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"]),
            // A request that should be refused is answered, or refused with the wrong status.
            (&[TWO], &[OK]),
            (&[TWO], &[LAST]),
            (&[TWO], &["HTTP/1.1 413 Too Long\r\nconnection: close\r\n\r\n"]),
            (&[TWO], &["HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno"]),
            // No client waits for 100, and answers have to be HTTP/1.1.
            (&[GET], &["HTTP/1.1 100 Continue\r\n\r\n", OK]),
            (&[GET], &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok"]),
            (&[GET], &["200 OK\r\n\r\n"]),
            // The answer to another request.
            (&["GET /b HTTP/1.1\r\nHost: h\r\n\r\n"], &[OK]),
        ] {
            assert!(held(sent, received).is_err(), "{sent:?} {received:?}");
        }
    }
}
