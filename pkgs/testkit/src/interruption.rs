//! Calls with a timeout, which are interrupted when the process is stopped and continued (signal(7)).

use std::io::{self, ErrorKind};

/// The result of a call, which is repeated for as long as it is interrupted.
///
/// # Errors
/// As the call, except for [`ErrorKind::Interrupted`].
pub fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_interrupted_is_repeated_and_nothing_else() {
        for (last, expected) in [(Ok(7), Ok(7)), (Err(ErrorKind::WouldBlock), Err(ErrorKind::WouldBlock))] {
            let mut results = [Err(ErrorKind::Interrupted), Err(ErrorKind::Interrupted), last].into_iter();
            let result = uninterrupted(|| results.next().expect("no more calls").map_err(io::Error::from));
            assert_eq!(result.map_err(|error| error.kind()), expected);
            assert_eq!(results.len(), 0);
        }
    }
}
