//! Field selection: the members of a representation that a client wants.

use bytes::{BufMut, Bytes, BytesMut};
use service::problem::Problem;

use crate::http::failure::Failure;
use crate::json::object::Unknown;

/// The members of a representation.
const KNOWN: [&str; 11] = [
    "id",
    "version",
    "created_at",
    "updated_at",
    "email",
    "name",
    "status",
    "profile",
    "addresses",
    "tags",
    "preferences",
];

/// The most names in a selection.
const MOST: usize = 32;

/// The members to send; all if there is no selection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Option<Vec<String>>);

impl Selection {
    /// Parses names separated by commas.
    ///
    /// # Errors
    /// 400 for an unknown name, unless unknown members are kept.
    pub fn parse(text: Option<&str>, unknown: Unknown) -> Result<Self, Failure> {
        let Some(text) = text else { return Ok(Self(None)) };
        let names: Vec<String> = text.split(',').map(str::to_owned).collect();
        if names.len() > MOST {
            return Err(Problem::bad_request(format!("fields: has more than {MOST} names")).into());
        }
        let odd =
            |name: &&String| name.is_empty() || unknown == Unknown::Refuse && !KNOWN.contains(&name.as_str());
        match names.iter().find(odd) {
            Some(name) => Err(Problem::bad_request(format!("fields: there is no field {name:?}")).into()),
            None => Ok(Self(Some(names))),
        }
    }

    /// The selected part of a representation; the representation itself if everything is selected.
    pub fn of(&self, body: &Bytes) -> Bytes {
        let Some(names) = &self.0 else { return body.clone() };
        let mut selected = BytesMut::with_capacity(body.len());
        selected.put_u8(b'{');
        for (name, value) in sonic_rs::to_object_iter(body).filter_map(Result::ok) {
            if names.iter().any(|wanted| *wanted == *name) {
                if selected.len() > 1 {
                    selected.put_u8(b',');
                }
                // Names of known members need no escapes, but those of kept members may.
                selected.extend_from_slice(&sonic_rs::to_vec(&*name).unwrap_or_default());
                selected.put_u8(b':');
                selected.extend_from_slice(value.as_raw_cow().as_bytes());
            }
        }
        selected.put_u8(b'}');
        selected.freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"id":"x","version":3,"name":"A \"b\"","tags":["a","b"],"preferences":{"id":1}}"#;

    #[test]
    fn selected_members_are_sent_as_they_are_stored() {
        for (fields, expected) in [
            ("id", r#"{"id":"x"}"#),
            ("tags,name", r#"{"name":"A \"b\"","tags":["a","b"]}"#),
            ("preferences,id", r#"{"id":"x","preferences":{"id":1}}"#),
            ("profile", "{}"),
        ] {
            let selection = Selection::parse(Some(fields), Unknown::Refuse).expect("known fields");
            assert_eq!(selection.of(&Bytes::from_static(BODY)), expected, "{fields}");
        }
        assert_eq!(Selection::default().of(&Bytes::from_static(BODY)), BODY);
    }

    #[test]
    fn what_is_no_field_is_refused_unless_such_are_kept() {
        for text in ["", "x", "id,", "id,,name", "id,x", &"id,".repeat(40)] {
            assert!(Selection::parse(Some(text), Unknown::Refuse).is_err(), "{text}");
        }
        assert!(Selection::parse(Some("id,x"), Unknown::Keep).is_ok());
    }
}
