//! JSON Merge Patch (RFC 7396).

use serde_json::{Map, Value};

/// Applies `patch` to `target`: null removes a member, objects are merged, and anything else replaces what was there.
/// Recurses as deep as the patch, which [`scan`](super::scan) has limited.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else { return };
    for (name, change) in patch {
        if change.is_null() {
            target.remove(&name);
        } else {
            merge(target.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// RFC 7396, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        for (original, patch, result) in [
            (json!({"a":"b"}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"b"}), json!({"b":"c"}), json!({"a":"b","b":"c"})),
            (json!({"a":"b"}), json!({"a":null}), json!({})),
            (json!({"a":"b","b":"c"}), json!({"a":null}), json!({"b":"c"})),
            (json!({"a":["b"]}), json!({"a":"c"}), json!({"a":"c"})),
            (json!({"a":"c"}), json!({"a":["b"]}), json!({"a":["b"]})),
            (json!({"a":{"b":"c"}}), json!({"a":{"b":"d","c":null}}), json!({"a":{"b":"d"}})),
            (json!({"a":[{"b":"c"}]}), json!({"a":[1]}), json!({"a":[1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a":"b"}), json!(["c"]), json!(["c"])),
            (json!({"a":"foo"}), json!(null), json!(null)),
            (json!({"a":"foo"}), json!("bar"), json!("bar")),
            (json!({"e":null}), json!({"a":1}), json!({"e":null,"a":1})),
            (json!([1, 2]), json!({"a":"b","c":null}), json!({"a":"b"})),
            (json!({}), json!({"a":{"bb":{"ccc":null}}}), json!({"a":{"bb":{}}})),
        ] {
            let mut target = original.clone();
            merge(&mut target, patch.clone());
            assert_eq!(target, result, "{original} and {patch}");
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), (0..9).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Whether a merge was correct: members that the patch sets to null are absent, members that it sets have the new
    /// value, and members that it does not mention are unchanged.
    fn holds(before: &Value, patch: &Value, after: &Value) -> bool {
        let Value::Object(patch) = patch else { return after == patch };
        let Value::Object(after) = after else { return false };
        let empty = Map::new();
        let before = before.as_object().unwrap_or(&empty);
        let changed = patch.iter().all(|(name, change)| match (change, after.get(name)) {
            (Value::Null, found) => found.is_none(),
            (change, Some(found)) => holds(before.get(name).unwrap_or(&Value::Null), change, found),
            (_, None) => false,
        });
        let kept =
            before.iter().all(|(name, value)| patch.contains_key(name) || after.get(name) == Some(value));
        changed && kept && after.keys().all(|name| patch.contains_key(name) || before.contains_key(name))
    }

    proptest! {
        #[test]
        fn a_patch_changes_what_it_names_and_nothing_else(before in values(), patch in values()) {
            let mut after = before.clone();
            merge(&mut after, patch.clone());
            prop_assert!(holds(&before, &patch, &after));
            let once = after.clone();
            merge(&mut after, patch);
            prop_assert_eq!(after, once, "twice is once");
        }
    }
}
