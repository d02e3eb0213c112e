//! Reads bodies as documents.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use service::problem::Fault;

use super::{Document, UserId};
use crate::json::object::{Member, Unknown, check_more};
use crate::json::scan::{self, Reason};
use crate::json::{Bounds, Faults, Text, checked};

/// The limits of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Users in a batch.
    pub batch: usize,
    /// Bytes of a user.
    pub user_bytes: usize,
    /// Bytes of a batch.
    pub batch_bytes: usize,
    /// How to treat unknown members.
    pub unknown: Unknown,
}

impl Limits {
    /// Nested arrays and objects in a document. Known members have at most 4 levels: the elements of a list in a group
    /// of preferences. The rest is for unknown members that are kept.
    pub const DEPTH: usize = 16;
    /// Values in a document.
    pub const VALUES: usize = 4096;
    /// Members of an object.
    pub const MEMBERS: usize = 128;

    /// The limits of a body about one user.
    pub const ONE: Bounds =
        Bounds { depth: Self::DEPTH, values: Self::VALUES, part: Self::VALUES, members: Self::MEMBERS };

    /// The limits of a batch. It has two more levels, the batch and its list, and may have one value per 16 bytes, each
    /// user as many as one alone.
    fn many(&self) -> Bounds {
        let values = self.batch_bytes / 16;
        Bounds { depth: Self::DEPTH + 2, values: values.max(Self::VALUES), ..Self::ONE }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch: 1000, user_bytes: 64 * 1024, batch_bytes: 8 << 20, unknown: Unknown::Refuse }
    }
}

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is not JSON.
    #[error("the body is not JSON: {0}")]
    Syntax(String),
    /// It is JSON, but not a valid document.
    #[error("the body does not fit")]
    Faults(Vec<Fault>),
}

impl Refused {
    fn at(pointer: impl Into<String>, detail: impl ToString) -> Self {
        Self::Faults(vec![Fault { pointer: pointer.into(), detail: detail.to_string() }])
    }

    /// The same of a part of a body, which is at this pointer.
    #[must_use]
    pub fn below(mut self, pointer: &str) -> Self {
        if let Self::Faults(faults) = &mut self {
            faults.iter_mut().for_each(|fault| fault.pointer.insert_str(0, pointer));
        }
        self
    }
}

/// A document from a client.
///
/// # Errors
/// With all its faults.
pub fn document<'a>(body: &'a [u8], limits: &Limits) -> Result<Document<'a>, Refused> {
    let document: Document<'a> = read(body, &Limits::ONE, |text, error| misfit(text, limits.unknown, error))?;
    none(document.faults(limits.unknown))?;
    Ok(document)
}

/// Whether a document, as it would be stored, is within the bounds of a body about one user. Otherwise it could neither
/// be patched nor sent again. What is stored has members with defaults that the body may lack.
///
/// # Errors
/// When it is not.
pub fn stored(document: &Document<'_>, text: &[u8]) -> Result<(), Refused> {
    let few_members = document.more.len() + Document::KNOWN <= Limits::MEMBERS;
    if few_members && most_values(text) <= Limits::VALUES {
        return Ok(());
    }
    refusal(utf8(text)?, &Limits::ONE).map_or(Ok(()), Err)
}

/// More values than a text has, or as many: each but the outermost is behind a comma, or the first in a list or object.
/// Such characters in strings count too.
fn most_values(text: &[u8]) -> usize {
    1 + text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// Documents to create: `{"users": […]}`, each made into what is needed of it as soon as it is read. So only one of
/// them is in memory. Once there are faults, further ones are only checked.
///
/// # Errors
/// With all their faults.
pub fn documents<'a, M>(
    body: &'a [u8],
    limits: &Limits,
    mut make: impl FnMut(usize, Document<'a>) -> M,
) -> Result<Vec<M>, Refused> {
    let mut made = Vec::new();
    let each = |document: Document<'a>, faults: &mut Faults| {
        document.check_whole(limits.unknown, faults);
        if faults.count() == 0 {
            made.push(make(made.len(), document));
        }
    };
    batch("users", body, limits, each, |value, unknown, faults| Document::examine(value, unknown, faults))?;
    Ok(made)
}

/// Ids: `{"ids": […]}`.
///
/// # Errors
/// With all their faults.
pub fn ids<'a>(body: &'a [u8], limits: &Limits) -> Result<Vec<UserId>, Refused> {
    let mut ids = Vec::new();
    let each = |text: Text<'a>, faults: &mut Faults| match text.parse::<UserId>() {
        Ok(id) => ids.push(id),
        Err(error) => faults.add(error),
    };
    batch("ids", body, limits, each, |value, unknown, faults| Text::examine(value, unknown, faults))?;
    Ok(ids)
}

