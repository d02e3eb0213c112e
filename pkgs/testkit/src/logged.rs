//! Logs of JSON.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// The whole lines of a log, which may be written to meanwhile. None if there is no such file yet.
///
/// # Panics
/// When a line is not JSON.
#[must_use]
#[track_caller]
pub fn logged(log: impl AsRef<Path>) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}
