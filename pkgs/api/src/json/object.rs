//! Objects with known members.
//!
//! [`object!`] makes a struct deserialisable without the overhead of serde's `flatten`. Each known member may occur
//! once, and unknown members are kept in `more`. The same list has each member's rule. The rules apply to a document
//! that was read. If it could not be read, they apply to its JSON value: every member is tried separately, so that each
//! fault gets its pointer.

use serde::de::Deserialize;
use serde_json::Value;

use super::faults::Faults;
use super::text::Text;

/// What to do with unknown members of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Unknown {
    /// Refuse: each is a fault.
    #[default]
    Refuse,
    /// Keep them as received.
    Keep,
}

/// A possible type of a member.
pub trait Member<'de>: Deserialize<'de> {
    /// Adds all faults of `value`, down to the level where its type is known.
    fn examine(value: &'de Value, _unknown: Unknown, faults: &mut Faults) {
        if let Err(error) = Self::deserialize(value) {
            faults.add(error);
        }
    }
}

impl<'de> Member<'de> for Text<'de> {}
impl Member<'_> for f64 {}

impl<'de, T: Member<'de>> Member<'de> for Option<T> {
    fn examine(value: &'de Value, unknown: Unknown, faults: &mut Faults) {
        if !value.is_null() {
            T::examine(value, unknown, faults);
        }
    }
}

impl<'de, T: Member<'de>> Member<'de> for Vec<T> {
    fn examine(value: &'de Value, unknown: Unknown, faults: &mut Faults) {
        let Some(elements) = value.as_array() else { return faults.add("must be an array") };
        for (index, element) in elements.iter().enumerate() {
            faults.element(index, |faults| T::examine(element, unknown, faults));
        }
    }
}

/// An object with known members.
pub trait Object {
    /// Adds the faults of its members.
    fn check(&self, unknown: Unknown, faults: &mut Faults);
}

/// Every unknown member is a fault, unless they are kept.
pub fn check_more<'n>(names: impl IntoIterator<Item = &'n str>, unknown: Unknown, faults: &mut Faults) {
    if unknown == Unknown::Refuse {
        for name in names {
            faults.member(name, |faults| faults.add("is unknown"));
        }
    }
}

/// Makes a struct an [`Object`]. The struct borrows its texts and has a member `more`. The list gives each other
/// member's name, its type, whether it is `required` or has a `default`, and its rule, which is a
/// `fn(&Type, Unknown, &mut Faults)`.
macro_rules! object {
    ($object:ident<$de:lifetime> { $($name:ident: $type:ty, $presence:ident, $rule:expr;)* }) => {
        impl<$de> serde::Deserialize<$de> for $object<$de> {
            fn deserialize<D: serde::Deserializer<$de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Members;

                impl<$de> serde::de::Visitor<$de> for Members {
                    type Value = $object<$de>;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: serde::de::MapAccess<$de>>(self, mut map: A) -> Result<$object<$de>, A::Error> {
                        $(let mut $name: Option<$type> = None;)*
                        let mut more = serde_json::Map::new();
                        while let Some(name) = map.next_key::<$crate::json::Text<$de>>()? {
                            match &*name {
                                $(stringify!($name) => $name = Some(map.next_value()?),)*
                                _ => {
                                    more.insert(name.0.into_owned(), map.next_value()?);
                                }
                            }
                        }
                        Ok($object {
                            $($name: $crate::json::object::object!(@take $presence, $name),)*
                            more,
                        })
                    }
                }
                deserializer.deserialize_map(Members)
            }
        }

        impl<$de> $crate::json::object::Member<$de> for $object<$de> {
            fn examine(value: &$de serde_json::Value, unknown: $crate::json::object::Unknown, faults: &mut $crate::json::Faults) {
                let Some(members) = value.as_object() else { return faults.add("must be an object") };
                $(match members.get(stringify!($name)) {
                    Some(value) => faults.member(stringify!($name), |faults| {
                        let before = faults.count();
                        <$type as $crate::json::object::Member<$de>>::examine(value, unknown, faults);
                        if before == faults.count() && let Ok(member) = <$type as serde::Deserialize>::deserialize(value) {
                            let rule: fn(&$type, $crate::json::object::Unknown, &mut $crate::json::Faults) = $rule;
                            rule(&member, unknown, faults);
                        }
                    }),
                    None => $crate::json::object::object!(@absent $presence, $name, faults),
                })*
                let names = members.keys().map(String::as_str);
                let more = names.filter(|name| !matches!(*name, $(stringify!($name))|*));
                $crate::json::object::check_more(more, unknown, faults);
            }
        }

        impl<$de> $crate::json::object::Object for $object<$de> {
            fn check(&self, unknown: $crate::json::object::Unknown, faults: &mut $crate::json::Faults) {
                $(faults.member(stringify!($name), |faults| {
                    let rule: fn(&$type, $crate::json::object::Unknown, &mut $crate::json::Faults) = $rule;
                    rule(&self.$name, unknown, faults);
                });)*
                $crate::json::object::check_more(self.more.keys().map(String::as_str), unknown, faults);
            }
        }
    };
    (@take required, $name:ident) => {
        $name.ok_or_else(|| serde::de::Error::missing_field(stringify!($name)))?
    };
    (@take default, $name:ident) => {
        $name.unwrap_or_default()
    };
    (@absent required, $name:ident, $faults:ident) => {
        $faults.member(stringify!($name), |faults| faults.add("is missing"))
    };
    (@absent default, $name:ident, $faults:ident) => {
        ()
    };
}
pub(crate) use object;
