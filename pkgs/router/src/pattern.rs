//! Parses the text of a route.

use crate::error::SyntaxError;
use crate::escape;
use crate::limits::{MAX_BYTES, MAX_PARAMS, MAX_SEGMENTS};

/// A segment of a route. Literals are percent-encoded in normal form, as in normalised paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment<'a> {
    /// `text`
    Static(Vec<u8>),
    /// `prefix{name}suffix`
    Param { prefix: Vec<u8>, name: &'a str, suffix: Vec<u8> },
    /// `{*name}`
    CatchAll { name: &'a str },
}

impl<'a> Segment<'a> {
    /// The parameter's name.
    pub(crate) fn name(&self) -> Option<&'a str> {
        match self {
            Self::Static(_) => None,
            Self::Param { name, .. } | Self::CatchAll { name } => Some(name),
        }
    }
}

/// The segments of a route, or the position of an error.
pub(crate) fn parse(route: &str) -> Result<Vec<Segment<'_>>, (usize, SyntaxError)> {
    if route.len() > MAX_BYTES {
        return Err((MAX_BYTES, SyntaxError::TooLong));
    }
    let Some(rest) = route.strip_prefix('/') else { return Err((0, SyntaxError::NoSlash)) };
    let mut segments: Vec<Segment<'_>> = Vec::new();
    let mut at = 1;
    for text in rest.split('/') {
        if matches!(segments.last(), Some(Segment::CatchAll { .. })) {
            return Err((at, SyntaxError::CatchAll));
        }
        if segments.len() == MAX_SEGMENTS {
            return Err((at, SyntaxError::TooManySegments));
        }
        let segment = segment(text).map_err(|(offset, reason)| (at + offset, reason))?;
        if let Some(name) = segment.name() {
            let mut earlier = segments.iter().filter_map(Segment::name);
            if earlier.any(|other| other == name) {
                return Err((at, SyntaxError::SameName));
            }
            if segments.iter().filter_map(Segment::name).count() == MAX_PARAMS {
                return Err((at, SyntaxError::TooManyParams));
            }
        }
        segments.push(segment);
        at += text.len() + 1;
    }
    Ok(segments)
}

/// One segment, or the position of an error in it.
fn segment(text: &str) -> Result<Segment<'_>, (usize, SyntaxError)> {
    let bytes = text.as_bytes();
    let mut literal = Vec::with_capacity(bytes.len());
    // The literal before the parameter, and the parameter.
    let mut param: Option<(Vec<u8>, &str)> = None;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            brace @ (b'{' | b'}') if bytes.get(at + 1) == Some(&brace) => {
                literal.push(brace);
                at += 2;
            }
            b'}' => return Err((at, SyntaxError::Unopened)),
            b'{' => {
                let end = text[at..].find('}').ok_or((at, SyntaxError::Unclosed))? + at;
                if param.is_some() {
                    return Err((at, SyntaxError::SecondParam));
                }
                param = Some((std::mem::take(&mut literal), &text[at + 1..end]));
                at = end + 1;
            }
            b'?' | b'#' => return Err((at, SyntaxError::NotPath)),
            b'%' => {
                let byte = escape::escaped(bytes, at).ok_or((at, SyntaxError::Escape))?;
                push(&mut literal, byte, false);
                at += 3;
            }
            byte => {
                push(&mut literal, byte, true);
                at += 1;
            }
        }
    }
    let Some((prefix, inside)) = param else { return Ok(Segment::Static(literal)) };
    if let Some(name) = inside.strip_prefix('*') {
        if !prefix.is_empty() || !literal.is_empty() {
            return Err((0, SyntaxError::CatchAll));
        }
        return is_name(name).then_some(Segment::CatchAll { name }).ok_or((0, SyntaxError::Name));
    }
    if !is_name(inside) {
        return Err((0, SyntaxError::Name));
    }
    Ok(Segment::Param { prefix, name: inside, suffix: literal })
}

/// Appends a byte of a literal in the normal form of paths. Sub-delimiters, `:` and `@` have another meaning when
/// escaped (RFC 3986, 2.2), so they stay as written.
fn push(literal: &mut Vec<u8>, byte: u8, plain: bool) {
    let kept = escape::same_escaped(byte)
        || plain && matches!(byte, b'!' | b'$' | b'&'..=b',' | b';' | b'=' | b':' | b'@');
    if kept { literal.push(byte) } else { escape::push_escape(literal, byte) }
}

fn is_name(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(text: &str) -> Segment<'static> {
        Segment::Static(text.as_bytes().to_vec())
    }

    fn param<'a>(prefix: &str, name: &'a str, suffix: &str) -> Segment<'a> {
        Segment::Param { prefix: prefix.into(), name, suffix: suffix.into() }
    }

    #[test]
    fn segments_are_read() {
        let cases: [(&str, Vec<Segment<'_>>); 11] = [
            ("/", vec![fixed("")]),
            ("/a/b", vec![fixed("a"), fixed("b")]),
            ("/a/", vec![fixed("a"), fixed("")]),
            ("/{id}", vec![param("", "id", "")]),
            ("/v{n}.json", vec![param("v", "n", ".json")]),
            ("/{*rest}", vec![Segment::CatchAll { name: "rest" }]),
            ("/{{x}}", vec![fixed("{x}")]),
            ("/a b/café", vec![fixed("a%20b"), fixed("caf%C3%A9")]),
            ("/%61%2fb", vec![fixed("a%2Fb")]),
            ("/a:b@c;d=e,f", vec![fixed("a:b@c;d=e,f")]),
            ("/{{{x}}}", vec![param("{", "x", "}")]),
        ];
        for (route, segments) in cases {
            assert_eq!(parse(route), Ok(segments), "{route}");
        }
    }

    #[test]
    fn faults_are_named_where_they_are() {
        let long = format!("/{}", "a".repeat(MAX_BYTES));
        let deep = "/a".repeat(MAX_SEGMENTS + 1);
        let many: String = (0..=MAX_PARAMS).map(|n| format!("/{{p{n}}}")).collect();
        let cases = [
            ("", 0, SyntaxError::NoSlash),
            ("a", 0, SyntaxError::NoSlash),
            ("/{id", 1, SyntaxError::Unclosed),
            ("/{id/x}", 1, SyntaxError::Unclosed),
            ("/a}", 2, SyntaxError::Unopened),
            ("/{}", 1, SyntaxError::Name),
            ("/{1a}", 1, SyntaxError::Name),
            ("/{a-b}", 1, SyntaxError::Name),
            ("/{a:u64}", 1, SyntaxError::Name),
            ("/{*}", 1, SyntaxError::Name),
            ("/{a}/{a}", 5, SyntaxError::SameName),
            ("/{a}{b}", 4, SyntaxError::SecondParam),
            ("/{*a}/b", 6, SyntaxError::CatchAll),
            ("/x{*a}", 1, SyntaxError::CatchAll),
            ("/a?b", 2, SyntaxError::NotPath),
            ("/a#b", 2, SyntaxError::NotPath),
            ("/100%", 4, SyntaxError::Escape),
            (&long, MAX_BYTES, SyntaxError::TooLong),
            (&deep, MAX_SEGMENTS * 2 + 1, SyntaxError::TooManySegments),
        ];
        for (route, at, reason) in cases {
            assert_eq!(parse(route), Err((at, reason)), "{route}");
        }
        assert!(matches!(parse(&many), Err((_, SyntaxError::TooManyParams))));
    }
}