/// A merge patch: any JSON within limits.
///
/// # Errors
/// When it is not.
pub fn patch(body: &[u8]) -> Result<Value, Refused> {
    read(body, &Limits::ONE, |_, error| Refused::Syntax(error.to_string()))
}

fn none(faults: Faults) -> Result<(), Refused> {
    let found = faults.into_found();
    if found.is_empty() { Ok(()) } else { Err(Refused::Faults(found)) }
}

fn utf8(bytes: &[u8]) -> Result<&str, Refused> {
    str::from_utf8(bytes).map_err(|_| Refused::Syntax("it is not UTF-8".to_owned()))
}

fn read<'a, T: Deserialize<'a>>(
    body: &'a [u8],
    bounds: &Bounds,
    misfit: impl FnOnce(&str, &sonic_rs::Error) -> Refused,
) -> Result<T, Refused> {
    let text = utf8(body)?;
    checked::from_str(text, bounds)
        .map_err(|error| refusal(text, bounds).unwrap_or_else(|| misfit(text, &error)))
}

/// What is wrong with a text, independent of its type.
#[cold]
fn refusal(text: &str, bounds: &Bounds) -> Option<Refused> {
    let refused = scan::check(text, bounds).err()?;
    Some(match refused.reason {
        Reason::Syntax(_) => Refused::Syntax(refused.to_string()),
        reason => Refused::at(refused.pointer, reason),
    })
}

/// Why a text within the bounds of one user is not a document, member by member.
#[cold]
fn misfit(text: &str, unknown: Unknown, error: &sonic_rs::Error) -> Refused {
    let mut faults = Faults::new();
    match serde_json::from_str(text) {
        Ok(value) => Document::examine(&value, unknown, &mut faults),
        Err(error) => return Refused::Syntax(error.to_string()),
    }
    none(faults).err().unwrap_or_else(|| Refused::at("", error))
}

/// Reads a batch: an object with a list of this name, whose elements go to `each` one by one. `examine` says why an
/// element does not have the expected form.
fn batch<'a, T: Deserialize<'a>>(
    name: &'static str,
    body: &'a [u8],
    limits: &Limits,
    each: impl FnMut(T, &mut Faults),
    examine: Examine,
) -> Result<(), Refused> {
    let (text, bounds) = (utf8(body)?, limits.many());
    let mut batch = Batch::new(name, limits);
    let members = Members { batch: &mut batch, each, of: PhantomData::<T> };
    match checked::from_str_seed(text, &bounds, members) {
        Ok(()) => batch.end(),
        Err(error) => Err(refusal(text, &bounds)
            .unwrap_or_else(|| batch_misfit(text, &bounds, Batch::new(name, limits), examine, &error))),
    }
}

/// Reports the faults of a value.
type Examine = fn(&Value, Unknown, &mut Faults);

/// Why a text within the bounds of a batch is none, element by element.
#[cold]
fn batch_misfit(
    text: &str,
    bounds: &Bounds,
    mut batch: Batch<'_>,
    examine: Examine,
    error: &sonic_rs::Error,
) -> Refused {
    let unknown = batch.limits.unknown;
    let each = |value: Value, faults: &mut Faults| examine(&value, unknown, faults);
    let members = Members { batch: &mut batch, each, of: PhantomData::<Value> };
    // If this fails too, there is no object, or no list in it, which the batch knows.
    let _ = checked::from_str_seed(text, bounds, members);
    batch.end().err().unwrap_or_else(|| Refused::at("", error))
}

/// What was found of a batch. It keeps no elements and no unknown members, however many there are.
struct Batch<'l> {
    name: &'static str,
    limits: &'l Limits,
    found: Found,
    faults: Faults,
}

enum Found {
    Nothing,
    Object,
    /// A member of the list's name.
    Member,
    /// The list, with this many elements.
    List(usize),
}

impl<'l> Batch<'l> {
    fn new(name: &'static str, limits: &'l Limits) -> Self {
        Self { name, limits, found: Found::Nothing, faults: Faults::new() }
    }

    /// Adds what is wrong with the whole.
    fn end(mut self) -> Result<(), Refused> {
        let most = self.limits.batch;
        let wrong = match self.found {
            Found::Nothing => return Err(Refused::at("", "must be an object")),
            Found::Object => Some("is missing".to_owned()),
            Found::Member => Some("must be an array".to_owned()),
            Found::List(0) => Some("must not be empty".to_owned()),
            Found::List(count) if count > most => Some(format!("has more than {most} elements")),
            Found::List(_) => None,
        };
        if let Some(wrong) = wrong {
            self.faults.member(self.name, |faults| faults.add(wrong));
        }
        none(self.faults)
    }
}

