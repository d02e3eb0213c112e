//! Which handler a path has for which method.

use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode, header};

/// Methods that are told apart by a bit, in the order of the bits: those of RFC 9110, section 9, and PATCH
/// (RFC 5789).
const KNOWN: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::OPTIONS,
    Method::PATCH,
    Method::TRACE,
    Method::CONNECT,
];

/// The bit of GET.
const GET: u16 = 1;

/// The handlers of one path.
#[derive(Debug)]
pub(crate) struct Methods {
    /// A bit for each method of [`KNOWN`] that has a handler.
    known: u16,
    /// The first of the handlers, which stand in the order of the bits.
    first: u32,
    /// Other methods and their handlers.
    others: Box<[(Method, u32)]>,
    /// What answers all methods that nothing else does.
    any: Option<u32>,
    /// Where the `Allow` of this path is.
    pub(crate) allow: u32,
}

/// What answers a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its handler.
    Handler(u32),
    /// GET's, without the body.
    Head(u32),
    /// Nothing; it is OPTIONS.
    Options,
    /// Nothing.
    NotAllowed,
}

impl Methods {
    /// From the handlers of the path, which are pushed with their methods in the order they are to have.
    pub(crate) fn new(first: u32, mut handlers: Vec<(Option<Method>, u32)>) -> (Self, Vec<u32>) {
        let order = |method: &Option<Method>| match method {
            Some(method) => KNOWN.iter().position(|known| known == method).unwrap_or(KNOWN.len()),
            None => usize::MAX,
        };
        handlers.sort_by_key(|(method, _)| order(method));
        let mut methods = Self { known: 0, first, others: Box::default(), any: None, allow: 0 };
        let mut others = Vec::new();
        let mut numbers = Vec::with_capacity(handlers.len());
        for ((method, handler), number) in handlers.into_iter().zip(first..) {
            match method {
                None => methods.any = Some(number),
                Some(method) => match bit(&method) {
                    0 => others.push((method, number)),
                    bit => methods.known |= bit,
                },
            }
            numbers.push(handler);
        }
        methods.others = others.into();
        (methods, numbers)
    }

    /// What answers this method.
    #[inline]
    pub(crate) fn find(&self, method: &Method) -> Found {
        let bit = bit(method);
        if self.known & bit != 0 {
            return Found::Handler(self.first + (self.known & (bit - 1)).count_ones());
        }
        self.find_other(method)
    }

    fn find_other(&self, method: &Method) -> Found {
        if let Some((_, handler)) = self.others.iter().find(|(other, _)| other == method) {
            return Found::Handler(*handler);
        }
        if *method == Method::HEAD && self.known & GET != 0 {
            return Found::Head(self.first);
        }
        match self.any {
            Some(handler) => Found::Handler(handler),
            None if *method == Method::OPTIONS => Found::Options,
            None => Found::NotAllowed,
        }
    }

    /// The first handler of the path, whose middleware is also that of the answers that no handler gives.
    pub(crate) fn representative(&self) -> u32 {
        self.first
    }

    /// The methods that are answered (RFC 9110, section 10.2.1). Only asked for where some are not.
    pub(crate) fn allow(&self) -> String {
        let answered = |method: &&Method| {
            self.known & bit(method) != 0
                || **method == Method::HEAD && self.known & GET != 0
                || **method == Method::OPTIONS
        };
        let others = self.others.iter().map(|(method, _)| method);
        let all: Vec<&str> = KNOWN.iter().filter(answered).chain(others).map(Method::as_str).collect();
        all.join(", ")
    }
}

/// The bit of a method, 0 for one without.
#[inline(always)]
fn bit(method: &Method) -> u16 {
    match *method {
        Method::GET => GET,
        Method::HEAD => 1 << 1,
        Method::POST => 1 << 2,
        Method::PUT => 1 << 3,
        Method::DELETE => 1 << 4,
        Method::OPTIONS => 1 << 5,
        Method::PATCH => 1 << 6,
        Method::TRACE => 1 << 7,
        Method::CONNECT => 1 << 8,
        _ => 0,
    }
}

/// A response of this status that names the methods of the path.
pub(crate) fn allowing<R: Default>(status: StatusCode, allow: &HeaderValue) -> Response<R> {
    let mut response = Response::new(R::default());
    *response.status_mut() = status;
    response.headers_mut().insert(header::ALLOW, allow.clone());
    response
}

/// The response to HEAD: that to GET with the length of its body instead of the body (RFC 9110, section
/// 9.3.2).
pub(crate) fn without_body<R: http_body::Body + Default>(mut response: Response<R>) -> Response<R> {
    let body = std::mem::take(response.body_mut());
    if let Some(length) = body.size_hint().exact()
        && !response.headers().contains_key(header::CONTENT_LENGTH)
        && !response.headers().contains_key(header::TRANSFER_ENCODING)
    {
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    response
}

/// Whether this is the request for what the server as a whole can do (RFC 9110, section 9.3.7).
pub(crate) fn asks_server<B>(request: &Request<B>) -> bool {
    *request.method() == Method::OPTIONS && request.uri().path() == "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_in_the_order_of_the_methods() {
        for (at, method) in KNOWN.iter().enumerate() {
            assert_eq!(bit(method), 1 << at, "{method}");
        }
        assert_eq!(bit(&Method::from_bytes(b"PURGE").expect("a token")), 0);
    }

    #[test]
    fn each_method_finds_its_handler() {
        let purge = Method::from_bytes(b"PURGE").expect("a token");
        let handlers = vec![(Some(purge.clone()), 0), (Some(Method::POST), 1), (Some(Method::GET), 2)];
        let (methods, order) = Methods::new(10, handlers);
        assert_eq!(order, [2, 1, 0]);
        for (method, found) in [
            (Method::GET, Found::Handler(10)),
            (Method::HEAD, Found::Head(10)),
            (Method::POST, Found::Handler(11)),
            (purge, Found::Handler(12)),
            (Method::OPTIONS, Found::Options),
            (Method::PUT, Found::NotAllowed),
            (Method::from_bytes(b"BREW").expect("a token"), Found::NotAllowed),
        ] {
            assert_eq!(methods.find(&method), found, "{method}");
        }
        assert_eq!(methods.allow(), "GET, HEAD, POST, OPTIONS, PURGE");
    }

    #[test]
    fn any_takes_what_is_left() {
        let (methods, _) = Methods::new(0, vec![(None, 0), (Some(Method::POST), 1)]);
        for (method, found) in [
            (Method::POST, Found::Handler(0)),
            (Method::GET, Found::Handler(1)),
            (Method::HEAD, Found::Handler(1)),
            (Method::OPTIONS, Found::Handler(1)),
        ] {
            assert_eq!(methods.find(&method), found, "{method}");
        }
    }
}
