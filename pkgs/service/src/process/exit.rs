//! Exit codes, and errors as one line.

use std::error::Error;
use std::process::ExitCode;

/// Success.
pub const OK: u8 = 0;
/// The work failed.
pub const FAILURE: u8 = 1;
/// The command line, its environment or its file is wrong.
pub const USAGE: u8 = 2;

/// Prints `error` and its sources on one line of stderr. Returns [`FAILURE`].
pub fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("error: {}", chain(error));
    ExitCode::from(FAILURE)
}

/// `error` and its sources, outermost first, joined by `: ` on one line.
///
/// Leaves out a source whose text its parent already ends with, since many libraries print their sources.
pub fn chain(error: &dyn Error) -> String {
    let mut line = one_line(&error.to_string());
    let mut source = error.source();
    while let Some(cause) = source {
        let text = one_line(&cause.to_string());
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

/// `text` with each run of white space, including line ends, replaced by one space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn a_chain_is_one_line_and_says_nothing_twice() {
        let cases: [(&[&'static str], &str); 4] = [
            (&["cannot start"], "cannot start"),
            (&["cannot start", "no such file"], "cannot start: no such file"),
            (&["a", "b\n  c", "d"], "a: b c: d"),
            (&["cannot start: disk full", "disk full"], "cannot start: disk full"),
        ];
        for (texts, line) in cases {
            let error = texts
                .iter()
                .rev()
                .fold(None, |source, text| Some(Box::new(Link { text, source })))
                .expect("every case has an error");
            assert_eq!(chain(&*error), line);
        }
    }
}
