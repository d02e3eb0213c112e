//! A user's preferences: settings, lists of settings, and groups of these.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;

use crate::json::Text;
use crate::json::object::Member;

/// Preferences under names that the client chooses, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preferences<'a>(pub Vec<(Text<'a>, Setting<'a>)>);

/// A preference.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(Text<'a>),
    /// Several.
    List(Vec<Setting<'a>>),
    /// Several, each with a name.
    Group(Preferences<'a>),
}

impl Preferences<'_> {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Member<'de> for Preferences<'a> {}

impl<'de: 'a, 'a> Deserialize<'de> for Preferences<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Preferences<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Preferences<'de>, A::Error> {
                members(map)
            }
        }
        deserializer.deserialize_map(Members)
    }
}

fn members<'de, A: MapAccess<'de>>(mut map: A) -> Result<Preferences<'de>, A::Error> {
    let mut members = Vec::new();
    while let Some(member) = map.next_entry()? {
        members.push(member);
    }
    Ok(Preferences(members))
}

impl<'de: 'a, 'a> Deserialize<'de> for Setting<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Setting<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Setting<'de>, E> {
                Ok(Setting::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Setting<'de>, E> {
                Ok(Setting::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Setting<'de>, E> {
                Ok(Setting::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Setting<'de>, E> {
                Ok(Setting::Number(value.into()))
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Setting<'de>, E> {
                let number = Number::from_f64(value).ok_or_else(|| E::custom("must be finite"))?;
                Ok(Setting::Number(number))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Setting<'de>, E> {
                Ok(Setting::Text(text.into()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Setting<'de>, E> {
                Ok(Setting::Text(text.to_owned().into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Setting<'de>, A::Error> {
                let mut list = Vec::new();
                while let Some(element) = elements.next_element()? {
                    list.push(element);
                }
                Ok(Setting::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Setting<'de>, A::Error> {
                members(map).map(Setting::Group)
            }
        }
        deserializer.deserialize_any(Any)
    }
}

impl Serialize for Preferences<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, setting)| (name, setting)))
    }
}

impl Serialize for Setting<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => text.serialize(serializer),
            Self::List(list) => list.serialize(serializer),
            Self::Group(group) => group.serialize(serializer),
        }
    }
}
