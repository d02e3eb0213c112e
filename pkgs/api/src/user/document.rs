//! What a client sends.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A user as a client writes one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Unique among all users, without regard to case.
    pub email: String,
    /// What the user is called.
    pub name: String,
    /// Whether the user may do anything.
    #[serde(default)]
    pub status: Status,
    /// Who the user is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Where the user is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// By which users are grouped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What the user wants.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preferences: Preferences,
    /// Fields that nobody here knows, where they are kept.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// What a user wants: names of the client's choice.
pub type Preferences = BTreeMap<String, Value>;

/// Whether a user may do anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Yes.
    #[default]
    Active,
    /// Not yet.
    Invited,
    /// Not any more.
    Suspended,
}

/// Who a user is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// First name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_name: Option<String>,
    /// Last name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family_name: Option<String>,
    /// Date of birth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub birth_date: Option<Date>,
    /// Telephone number (E.164).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// Language tag (BCP 47).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locale: Option<String>,
    /// Name in the IANA time zone database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// About the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bio: Option<String>,
}

/// Where a user is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Address {
    /// What the user calls it.
    pub label: String,
    /// Street and number.
    pub street: String,
    /// City.
    pub city: String,
    /// State, province.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Postal code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub postal_code: Option<String>,
    /// Country (ISO 3166-1 alpha-2).
    pub country: String,
    /// Degrees north.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latitude: Option<f64>,
    /// Degrees east.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longitude: Option<f64>,
}
