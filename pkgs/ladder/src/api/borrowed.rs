//! The document without copies: strings stay in the body they arrived in.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};

/// A string in the body; only a copy if it has escapes or was changed.
///
/// A separate type, since serde borrows for a field that is a `Cow`, but not inside a `Vec` or a map.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// Lower case, copied only if it wasn't.
    fn lower(&mut self) {
        if self.0.bytes().any(|byte| byte.is_ascii_uppercase() || !byte.is_ascii()) {
            self.0 = Cow::Owned(self.0.to_lowercase());
        }
    }
}

/// Like [`super::user::User`], with borrowed strings.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct User<'a> {
    pub id: i64,
    #[serde(borrow)]
    pub email: Text<'a>,
    pub name: Text<'a>,
    pub phone: Text<'a>,
    pub active: bool,
    pub age: u32,
    pub score: f64,
    pub address: Address<'a>,
    pub tags: Vec<Text<'a>>,
    pub roles: Vec<Role<'a>>,
    pub preferences: BTreeMap<Text<'a>, Text<'a>>,
    pub sign_ins: Vec<SignIn<'a>>,
    pub bio: Text<'a>,
}

/// Like [`super::user::Address`], with borrowed strings.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Address<'a> {
    #[serde(borrow)]
    pub street: Text<'a>,
    pub city: Text<'a>,
    pub postcode: Text<'a>,
    pub country: Text<'a>,
    pub latitude: f64,
    pub longitude: f64,
}

/// Like [`super::user::Role`], with borrowed strings.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Role<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub scope: Text<'a>,
    pub since: i64,
}

/// Like [`super::user::SignIn`], with borrowed strings.
#[derive(Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct SignIn<'a> {
    pub at: i64,
    #[serde(borrow)]
    pub address: Text<'a>,
    pub agent: Text<'a>,
    pub ok: bool,
}

/// Like [`super::user::Accepted`], with borrowed strings.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Accepted<'a> {
    pub tag_count: usize,
    #[serde(serialize_with = "labels")]
    pub roles: &'a [Role<'a>],
    pub user: &'a User<'a>,
}

impl<'a> Accepted<'a> {
    /// Changes the document in place.
    pub fn of(user: &'a mut User<'_>) -> Accepted<'a> {
        user.email.lower();
        user.tags.iter_mut().for_each(Text::lower);
        Accepted { tag_count: user.tags.len(), roles: &user.roles, user }
    }
}

/// Writes each role as `name:scope` straight into the answer.
fn labels<S: Serializer>(roles: &[Role<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    struct Label<'a>(&'a Role<'a>);

    impl Serialize for Label<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(&format_args!("{}:{}", self.0.name.0, self.0.scope.0))
        }
    }

    let mut list = serializer.serialize_seq(Some(roles.len()))?;
    for role in roles {
        list.serialize_element(&Label(role))?;
    }
    list.end()
}

/// Like [`super::user::Found`], with borrowed strings and without the document, which follows as PostgreSQL returns it.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Head<'a> {
    pub id: i64,
    pub email: &'a str,
    pub name: &'a str,
    pub created_at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{database, user};

    #[test]
    fn it_says_the_same_as_the_owned_document() {
        let document = database::document().replace("poetry", "\\u00c9l\\u00c8ve \\\"x\\\"");
        let owned: user::User = serde_json::from_str(&document).expect("it is a user");
        let mut borrowed: User<'_> = serde_json::from_str(&document).expect("it is a user");
        let copied = borrowed.tags.iter().filter(|tag| matches!(tag.0, Cow::Owned(_))).count();
        assert_eq!(copied, 1, "only the one with escapes");
        assert_eq!(
            serde_json::to_value(user::Accepted::of(&owned)).expect("it is JSON"),
            serde_json::to_value(Accepted::of(&mut borrowed)).expect("it is JSON"),
        );
    }
}
