//! The bench's codes: seven random-looking characters. They are computed from a number in the same way here and in
//! wrk's Lua, so that neither side has to keep a list of a million codes.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use bench::wrk::Requests;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Length of a code.
const LENGTH: usize = 7;

/// 62 to the power of [`LENGTH`]: how many codes there are.
const SPACE: u64 = 3_521_614_606_208;

/// Scatters neighbouring numbers (Knuth's multiplicative hash). It is coprime to [`SPACE`], so no two numbers have the
/// same code. It is small enough that a double, Lua's only number, holds the product for up to 3,000,000 exactly.
const SCATTER: u64 = 2_654_435_761;

/// The code of a number.
pub fn code(number: u64) -> String {
    let mut rest = number * SCATTER % SPACE;
    let mut code = [0; LENGTH];
    for character in &mut code {
        *character = ALPHABET[(rest % 62) as usize];
        rest /= 62;
    }
    code.iter().copied().map(char::from).collect()
}

/// The path for a number's code.
pub fn path(number: u64) -> String {
    format!("/{}", code(number))
}

/// Writes `count` links as CSV, with targets as long as those of real links.
pub fn write_csv(to: impl Write, count: u64) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    writeln!(to, "code,target")?;
    let mut line = String::new();
    for number in 0..count {
        line.clear();
        let code = code(number);
        let _ = writeln!(line, "{code},https://example.com/some/landing/page?id={number}&ref=shortlink");
        to.write_all(line.as_bytes())?;
    }
    to.flush()
}

/// Requests for the codes of `count` numbers from `first` on, in another order than that of their import.
pub fn requests(first: u64, count: u64, status: u16) -> Requests {
    // Steps by the golden ratio visit all numbers before any number comes again, if the step is coprime to their count.
    let mut step = (count as f64 * 0.618) as u64 | 1;
    while common_divisor(step, count) > 1 {
        step += 2;
    }
    let script = format!(
        "local alphabet = {{('{alphabet}'):byte(1, -1)}}\n\
         local at = 0\n\
         local threads = 0\n\
         function setup(thread)\n\
           thread:set('offset', threads)\n\
           threads = threads + 1\n\
         end\n\
         function init() at = offset * {stride} end\n\
         local function code(number)\n\
           local rest = number * {SCATTER} % {SPACE}\n\
           local a = rest % 62; rest = (rest - a) / 62\n\
           local b = rest % 62; rest = (rest - b) / 62\n\
           local c = rest % 62; rest = (rest - c) / 62\n\
           local d = rest % 62; rest = (rest - d) / 62\n\
           local e = rest % 62; rest = (rest - e) / 62\n\
           local f = rest % 62; rest = (rest - f) / 62\n\
           return string.char(alphabet[a + 1], alphabet[b + 1], alphabet[c + 1], alphabet[d + 1],\n\
             alphabet[e + 1], alphabet[f + 1], alphabet[rest + 1])\n\
         end\n\
         function request()\n\
           at = (at + {step}) % {count}\n\
           return 'GET /' .. code({first} + at) .. ' HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'\n\
         end\n",
        alphabet = ALPHABET.map(char::from).iter().collect::<String>(),
        stride = count / 2,
    );
    Requests::scripted(path(first), script, status)
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}
