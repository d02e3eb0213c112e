//! Checks whether a text is JSON (RFC 8259) and within limits; if not, why and where.
//!
//! It is stricter than parsers: a name may occur once in an object (I-JSON, RFC 7493, section 2.3), surrogates must be
//! paired, and a number may not exceed what every language can represent. Valid texts are not scanned, except users who
//! may have too many values: [`checked`](super::checked) reads them and refuses the same texts, without the reason.
//!
//! One pass without recursion, and only a few bytes of memory per name and level.

use std::borrow::Cow;

use super::faults::push_segment;

/// The largest magnitude of a number: 2^53 - 1, up to which a double represents every integer (RFC 8259, section 6).
pub const MAX_NUMBER: f64 = 9_007_199_254_740_991.0;

/// Integers with this few digits are always below [`MAX_NUMBER`].
const SAFE_DIGITS: usize = 15;

/// The limits of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Nested arrays and objects.
    pub depth: usize,
    /// Values, including nested ones.
    pub values: usize,
    /// Values of each element of a list in the outermost object, including itself and nested ones: of a user in a
    /// batch.
    pub part: usize,
    /// Members of one object.
    pub members: usize,
}

impl Bounds {
    /// How many values there may be by the end of an element of a list in the outermost object, if there were this many
    /// before it.
    #[inline]
    pub(super) fn part_from(&self, values: usize) -> usize {
        self.values.min(values.saturating_add(self.part))
    }
}

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is no JSON.
    #[error("{0}")]
    Syntax(&'static str),
    /// It exceeds [`Bounds::depth`].
    #[error("is nested deeper than {0} levels")]
    Depth(usize),
    /// It exceeds [`Bounds::values`] or [`Bounds::part`].
    #[error("is beyond the {0} values that a body may have")]
    Values(usize),
    /// It exceeds [`Bounds::members`].
    #[error("is beyond the {0} members that an object may have")]
    Members(usize),
    /// A number exceeds [`MAX_NUMBER`].
    #[error("is a number beyond 2^53 - 1")]
    Number,
    /// An object has two members of the same name.
    #[error("is there twice")]
    Duplicate,
}

/// The refusal of a text, with the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {offset}")]
pub struct Refused {
    /// The reason.
    pub reason: Reason,
    /// The faulty value or member, if there is one (RFC 6901).
    pub pointer: String,
    /// Where the scan stopped, in bytes.
    pub offset: usize,
}

/// Checks that `text` is one JSON value within `bounds`.
///
/// # Errors
/// When it is not. The error has the first reason.
pub fn check(text: &str, bounds: &Bounds) -> Result<(), Refused> {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        text,
        at: 0,
        bounds,
        values: 0,
        most: bounds.values,
        frames: Vec::with_capacity(8),
        names: Vec::with_capacity(32),
    };
    scan.run().map_err(|reason| Refused { reason, pointer: scan.pointer(), offset: scan.at })
}

/// How many levels any parser may recurse into, whatever the size of its stack frames. With frames of a few hundred
/// bytes, that takes a hundredth of our threads' smallest stack.
pub const SAFE_LEVELS: usize = 64;

/// Whether arrays and objects are nested deeper than `levels` anywhere in `text`, JSON or not, so that a recursive
/// parser must not see it. It does not recurse. If at most `levels` brackets are opened in total, as in all usual
/// documents, it only counts them.
///
/// For invalid JSON, it is exact up to the first error, beyond which no parser goes.
pub fn is_deeper(text: &str, levels: usize) -> bool {
    let bytes = text.as_bytes();
    if opened(bytes) <= levels {
        return false;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'[' | b'{' if depth == levels => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => at = behind_string(bytes, at),
            _ => {}
        }
    }
    false
}

/// How many brackets and braces are opened, including those in strings, counted in vectors of bytes.
fn opened(bytes: &[u8]) -> usize {
    let (blocks, rest) = bytes.as_chunks::<64>();
    // `[` and `{` differ in a single bit.
    let within = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    blocks.iter().map(|block| usize::from(within(block))).sum::<usize>() + usize::from(within(rest))
}

