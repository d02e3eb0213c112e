//! Codes: the part of a short URL after the host.

/// The longest code, in bytes.
pub const MAX_BYTES: usize = 64;

/// The default length of random codes. From 56 characters, that is 1.7 x 10^12 codes.
pub const LENGTH: usize = 7;

/// The default characters of random codes: letters and digits, without those that look alike in print, 0 O o and 1 I l.
pub const ALPHABET: &str = "23456789abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";

/// Custom codes that are always refused: paths that programs request from any site, words that would make a link look
/// like a part of the service, and words that the API's paths use where a code can stand.
const RESERVED: [&str; 21] = [
    "admin",
    "api",
    "assets",
    "batch",
    "batch-delete",
    "batch-edit",
    "export",
    "favicon.ico",
    "healthz",
    "help",
    "import",
    "index.html",
    "livez",
    "login",
    "logout",
    "metrics",
    "openapi.json",
    "readyz",
    "robots.txt",
    "sitemap.xml",
    "static",
];

/// How random codes are made, and which custom codes are refused.
#[derive(Clone, Debug)]
pub struct CodePolicy {
    /// The length of a random code.
    pub length: usize,
    /// The characters of random codes: at least two of ASCII alphanumerics, `-` and `_`, without repeats.
    pub alphabet: String,
    /// Custom codes to refuse, in any case, besides the built-in ones.
    pub reserved: Vec<String>,
}

/// Why a code is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCode {
    /// It is empty.
    #[error("a code cannot be empty")]
    Empty,
    /// It is longer than [`MAX_BYTES`].
    #[error("a code has at most {MAX_BYTES} characters")]
    TooLong,
    /// It contains something other than ASCII alphanumerics, `-`, `_` (and `.` inside).
    #[error("a code has only letters, digits, '-', '_' and, inside, '.'; not {0:?}")]
    Character(char),
    /// It is a word reserved for the service.
    #[error("{0:?} is a reserved word")]
    Reserved(String),
}

/// Whether a text is a valid code: 1 to [`MAX_BYTES`] ASCII alphanumerics, `-`, `_` and, inside, `.`. Such a code needs
/// no escaping in a path and is not a dot segment (RFC 3986, section 3.3).
pub fn is_well_formed(code: &str) -> bool {
    let bytes = code.as_bytes();
    let [first, .., last] = bytes else {
        return bytes.len() == 1 && allowed(bytes[0]);
    };
    bytes.len() <= MAX_BYTES
        && *first != b'.'
        && *last != b'.'
        && bytes.iter().all(|&byte| INSIDE[usize::from(byte)])
}

/// Whether each byte may be inside a code. A table, since each visit checks every byte of its code.
static INSIDE: [bool; 256] = {
    let mut inside = [false; 256];
    let mut byte = 0;
    while byte < inside.len() {
        inside[byte] = byte == b'.' as usize || allowed(byte as u8);
        byte += 1;
    }
    inside
};

/// Whether a byte may be anywhere in a code.
const fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

impl CodePolicy {
    /// Checks whether a custom code may be used.
    pub fn validate(&self, code: &str) -> Result<(), InvalidCode> {
        if code.is_empty() {
            return Err(InvalidCode::Empty);
        }
        if code.len() > MAX_BYTES {
            return Err(InvalidCode::TooLong);
        }
        if !is_well_formed(code) {
            let stranger = code.chars().find(|&c| !u8::try_from(c).is_ok_and(|b| allowed(b) || b == b'.'));
            return Err(InvalidCode::Character(stranger.unwrap_or('.')));
        }
        if self.is_reserved(code) {
            return Err(InvalidCode::Reserved(code.to_owned()));
        }
        Ok(())
    }

    /// A random code of this length (1 to [`MAX_BYTES`]), with all codes equally likely. If the result is a reserved
    /// word, it draws again with one more character.
    pub fn random(&self, length: usize) -> String {
        let mut length = length.clamp(1, MAX_BYTES);
        loop {
            let code = self.draw(length);
            if !self.is_reserved(&code) {
                return code;
            }
            length = (length + 1).min(MAX_BYTES);
        }
    }

    fn draw(&self, length: usize) -> String {
        let alphabet = self.alphabet.as_bytes();
        // Bytes from the incomplete last round of the alphabet would favour its first characters.
        let fair = 256 - 256 % alphabet.len();
        let mut code = String::with_capacity(length);
        let mut random = [0; MAX_BYTES];
        while code.len() < length {
            getrandom::fill(&mut random).expect("the system has random bytes");
            let fair = random.iter().map(|&byte| usize::from(byte)).filter(|&byte| byte < fair);
            code.extend(
                fair.take(length - code.len()).map(|byte| char::from(alphabet[byte % alphabet.len()])),
            );
        }
        code
    }

