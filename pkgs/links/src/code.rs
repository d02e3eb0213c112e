//! Codes: what stands after the host in a short URL.

/// The longest code, in bytes.
pub const MAX_BYTES: usize = 64;

/// Characters of a random code unless configured: of 56, that is 1.7 x 10^12 codes.
pub const LENGTH: usize = 7;

/// What random codes are drawn from unless configured: letters and digits without those that are mistaken
/// for another in print, 0 O o and 1 I l.
pub const ALPHABET: &str = "23456789abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ";

/// Custom codes always refused: paths that programs ask any site for, words that would let a link pass
/// for a part of the service, and words that stand in a code's place in the API's own paths.
const RESERVED: [&str; 20] = [
    "admin",
    "api",
    "assets",
    "batch",
    "batch-delete",
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

/// How random codes are made and which custom ones are refused.
#[derive(Clone, Debug)]
pub struct CodePolicy {
    /// Characters of a random code.
    pub length: usize,
    /// What random codes are drawn from; at least two of ASCII alphanumerics, `-` and `_`, without repeats.
    pub alphabet: String,
    /// Custom codes refused, whatever their case, besides the built-in ones.
    pub reserved: Vec<String>,
}

/// Why a code is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCode {
    /// Nothing there.
    #[error("a code cannot be empty")]
    Empty,
    /// Longer than [`MAX_BYTES`].
    #[error("a code has at most {MAX_BYTES} characters")]
    TooLong,
    /// Something else than ASCII alphanumerics, `-`, `_` (and `.` inside).
    #[error("a code has only letters, digits, '-', '_' and, inside, '.'; not {0:?}")]
    Character(char),
    /// One of the words kept for the service itself.
    #[error("{0:?} is a reserved word")]
    Reserved(String),
}

/// Whether a link could have this code: 1 to [`MAX_BYTES`] ASCII alphanumerics, `-`, `_` and, inside, `.`.
/// Such a code needs no escaping in a path and is no dot segment (RFC 3986, section 3.3).
pub fn is_well_formed(code: &str) -> bool {
    let bytes = code.as_bytes();
    let [first, .., last] = bytes else {
        return bytes.len() == 1 && allowed(bytes[0]);
    };
    bytes.len() <= MAX_BYTES
        && *first != b'.'
        && *last != b'.'
        && bytes.iter().all(|&byte| allowed(byte) || byte == b'.')
}

/// Whether a byte may stand anywhere in a code.
const fn allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

impl CodePolicy {
    /// Whether a custom code may be taken.
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

    /// A random code of so many characters (1 to [`MAX_BYTES`]), each as likely as any other. Should it be a
    /// reserved word, a longer one.
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
        // Bytes from the last, incomplete round of the alphabet would favour its first characters.
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