/// The position after the string whose opening quote is just before `at`.
fn behind_string(bytes: &[u8], mut at: usize) -> usize {
    loop {
        at += plain(bytes.get(at..).unwrap_or_default());
        match bytes.get(at) {
            Some(b'"') | None => return at + 1,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

struct Scan<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
    bounds: &'a Bounds,
    values: usize,
    /// How many values there may be by the end of the current element, or by the end of all.
    most: usize,
    /// The open arrays and objects.
    frames: Vec<Frame>,
    /// The names seen in each open object.
    names: Vec<Cow<'a, str>>,
}

enum Frame {
    /// The index of the element.
    Array(usize),
    /// The index of the object's first name in `Scan::names`.
    Object(usize),
}

/// Whether a value continues.
enum Value {
    /// A member or an element follows.
    Opened,
    /// It has ended.
    Ended,
}

impl<'a> Scan<'a> {
    fn run(&mut self) -> Result<(), Reason> {
        loop {
            self.space();
            match self.frames.as_slice() {
                [] | [_] => self.most = self.bounds.values,
                [_, Frame::Array(_)] => self.most = self.bounds.part_from(self.values),
                _ => {}
            }
            self.values += 1;
            if self.values > self.most {
                let of_all = self.most == self.bounds.values;
                return Err(Reason::Values(if of_all { self.bounds.values } else { self.bounds.part }));
            }
            if matches!(self.value()?, Value::Opened) {
                continue;
            }
            // Closes the arrays and objects that end here, until one has another element or member.
            loop {
                self.space();
                let next = self.peek();
                match (self.frames.last_mut(), next) {
                    (None, None) => return Ok(()),
                    (None, Some(_)) => return Err(Reason::Syntax("something follows the value")),
                    (Some(Frame::Array(index)), Some(b',')) => {
                        *index += 1;
                        self.at += 1;
                        break;
                    }
                    (Some(Frame::Object(_)), Some(b',')) => {
                        self.at += 1;
                        self.space();
                        self.name()?;
                        break;
                    }
                    (Some(Frame::Array(_)), Some(b']')) => self.close(),
                    (Some(Frame::Object(_)), Some(b'}')) => self.close(),
                    (Some(Frame::Array(_)), _) => return Err(Reason::Syntax("a comma or ] is missing")),
                    (Some(Frame::Object(_)), _) => return Err(Reason::Syntax("a comma or } is missing")),
                }
            }
        }
    }

    fn value(&mut self) -> Result<Value, Reason> {
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                self.string()?;
            }
            Some(b'{') => {
                self.open(Frame::Object(self.names.len()))?;
                self.space();
                if self.peek() != Some(b'}') {
                    self.name()?;
                    return Ok(Value::Opened);
                }
                self.close();
            }
            Some(b'[') => {
                self.open(Frame::Array(0))?;
                self.space();
                if self.peek() != Some(b']') {
                    return Ok(Value::Opened);
                }
                self.close();
            }
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.literal("true")?,
            Some(b'f') => self.literal("false")?,
            Some(b'n') => self.literal("null")?,
            Some(_) => return Err(Reason::Syntax("a value is missing")),
            None => return Err(Reason::Syntax("it ends early")),
        }
        Ok(Value::Ended)
    }

    fn open(&mut self, frame: Frame) -> Result<(), Reason> {
        if self.frames.len() == self.bounds.depth {
            return Err(Reason::Depth(self.bounds.depth));
        }
        self.frames.push(frame);
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(Frame::Object(first)) = self.frames.pop() {
            self.names.truncate(first);
        }
        self.at += 1;
    }

    /// Reads a member's name and the colon after it.
    fn name(&mut self) -> Result<(), Reason> {
        if self.peek() != Some(b'"') {
            return Err(Reason::Syntax("a member's name is missing"));
        }
        let begin = self.at;
        self.at += 1;
        let escaped = self.string()?;
        let name = if escaped {
            // The name is already checked, and such names are rare, so a parser decodes it.
            Cow::Owned(serde_json::from_str(&self.text[begin..self.at]).unwrap_or_default())
        } else {
            Cow::Borrowed(&self.text[begin + 1..self.at - 1])
        };
        let first = match self.frames.last() {
            Some(Frame::Object(first)) => *first,
            _ => 0,
        };
        let known = &self.names[first..];
        let twice = known.contains(&name);
        let members = known.len();
        self.names.push(name);
        if twice {
            return Err(Reason::Duplicate);
        }
        if members == self.bounds.members {
            return Err(Reason::Members(self.bounds.members));
        }
        self.space();
        if self.peek() != Some(b':') {
            return Err(Reason::Syntax("a colon is missing"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads the rest of a string after its first quote. Returns whether it has escapes.
    fn string(&mut self) -> Result<bool, Reason> {
        let mut escaped = false;
        loop {
            self.at += plain(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(Reason::Syntax("a control character is in a string")),
                None => return Err(Reason::Syntax("a string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Reason> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match self.unit(self.at)? {
                0xDC00..=0xDFFF => Err(Reason::Syntax("half a surrogate pair is in a string")),
                0xD800..=0xDBFF => {
                    let second = self.bytes.get(self.at + 6..self.at + 8) == Some(b"\\u");
                    if !second || !matches!(self.unit(self.at + 6)?, 0xDC00..=0xDFFF) {
                        return Err(Reason::Syntax("half a surrogate pair is in a string"));
                    }
                    self.at += 12;
                    Ok(())
                }
                _ => {
                    self.at += 6;
                    Ok(())
                }
            },
            _ => Err(Reason::Syntax("there is no such escape")),
        }
    }

    /// Reads the four digits of a `\u` at `at`.
    fn unit(&self, at: usize) -> Result<u16, Reason> {
        let digits = self.bytes.get(at + 2..at + 6).unwrap_or_default();
        let valid = digits.len() == 4 && digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| valid);
        text.and_then(|text| u16::from_str_radix(text, 16).ok())
            .ok_or(Reason::Syntax("an escape lacks its four digits"))
    }

    fn number(&mut self) -> Result<(), Reason> {
        let begin = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits()?;
        if whole > 1 && self.bytes[self.at - whole] == b'0' {
            return Err(Reason::Syntax("a number begins with 0"));
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            integer = false;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            integer = false;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        if integer && whole <= SAFE_DIGITS {
            return Ok(());
        }
        let number = &self.text[begin..self.at];
        let size = number.parse().map_or(f64::INFINITY, f64::abs);
        if size > MAX_NUMBER {
            return Err(Reason::Number);
        }
        Ok(())
    }

    /// Reads at least one digit. Returns how many.
    fn digits(&mut self) -> Result<usize, Reason> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(Reason::Syntax("a number lacks a digit")) } else { Ok(count) }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Reason> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(Reason::Syntax("a value is missing"));
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The pointer to the current place.
    fn pointer(&self) -> String {
        let mut pointer = String::new();
        for (level, frame) in self.frames.iter().enumerate() {
            match frame {
                Frame::Array(index) => push_segment(&mut pointer, &index.to_string()),
                Frame::Object(first) => {
                    // The object's last name is just before the names of the next nested object.
                    let within = self.frames[level + 1..].iter().find_map(|frame| match frame {
                        Frame::Object(first) => Some(*first),
                        Frame::Array(_) => None,
                    });
                    let end = within.unwrap_or(self.names.len());
                    if end > *first {
                        push_segment(&mut pointer, &self.names[end - 1]);
                    }
                }
            }
        }
        pointer
    }
}

/// How many bytes from here on are plain: no quote, backslash or control character. Checks eight at a time with
/// Mycroft's arithmetic: a byte is below n if subtracting n borrows from its clear high bit.
#[inline]
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, n: u8| word.wrapping_sub(ONES * u64::from(n)) & !word & HIGH;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quote = below(word ^ (ONES * u64::from(b'"')), 1);
        let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
        let special = quote | backslash | below(word, 0x20);
        if special != 0 {
            // Borrows only run upwards, so the lowest hit is correct.
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes[at..].iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | ..0x20)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::checked;
    use proptest::prelude::*;

    const WIDE: Bounds = Bounds { depth: 100, values: 10_000, part: 10_000, members: 1_000 };

    /// Why a text is refused. The reading code accepts the same texts.
    fn reason(text: &str, bounds: &Bounds) -> Option<(Reason, String)> {
        let refused = check(text, bounds).err();
        let read = checked::from_str::<serde_json::Value>(text, bounds);
        assert_eq!(read.is_ok(), refused.is_none(), "{text}: {read:?}, {refused:?}");
        refused.map(|refused| (refused.reason, refused.pointer))
    }

    #[test]
    fn what_json_is_and_is_not() {
        for text in [
            "null",
            " true ",
            "false",
            "0",
            "-0",
            "1.5e-3",
            "-12.25E+2",
            "9007199254740991",
            "-9007199254740991",
            r#""""#,
            r#""a\n\u00e9\ud83d\ude00""#,
            "[]",
            "{}",
            "[1,[2,{}],{\"a\":[]}]",
            "{\"a\":1,\"b\":{\"a\":1}}",
            "\"\u{7f}é😀\"",
            "1e-400",
            "0.00000000000000000000000000000000000000000000000000000000000000001",
        ] {
            assert_eq!(reason(text, &WIDE), None, "{text}");
        }
        for text in [
            "",
            " ",
            "nul",
            "nulls",
            "tru",
            "01",
            "-",
            "1.",
            ".5",
            "1e",
            "1e+",
            "+1",
            "0x1",
            "NaN",
            "Infinity",
            "'a'",
            "\"a",
            "\"\u{1}\"",
            "\"\t\"",
            r#""\x""#,
            r#""\u12""#,
            r#""\u123g""#,
            r#""\ud800""#,
            r#""\ud800a""#,
            r#""\ud800\u0041""#,
            r#""\udc00""#,
            "[",
            "[1",
            "[1,",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "{\"a\" 1}",
            "]",
            "}",
            "[}",
            "{]",
            "1 2",
            "{} {}",
            "/**/1",
            "\u{feff}1",
            r#""\u+123""#,
        ] {
            assert!(matches!(reason(text, &WIDE), Some((Reason::Syntax(_), _))), "{text}");
        }
    }

    #[test]
    fn what_is_too_much_is_pointed_at() {
        let bounds = Bounds { depth: 3, values: 8, part: 8, members: 3 };
        for (text, expected, pointer) in [
            ("[[[[]]]]", Reason::Depth(3), "/0/0/0"),
            (r#"{"a":{"b":[[1]]}}"#, Reason::Depth(3), "/a/b/0"),
            ("[1,2,3,4,5,6,7,8]", Reason::Values(8), "/7"),
            (r#"{"a":1,"b":2,"c":3,"d":4}"#, Reason::Members(3), "/d"),
            (r#"{"a":1,"b":{"x":1},"a":2}"#, Reason::Duplicate, "/a"),
            (r#"{"a":1,"\u0061":2}"#, Reason::Duplicate, "/a"),
            (r#"[{"x/y~":{"n":9007199254740992}}]"#, Reason::Number, "/0/x~1y~0/n"),
            ("[1e400]", Reason::Number, "/0"),
            ("[-1e16]", Reason::Number, "/0"),
        ] {
            assert_eq!(reason(text, &bounds), Some((expected, pointer.to_owned())), "{text}");
        }
    }

    #[test]
    fn each_element_of_a_list_in_the_outermost_object_is_counted_for_itself() {
        let bounds = Bounds { depth: 4, values: 12, part: 3, members: 3 };
        for (text, expected) in [
            (r#"{"a":[[1,2],{"b":3},4]}"#, None),
            (r#"{"a":[[1,2],[1,2,3],4]}"#, Some((Reason::Values(3), "/a/1/2"))),
            (r#"{"a":[[1,[2]]]}"#, Some((Reason::Values(3), "/a/0/1/0"))),
            // Whatever follows the list is not of its last element, and an object's members are no elements.
            (r#"{"a":[[1,2]],"b":[1,2],"c":{"d":4}}"#, None),
            (r#"{"a":{"b":1,"c":[1,2,3],"d":[1,2]}}"#, None),
            ("[[1,2,3,4],[5]]", None),
            // All of them have a limit too.
            (r#"{"a":[1,2,3,4,5,6,7,8,9,10,11]}"#, Some((Reason::Values(12), "/a/10"))),
        ] {
            let expected = expected.map(|(reason, pointer)| (reason, pointer.to_owned()));
            assert_eq!(reason(text, &bounds), expected, "{text}");
        }
    }

    #[test]
    fn strings_end_where_they_end_at_every_alignment() {
        for length in 0..40 {
            for special in ["\"", "\\", "\u{1f}", "\n"] {
                let text = format!("{}{special}\"\"\"\"\"\"\"\"\"", "é".repeat(length));
                assert_eq!(plain(text.as_bytes()), 2 * length, "{text:?}");
            }
            assert_eq!(plain("a".repeat(length).as_bytes()), length);
        }
    }

    #[test]
    fn depth_is_found_wherever_it_is() {
        let nested = |open: &str, levels: usize| open.repeat(levels);
        for levels in [0, 1, 2, SAFE_LEVELS, 10_000] {
            for open in ["[", "{\"a\":", " [ ", "{\"]]}}\":"] {
                let text = nested(open, levels);
                assert!(!is_deeper(&text, levels), "{levels} of {open}");
                assert!(levels == 0 || is_deeper(&text, levels - 1), "{levels} of {open}");
            }
        }
        // Many brackets that are not nested, and some within texts.
        assert!(!is_deeper(&format!("[{}0]", "[],{},".repeat(5_000)), 2));
        assert!(!is_deeper(&format!("\"{}\"", "[".repeat(5_000)), 0));
        assert!(!is_deeper(&format!("\"{}", "[".repeat(5_000)), 0));
        assert!(!is_deeper(&format!("\"{}\\", "[".repeat(5_000)), 0));
    }

    /// The depth of a value.
    fn depth(value: &serde_json::Value) -> usize {
        match value {
            serde_json::Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
            serde_json::Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn documents() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(serde_json::Value::from),
            "\\PC{0,8}|[\\[{\\]}\"\\\\]{0,8}".prop_map(serde_json::Value::from)
        ];
        leaf.prop_recursive(9, 64, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
                prop::collection::hash_map("[a-c\\[{\"\\\\]{0,3}", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        /// The count without parsing equals serde's.
        #[test]
        fn depth_is_that_of_the_value(value in documents(), levels in 0_usize..9) {
            for text in [value.to_string(), format!("{value:#}")] {
                prop_assert_eq!(is_deeper(&text, levels), depth(&value) > levels, "{}", text);
                let bounds = Bounds { depth: levels, ..WIDE };
                let refused = check(&text, &bounds).err().map(|refused| refused.reason);
                prop_assert_eq!(refused == Some(Reason::Depth(levels)), depth(&value) > levels);
            }
        }

        /// For any text: if the scan refuses it as too deep, so does this count. A parser therefore never recurses
        /// deeper.
        #[test]
        fn what_a_parser_gets_to_is_counted(text in r#"([\[{"}\],:a1\\]|\{"a":|\["\]",){0,60}"#, levels in 0_usize..8) {
            let bounds = Bounds { depth: levels, ..WIDE };
            if check(&text, &bounds).err().map(|refused| refused.reason) == Some(Reason::Depth(levels)) {
                prop_assert!(is_deeper(&text, levels), "{}", text);
            }
        }

        /// Whatever serde_json refuses is refused; what it accepts is accepted, except for the stricter rules.
        #[test]
        fn parsers_agree(text in r#"[\[\]{}:,"\\ua-f0-9eE.+ -]{0,24}|(\{"a":[0-9.eE-]{1,6}(,"b":\[(null|true|"\\u[0-9a-f]{4}")\])?\})"#) {
            let checked = checked::from_str::<serde_json::Value>(&text, &WIDE);
            prop_assert_eq!(checked.is_ok(), check(&text, &WIDE).is_ok());
            match check(&text, &WIDE) {
                Ok(()) => prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok()),
                Err(Refused { reason: Reason::Syntax(_), .. }) => {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_err());
                }
                Err(_) => {}
            }
        }
    }
}
