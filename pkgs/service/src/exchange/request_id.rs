//! Request ids, by which a client's report, the access log and the audit log name the same request.
//!
//! A request has an id only if somebody will read it: if it is logged, or its answer is an error. Other requests get
//! none, so they cost nothing.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName, HeaderValue};

/// The header field of a request's id.
pub const FIELD: HeaderName = HeaderName::from_static("x-request-id");

/// The longest accepted id, in bytes. A UUID has 36, and AWS's ids have about 60.
const MAX_BYTES: usize = 128;

/// The name of one request.
#[derive(Clone, Debug)]
pub struct RequestId(Text);

#[derive(Clone, Debug)]
enum Text {
    /// An id made here. The digits are stored in place, since many answers have one.
    Made([u8; RequestId::LENGTH]),
    /// A proxy's id.
    Given(Arc<str>),
}

thread_local! {
    /// The start of all ids that this thread makes, and the number that the rest of the next id is made from. Both come
    /// from the system's randomness.
    static MADE: Cell<([u8; RequestId::LENGTH / 2], u64)> = Cell::new({
        let keys = RandomState::new();
        (digits(keys.hash_one(0_u8)), keys.hash_one(1_u8))
    });
}

impl RequestId {
    /// The length of an id made here, in characters.
    pub const LENGTH: usize = 32;

    /// Makes a unique id of 32 hexadecimal digits. It names a request and is not a secret.
    #[must_use]
    pub fn generate() -> Self {
        let (thread, number) = MADE.get();
        MADE.set((thread, number.wrapping_add(1)));
        let mut made = [0; Self::LENGTH];
        let (first, rest) = made.split_at_mut(thread.len());
        first.copy_from_slice(&thread);
        rest.copy_from_slice(&digits(scattered(number)));
        Self(Text::Made(made))
    }

    /// Reads the id that a trusted proxy sent, if it is well-formed: letters, digits and `-_.:=+/@`, at most 128 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:=+/@".contains(byte);
        let well_formed = (1..=MAX_BYTES).contains(&bytes.len()) && bytes.iter().all(known);
        std::str::from_utf8(bytes).ok().filter(|_| well_formed).map(|text| Self(Text::Given(text.into())))
    }

    /// The id in these fields of a trusted proxy's request. None if there are several.
    #[must_use]
    pub fn of_fields(fields: &HeaderMap) -> Option<Self> {
        let mut lines = fields.get_all(FIELD).iter();
        let first = lines.next().filter(|_| lines.next().is_none())?;
        Self::parse(first.as_bytes())
    }

    /// The id in this head of a trusted proxy's request, from its request line on. None if there are several.
    #[must_use]
    pub fn of_head(head: &[u8]) -> Option<Self> {
        let mut lines = crate::proxies::lines(head, b"x-request-id");
        lines.next().filter(|_| lines.next().is_none()).and_then(Self::parse)
    }

    /// Its text, which is ASCII.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Made(digits) => digits,
            Text::Given(text) => text.as_bytes(),
        }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// The id as a header field's value.
    #[must_use]
    pub fn value(&self) -> HeaderValue {
        HeaderValue::from_bytes(self.as_bytes()).unwrap_or(HeaderValue::from_static(""))
    }
}

/// A number's hexadecimal digits.
fn digits(number: u64) -> [u8; 16] {
    /// The two digits of each byte.
    static PAIRS: [[u8; 2]; 256] = {
        let (mut pairs, mut byte) = ([[0; 2]; 256], 0);
        while byte < pairs.len() {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 0xf]];
            byte += 1;
        }
        pairs
    };
    let mut digits = [0; 16];
    for (pair, byte) in digits.as_chunks_mut().0.iter_mut().zip(number.to_be_bytes()) {
        *pair = PAIRS[usize::from(byte)];
    }
    digits
}

/// A different number for each number: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), which is invertible.
const fn scattered(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RequestId {}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn digits_are_as_they_are_formatted() {
        for number in [0, u64::MAX, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x9a9a_0000_a9a9_ffff] {
            assert_eq!(digits(number), *format!("{number:016x}").as_bytes(), "{number:x}");
        }
    }

    #[test]
    fn each_request_has_another_on_any_thread() {
        let make = || std::thread::spawn(|| (0..1000).map(|_| RequestId::generate()).collect::<Vec<_>>());
        let threads = [make(), make()];
        let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().expect("ids")).collect();
        assert!(
            ids.iter()
                .all(|id| id.as_str().len() == 32 && RequestId::parse(id.as_str().as_bytes()).is_some())
        );
        let different: HashSet<_> = ids.iter().map(RequestId::as_str).collect();
        assert_eq!(different.len(), 2000);
    }

    #[test]
    fn what_is_taken_over_can_do_no_harm() {
        let long = "x".repeat(MAX_BYTES + 1);
        for (text, taken) in [
            ("6f1c2a7e-8a54-4a0b-9d5f-0f4f6a1d2b3c", true),
            ("Root=1-67891233-abcdef012345678912345678", true),
            ("a", true),
            (&long[1..], true),
            (&long, false),
            ("", false),
            ("a b", false),
            ("a\"b", false),
            ("a\r\nb", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(RequestId::parse(text.as_bytes()).is_some(), taken, "{text:?}");
        }
        let mut fields = HeaderMap::new();
        assert_eq!(RequestId::of_fields(&fields), None);
        fields.append(FIELD, HeaderValue::from_static("a"));
        assert_eq!(RequestId::of_fields(&fields).expect("one").as_str(), "a");
        fields.append(FIELD, HeaderValue::from_static("b"));
        assert_eq!(RequestId::of_fields(&fields), None, "nobody knows which");
        let head = b"GET /X-Request-Id: HTTP/1.1\r\nHost: h\r\nX-Request-ID: a\r\n\r\n";
        assert_eq!(RequestId::of_head(head).expect("one").as_str(), "a");
        assert_eq!(RequestId::of_head(&[&head[..head.len() - 2], b"x-request-id:b\r\n\r\n"].concat()), None);
    }
}