/// Reads the members of a batch.
struct Members<'b, 'l, T, F> {
    batch: &'b mut Batch<'l>,
    each: F,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T, &mut Faults)> DeserializeSeed<'de> for Members<'_, '_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T, &mut Faults)> Visitor<'de> for Members<'_, '_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { batch, mut each, .. } = self;
        batch.found = Found::Object;
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if &*name == batch.name {
                batch.found = Found::Member;
                map.next_value_seed(Elements { batch: &mut *batch, each: &mut each, of: PhantomData::<T> })?;
            } else {
                map.next_value::<IgnoredAny>()?;
                check_more([&*name], batch.limits.unknown, &mut batch.faults);
            }
        }
        Ok(())
    }
}

/// Reads the list of a batch.
struct Elements<'b, 'l, T, F> {
    batch: &'b mut Batch<'l>,
    each: &'b mut F,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>, F: FnMut(T, &mut Faults)> DeserializeSeed<'de> for Elements<'_, '_, T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T, &mut Faults)> Visitor<'de> for Elements<'_, '_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Self { batch, each, .. } = self;
        let (name, most) = (batch.name, batch.limits.batch);
        let mut count = 0;
        batch.found = Found::List(count);
        while count < most
            && let Some(element) = list.next_element::<T>()?
        {
            batch.faults.member(name, |faults| faults.element(count, |faults| each(element, faults)));
            count += 1;
        }
        // Those that are too many are only counted.
        while count >= most && list.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        batch.found = Found::List(count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(body: &[u8], limits: &Limits) -> Refused {
        document(body, limits).expect_err("it is refused")
    }

    fn pointers(refused: &Refused) -> Vec<&str> {
        match refused {
            Refused::Faults(faults) => faults.iter().map(|fault| &*fault.pointer).collect(),
            Refused::Syntax(_) => vec!["syntax"],
        }
    }

    fn full() -> Value {
        json!({
            "email": "ada@example.org", "name": "Ada Lovelace", "status": "invited",
            "profile": {"given_name": "Ada", "birth_date": "1815-12-10", "phone": "+431234567", "locale": "en-GB",
                        "time_zone": "Europe/London", "bio": "Wrote\nprograms", "family_name": null},
            "addresses": [{"label": "home", "street": "St James's Square 12", "city": "London", "country": "GB",
                           "latitude": 51.5, "longitude": -0.13}],
            "tags": ["early", "math"],
            "preferences": {"theme": "dark", "sizes": [1, 2.5], "mail": {"daily": true, "at": ["8", null]}}
        })
    }

    #[test]
    fn a_whole_document_is_read_and_written_as_it_was() {
        let mut expected = full();
        let sent = expected.to_string();
        let read = document(sent.as_bytes(), &Limits::default()).expect("it is well");
        expected["profile"].as_object_mut().unwrap().remove("family_name");
        assert_eq!(serde_json::to_value(&read).unwrap(), expected);
        let written = sonic_rs::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), expected);
    }

    #[test]
    fn the_least_document_has_defaults() {
        let read = document(br#"{"name":"A","email":"a@b"}"#, &Limits::default()).expect("it is well");
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            json!({"email": "a@b", "name": "A", "status": "active"})
        );
    }

    #[test]
    fn each_member_at_fault_is_pointed_at() {
        let long = "x".repeat(201);
        let long = long.as_str();
        for (at, value, pointer) in [
            ("/email", json!(""), "/email"),
            ("/email", json!("a b@c"), "/email"),
            ("/email", json!("a@b..c"), "/email"),
            ("/email", json!("a@-b"), "/email"),
            ("/email", json!(1), "/email"),
            ("/name", json!(""), "/name"),
            ("/name", json!("a\tb".replace("\\t", "\t")), "/name"),
            ("/name", json!(long), "/name"),
            ("/name", json!(null), "/name"),
            ("/status", json!("gone"), "/status"),
            ("/status", json!(null), "/status"),
            ("/profile", json!([]), "/profile"),
            ("/profile/birth_date", json!("1815-02-30"), "/profile/birth_date"),
            ("/profile/phone", json!("+0123"), "/profile/phone"),
            ("/profile/locale", json!("e"), "/profile/locale"),
            ("/profile/time_zone", json!("a/b/c/d"), "/profile/time_zone"),
            ("/profile/bio", json!("\u{0}".replace("\\u{0}", "\u{0}")), "/profile/bio"),
            ("/profile/nick", json!("A"), "/profile/nick"),
            ("/addresses", json!({}), "/addresses"),
            ("/addresses/0/country", json!("gb"), "/addresses/0/country"),
            ("/addresses/0/latitude", json!(90.1), "/addresses/0/latitude"),
            ("/addresses/0/longitude", json!("1"), "/addresses/0/longitude"),
            ("/addresses/0/floor", json!(3), "/addresses/0/floor"),
            ("/tags/1", json!("early"), "/tags/1"),
            ("/tags/0", json!("Upper"), "/tags/0"),
            ("/tags/0", json!("-a"), "/tags/0"),
            ("/tags", json!(vec!["a"; 33]), "/tags"),
            ("/preferences/a b", json!(1), "/preferences/a b"),
            ("/preferences/mail/daily", json!({}), "/preferences/mail/daily"),
            ("/preferences/mail/at/0", json!([]), "/preferences/mail/at/0"),
            ("/preferences/n", json!(9_007_199_254_740_993_u64), "/preferences/n"),
            ("/id", json!("x"), "/id"),
            ("/x~1y", json!(1), "/x~1y"),
        ] {
            let mut sent = full();
            let (parent, name) = at.rsplit_once('/').unwrap();
            match sent.pointer_mut(parent).unwrap() {
                Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
                Value::Object(members) => {
                    members.insert(name.replace("~1", "/"), value.clone());
                }
                other => panic!("{other}"),
            }
            let refused = refused(sent.to_string().as_bytes(), &Limits::default());
            assert_eq!(pointers(&refused), [pointer], "{at} {value}: {refused:?}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once_whether_types_or_rules_are_broken() {
        let body = br#"{"name":"","status":1,"tags":["a","A",2],"addresses":[{"label":"x","country":"AT"}],"odd":{}}"#;
        let refused = refused(body, &Limits::default());
        let expected =
            ["/email", "/name", "/status", "/addresses/0/street", "/addresses/0/city", "/tags/2", "/odd"];
        assert_eq!(pointers(&refused), expected);
    }

    #[test]
    fn unknown_members_are_kept_where_that_is_wanted_at_every_level() {
        let keep = Limits { unknown: Unknown::Keep, ..Limits::default() };
        let body = r#"{"name":"A","email":"a@b","x":{"y":[1]},"profile":{"z":1},"addresses":[{"label":"l","street":"s","city":"c","country":"AT","w":null}]}"#;
        let read = document(body.as_bytes(), &keep).expect("they are kept");
        let written: Value = serde_json::from_str(&sonic_rs::to_string(&read).unwrap()).unwrap();
        assert_eq!(written["x"], json!({"y": [1]}));
        assert_eq!(written["profile"]["z"], json!(1));
        assert_eq!(written["addresses"][0].get("w"), Some(&Value::Null));
        let refused = refused(br#"{"name":"A","email":"a@b","version":1}"#, &keep);
        assert_eq!(pointers(&refused), ["/version"]);
    }

    #[test]
    fn what_is_no_json_or_too_much_is_refused_before_it_is_read() {
        let deep = format!(
            r#"{{"name":"A","email":"a@b","preferences":{{"a":{}1{}}}}}"#,
            "[".repeat(50),
            "]".repeat(50)
        );
        let wide = format!(r#"{{"preferences":{{"a":[{}1]}}}}"#, "1,".repeat(Limits::VALUES));
        for (body, expected) in [
            (&b"\xff"[..], "syntax"),
            (b"\"\xc3\"", "syntax"),
            (b"{", "syntax"),
            (b"{} {}", "syntax"),
            (br#"{"a":1,"a":1}"#, "/a"),
            (b"[]", ""),
            (b"1", ""),
            (deep.as_bytes(), "/preferences/a/0/0/0/0/0/0/0/0/0/0/0/0/0/0"),
            (wide.as_bytes(), "/preferences/a/4093"),
        ] {
            assert_eq!(
                pointers(&refused(body, &Limits::default())),
                [expected],
                "{}",
                String::from_utf8_lossy(body)
            );
        }
    }

    #[test]
    fn what_is_stored_can_be_sent_again() {
        let keep = Limits { unknown: Unknown::Keep, ..Limits::default() };
        // Without the status, which is stored in any case.
        let with = |more: &str| format!(r#"{{"name":"A","email":"a@b",{more}}}"#);
        let list = |values: usize| with(&format!(r#""x":[1{}]"#, ",1".repeat(values - 1)));
        let members = |count: usize| {
            let members: Vec<String> = (0..count).map(|number| format!(r#""x{number:03}":1"#)).collect();
            with(&members.join(","))
        };
        // The document, name, email, status and the list are values too.
        for (body, expected) in [
            (list(Limits::VALUES - 5), None),
            (list(Limits::VALUES - 4), Some("/x/4091")),
            (members(Limits::MEMBERS - 3), None),
            (members(Limits::MEMBERS - 2), Some("/x125")),
        ] {
            let read = document(body.as_bytes(), &keep).expect("it is well as it was sent");
            let text = sonic_rs::to_vec(&read).expect("it is written");
            let refused = stored(&read, &text).err();
            assert_eq!(refused.is_some(), expected.is_some(), "{refused:?}");
            assert_eq!(refused.is_some(), document(&text, &keep).is_err());
            if let (Some(refused), Some(expected)) = (refused, expected) {
                assert_eq!(pointers(&refused), [expected]);
                assert_eq!(pointers(&refused.below("/users/3")), [format!("/users/3{expected}")]);
            }
        }
    }

    #[test]
    fn a_user_of_a_batch_has_no_more_values_than_one_alone_whatever_is_made_of_them() {
        let with = |values: usize| {
            let list = format!("[1{}]", ",1".repeat(values - 1));
            let user = format!(r#"{{"name":"A","email":"a@b","x":{list},"profile":{{"y":[]}}}}"#);
            format!(r#"{{"users":[{user},{user}],"x":{list}}}"#)
        };
        for (unknown, expected) in [(Unknown::Keep, None), (Unknown::Refuse, Some("/users/0/profile/y"))] {
            let limits = Limits { unknown, ..Limits::default() };
            // The document, name, email, both lists and the profile are values too.
            let refused = documents(with(Limits::VALUES - 6).as_bytes(), &limits, |_, _| ()).err();
            assert_eq!(refused.as_ref().map(|refused| pointers(refused)[0]), expected, "{refused:?}");
            let refused = documents(with(Limits::VALUES).as_bytes(), &limits, |_, _| ());
            assert_eq!(pointers(&refused.expect_err("it is refused")), ["/users/0/x/4092"]);
        }
    }

    #[test]
    fn no_text_has_more_values_than_are_counted() {
        for (text, values) in
            [("1", 1), (r#"[1,[2,{"a":3,"b":[4]}]]"#, 8), (r#"{"a":"x"}"#, 2), ("[[[1]]]", 4)]
        {
            assert_eq!(most_values(text.as_bytes()), values, "{text}");
        }
        assert_eq!(most_values(br#"["a,b"]"#), 3, "in strings too");
        let text = |values: usize| format!("[1{}]", ",1".repeat(values - 2));
        for values in [Limits::VALUES, Limits::VALUES + 1] {
            assert_eq!(most_values(text(values).as_bytes()), values);
            assert_eq!(scan::check(&text(values), &Limits::ONE).is_ok(), values == Limits::VALUES);
        }
    }

    #[test]
    fn batches_are_bounded_and_their_elements_pointed_at() {
        let limits = Limits { batch: 2, ..Limits::default() };
        let user = json!({"name": "A", "email": "a@b"});
        let bad = json!({"name": "A", "email": "a"});
        for (body, expected) in [
            (json!({"users": [user, bad]}), vec!["/users/1/email"]),
            (json!({"users": [{"name": 1}, bad]}), vec!["/users/0/email", "/users/0/name", "/users/1/email"]),
            (json!({"users": []}), vec!["/users"]),
            (json!({"users": [user, user, user]}), vec!["/users"]),
            (json!({"users": {}}), vec!["/users"]),
            (json!({"users": [user], "x": 1}), vec!["/x"]),
            (json!({"a": 1, "users": [1, user, 1], "x": [{}]}), vec!["/a", "/users/0", "/x", "/users"]),
            (json!({}), vec!["/users"]),
            (json!([user]), vec![""]),
        ] {
            let refused = documents(body.to_string().as_bytes(), &limits, |_, _| ());
            assert_eq!(pointers(&refused.expect_err("it is refused")), expected, "{body}");
        }
        let indices =
            documents(json!({"users": [user, user]}).to_string().as_bytes(), &limits, |index, _| index);
        assert_eq!(indices, Ok(vec![0, 1]));
        let id = "019aa5a3-7f6e-7000-8000-000000000001";
        let refused = ids(json!({"ids": [id, "x"]}).to_string().as_bytes(), &limits).expect_err("x is none");
        assert_eq!(pointers(&refused), ["/ids/1"]);
        assert_eq!(ids(json!({"ids": [id]}).to_string().as_bytes(), &limits).map(|ids| ids.len()), Ok(1));
    }
}