    fn is_reserved(&self, code: &str) -> bool {
        let configured = self.reserved.iter().map(String::as_str);
        RESERVED.into_iter().chain(configured).any(|word| word.eq_ignore_ascii_case(code))
    }
}

impl Default for CodePolicy {
    fn default() -> Self {
        Self { length: LENGTH, alphabet: ALPHABET.to_owned(), reserved: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn codes_are_refused_for_the_right_reason() {
        let policy = CodePolicy { reserved: vec!["Spring".to_owned()], ..CodePolicy::default() };
        let longest = "x".repeat(MAX_BYTES);
        let too_long = "x".repeat(MAX_BYTES + 1);
        for (code, expected) in [
            ("a", Ok(())),
            ("-_", Ok(())),
            ("a.b", Ok(())),
            ("a..b", Ok(())),
            (&longest, Ok(())),
            ("", Err(InvalidCode::Empty)),
            (&too_long, Err(InvalidCode::TooLong)),
            (".", Err(InvalidCode::Character('.'))),
            ("..", Err(InvalidCode::Character('.'))),
            (".a", Err(InvalidCode::Character('.'))),
            ("a.", Err(InvalidCode::Character('.'))),
            ("a/b", Err(InvalidCode::Character('/'))),
            ("a%41", Err(InvalidCode::Character('%'))),
            ("a\u{fc}", Err(InvalidCode::Character('\u{fc}'))),
            ("a\r\n", Err(InvalidCode::Character('\r'))),
            ("API", Err(InvalidCode::Reserved("API".to_owned()))),
            ("robots.txt", Err(InvalidCode::Reserved("robots.txt".to_owned()))),
            ("sPRING", Err(InvalidCode::Reserved("sPRING".to_owned()))),
        ] {
            assert_eq!(policy.validate(code), expected, "{code:?}");
        }
    }

    #[test]
    fn a_random_code_grows_past_reserved_words() {
        let reserved = ["a", "b", "aa", "ab", "ba", "bb"].map(str::to_owned).into();
        let policy = CodePolicy { length: 1, alphabet: "ab".to_owned(), reserved };
        assert_eq!(policy.random(1).len(), 3);
    }

    #[test]
    fn random_codes_use_the_whole_alphabet_evenly() {
        let policy = CodePolicy::default();
        let mut counts = [0_u32; 256];
        for _ in 0..1_000 {
            policy.random(MAX_BYTES).bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        }
        // 64,000 draws of 56: some 1,143 each, with a standard deviation of 34. Allows for seven of them; taking bytes
        // modulo 56 would give 1,250 to the first 32 and 1,000 to the others.
        let mean = 64_000 / ALPHABET.len() as u32;
        let (mut first, mut rest) = (0, 0);
        for (place, byte) in ALPHABET.bytes().enumerate() {
            let count = counts[usize::from(byte)];
            assert!(count.abs_diff(mean) < 7 * 34, "{:?}: {count}", char::from(byte));
            *if place < 32 { &mut first } else { &mut rest } += count;
        }
        let (first, rest) = (first / 32, rest / 24);
        assert!(first.abs_diff(rest) < 100, "{first} to {rest}");
    }

    proptest! {
        #[test]
        fn any_text_is_judged_alike_by_policy_and_hot_path(code in ".{0,70}") {
            match CodePolicy::default().validate(&code) {
                Ok(()) | Err(InvalidCode::Reserved(_)) => prop_assert!(is_well_formed(&code)),
                Err(_) => prop_assert!(!is_well_formed(&code)),
            }
        }

        #[test]
        fn a_valid_code_is_a_path_segment_as_it_stands(code in "[A-Za-z0-9._-]{1,66}") {
            prop_assume!(is_well_formed(&code));
            let url = url::Url::parse("https://s.example/").unwrap().join(&format!("/{code}")).unwrap();
            prop_assert_eq!(url.path(), format!("/{code}"));
            prop_assert_eq!(url.path_segments().unwrap().count(), 1);
        }

        #[test]
        fn random_codes_keep_their_own_policy(
            alphabet in proptest::sample::subsequence(ALPHABET.chars().chain("-_0OoIl1".chars()).collect::<Vec<_>>(), 2..=64),
            length in 0..=MAX_BYTES + 1,
            reserved in proptest::collection::vec("[a-z]{1,2}", 0..4),
        ) {
            let policy = CodePolicy { length, alphabet: alphabet.iter().collect(), reserved };
            let code = policy.random(length);
            prop_assert_eq!(policy.validate(&code), Ok(()));
            prop_assert!(code.chars().all(|c| alphabet.contains(&c)));
            prop_assert!(code.len() >= length.min(MAX_BYTES));
        }
    }
}
