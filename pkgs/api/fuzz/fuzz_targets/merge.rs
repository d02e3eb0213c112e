//! A merge patch, after the document it is applied to and a line end: applying it twice changes nothing more, and what
//! it removes is gone.
#![no_main]

use api::json::merge::merge;
use api::user::parse::patch;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Whether the value has nothing that the patch removes, and all scalars that it sets.
fn is_as(value: &Value, patch: &Value) -> bool {
    match (value, patch) {
        (Value::Object(members), Value::Object(changes)) => changes.iter().all(|(name, change)| match change {
            Value::Null => !members.contains_key(name),
            change => members.get(name).is_some_and(|value| is_as(value, change)),
        }),
        (value, patch) => value == patch,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (Ok(mut value), Ok(change)) = (patch(&bytes[..end]), patch(&bytes[end + 1..])) else { return };
    merge(&mut value, change.clone());
    assert!(is_as(&value, &change), "{change}: {value}");
    let mut again = value.clone();
    merge(&mut again, change);
    assert_eq!(again, value);
});
