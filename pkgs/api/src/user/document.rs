//! The documents that clients send.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Day, Preferences, rules};
use crate::json::object::{Member, Object, Unknown, object};
use crate::json::{Faults, Text};

/// A user, in a client's form
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Document<'a> {
    /// Unique among all users, ignoring case
    #[schema(
        value_type = String,
        max_length = 254,
        pattern = r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$"
    )]
    pub email: Text<'a>,
    /// The user's name
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub name: Text<'a>,
    /// Whether the user is active
    #[schema(required = false)]
    pub status: Status,
    /// Details about the user
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile<'a>>,
    /// The user's addresses
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, max_items = 16)]
    pub addresses: Vec<Address<'a>>,
    /// Tags for grouping users
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false, schema_with = rules::tags_schema)]
    pub tags: Vec<Text<'a>>,
    /// The user's preferences: settings and groups of settings
    #[serde(skip_serializing_if = "Preferences::is_empty")]
    #[schema(required = false, schema_with = rules::preferences_schema)]
    pub preferences: Preferences<'a>,
    /// Unknown members, if they are kept
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: Map<String, Value>,
}

object!(Document<'a> {
    email: Text<'a>, required, |text, _, faults| rules::email(text, faults);
    name: Text<'a>, required, |text, _, faults| rules::line(text, 200, faults);
    status: Status, default, |_, _, _| ();
    profile: Option<Profile<'a>>, default, rules::nested;
    addresses: Vec<Address<'a>>, default, |list, unknown, faults| rules::list(list, 16, unknown, faults);
    tags: Vec<Text<'a>>, default, |tags, _, faults| rules::tags(tags, faults);
    preferences: Preferences<'a>, default, |preferences, _, faults| rules::preferences(preferences, faults);
});

/// Whether a user is active: `active`, `invited` (not yet) or `suspended` (no longer)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Active.
    #[default]
    Active,
    /// Not active yet.
    Invited,
    /// No longer active.
    Suspended,
}

impl<'de> Deserialize<'de> for Status {
    // A derived implementation would also accept {"active": null}.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*Text::deserialize(deserializer)? {
            "active" => Ok(Self::Active),
            "invited" => Ok(Self::Invited),
            "suspended" => Ok(Self::Suspended),
            _ => Err(D::Error::custom("must be active, invited or suspended")),
        }
    }
}

impl Member<'_> for Status {}

/// Details about a user
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct Profile<'a> {
    /// First name
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub given_name: Option<Text<'a>>,
    /// Last name
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub family_name: Option<Text<'a>>,
    /// Date of birth
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub birth_date: Option<Day>,
    /// Telephone number (E.164)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 16, pattern = r"^\+[1-9][0-9]{1,14}$")]
    pub phone: Option<Text<'a>>,
    /// Language tag (the form of BCP 47)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 35, pattern = r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")]
    pub locale: Option<Text<'a>>,
    /// Time zone (the form of names in the IANA database)
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 44, pattern = r"^[A-Za-z0-9_+-]{1,14}(/[A-Za-z0-9_+-]{1,14}){0,2}$")]
    pub time_zone: Option<Text<'a>>,
    /// About the user
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 2000, pattern = r"^[^\x00]*$")]
    pub bio: Option<Text<'a>>,
    /// Unknown members, if they are kept
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: Map<String, Value>,
}

object!(Profile<'a> {
    given_name: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::line(text, 100, faults));
    family_name: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::line(text, 100, faults));
    birth_date: Option<Day>, default, |_, _, _| ();
    phone: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::phone(text, faults));
    locale: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::locale(text, faults));
    time_zone: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::time_zone(text, faults));
    bio: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::text(text, 2000, faults));
});

/// An address of a user
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Address<'a> {
    /// The user's name for it
    #[schema(value_type = String, min_length = 1, max_length = 50, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub label: Text<'a>,
    /// Street and number
    #[schema(value_type = String, min_length = 1, max_length = 200, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub street: Text<'a>,
    /// City
    #[schema(value_type = String, min_length = 1, max_length = 100, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub city: Text<'a>,
    /// State, province
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub region: Option<Text<'a>>,
    /// Postal code
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 20, pattern = r"^[^\x00-\x1f\x7f]+$")]
    pub postal_code: Option<Text<'a>>,
    /// Country (the form of ISO 3166-1 alpha-2)
    #[schema(value_type = String, min_length = 2, max_length = 2, pattern = r"^[A-Z]{2}$")]
    pub country: Text<'a>,
    /// Degrees north
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -90, maximum = 90)]
    pub latitude: Option<f64>,
    /// Degrees east
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -180, maximum = 180)]
    pub longitude: Option<f64>,
    /// Unknown members, if they are kept
    #[serde(flatten)]
    #[schema(ignore)]
    pub more: Map<String, Value>,
}

object!(Address<'a> {
    label: Text<'a>, required, |text, _, faults| rules::line(text, 50, faults);
    street: Text<'a>, required, |text, _, faults| rules::line(text, 200, faults);
    city: Text<'a>, required, |text, _, faults| rules::line(text, 100, faults);
    region: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::line(text, 100, faults));
    postal_code: Option<Text<'a>>, default, |text, _, faults| rules::given(text, |text| rules::line(text, 20, faults));
    country: Text<'a>, required, |text, _, faults| rules::country(text, faults);
    latitude: Option<f64>, default, |degrees, _, faults| rules::within(degrees, 90.0, faults);
    longitude: Option<f64>, default, |degrees, _, faults| rules::within(degrees, 180.0, faults);
});

impl Document<'_> {
    /// How many members a document has besides unknown ones, at most.
    pub const KNOWN: usize = 7;

    /// Members that a document may not have, since the service writes them.
    pub const READ_ONLY: [&'static str; 4] = ["id", "version", "created_at", "updated_at"];

    /// All faults of a document that was read.
    pub fn faults(&self, unknown: Unknown) -> Faults {
        let mut faults = Faults::new();
        self.check_whole(unknown, &mut faults);
        faults
    }

    /// Like [`check`](Object::check), and refuses members that only the service writes.
    pub(crate) fn check_whole(&self, unknown: Unknown, faults: &mut Faults) {
        self.check(unknown, faults);
        if unknown == Unknown::Keep && !self.more.is_empty() {
            for name in Self::READ_ONLY.into_iter().filter(|name| self.more.contains_key(*name)) {
                faults.member(name, |faults| faults.add("is written by the service alone"));
            }
        }
    }
}
