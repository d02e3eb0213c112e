//! The rules of members. The schema of each says the same.

use utoipa::openapi::schema::{
    AdditionalProperties, AnyOfBuilder, ArrayBuilder, ObjectBuilder, SchemaType, Type,
};
use utoipa::openapi::{RefOr, Schema};

use crate::json::object::{Object, Unknown};
use crate::json::scan::MAX_NUMBER;
use crate::json::{Faults, Text};

use super::{Preferences, Setting};

/// The most tags of a user.
const TAGS: usize = 32;
/// The most preferences of a user, settings in a group, and elements of a list.
const PREFERENCES: usize = 64;
/// The most characters of a text setting.
const SETTING_CHARS: usize = 1024;

const TAG: &str = "^[a-z0-9][a-z0-9_-]{0,31}$";
const SETTING_NAME: &str = "^[A-Za-z0-9_.-]{1,64}$";

/// Applies a rule to an optional value, if it is given.
pub(super) fn given<T>(value: &Option<T>, rule: impl FnOnce(&T)) {
    if let Some(value) = value {
        rule(value);
    }
}

/// Applies a nested object's own rules.
pub(super) fn nested<T: Object>(value: &Option<T>, unknown: Unknown, faults: &mut Faults) {
    given(value, |value| value.check(unknown, faults));
}

/// At most `most` elements, each with its own rules.
pub(super) fn list<T: Object>(list: &[T], most: usize, unknown: Unknown, faults: &mut Faults) {
    if list.len() > most {
        faults.add(format_args!("has more than {most} elements"));
    }
    for (index, element) in list.iter().enumerate() {
        faults.element(index, |faults| element.check(unknown, faults));
    }
}

/// A line of 1 to `most` characters.
pub(super) fn line(text: &str, most: usize, faults: &mut Faults) {
    if text.is_empty() {
        faults.add("must not be empty");
    }
    longest(text, most, faults);
    // Checks all bytes, so that the compiler can vectorise it.
    if text.bytes().fold(false, |found, byte| found | byte.is_ascii_control()) {
        faults.add("must not have control characters");
    }
}

/// Up to `most` characters, without U+0000, which a database cannot store in a text.
pub(super) fn text(text: &str, most: usize, faults: &mut Faults) {
    longest(text, most, faults);
    if text.contains('\0') {
        faults.add("must not have the character U+0000");
    }
}

fn longest(text: &str, most: usize, faults: &mut Faults) {
    // There are never more characters than bytes, so they rarely have to be counted.
    if text.len() > most && text.chars().count() > most {
        faults.add(format_args!("has more than {most} characters"));
    }
}

/// A valid address according to HTML (WHATWG HTML, valid e-mail address), within the lengths of RFC 5321, section
/// 4.5.3.1.
pub(super) fn email(text: &str, faults: &mut Faults) {
    let local = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&byte);
    let label = |label: &str| {
        matches!(label.len(), 1..=63)
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let valid = text.len() <= 254
        && text.split_once('@').is_some_and(|(name, domain)| {
            matches!(name.len(), 1..=64) && name.bytes().all(local) && domain.split('.').all(label)
        });
    if !valid {
        faults.add("must be an email address");
    }
}

/// E.164.
pub(super) fn phone(text: &str, faults: &mut Faults) {
    let valid = text.strip_prefix('+').is_some_and(|digits| {
        matches!(digits.len(), 2..=15)
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0')
    });
    if !valid {
        faults.add("must be + and 2 to 15 digits");
    }
}

/// RFC 5646, section 2.1, without checking registries.
pub(super) fn locale(text: &str, faults: &mut Faults) {
    let mut subtags = text.split('-');
    let language = subtags.next().unwrap_or_default();
    let valid = text.len() <= 35
        && matches!(language.len(), 2..=8)
        && language.bytes().all(|byte| byte.is_ascii_alphabetic())
        && subtags
            .all(|tag| matches!(tag.len(), 1..=8) && tag.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    if !valid {
        faults.add("must be a language tag such as de-AT");
    }
}

/// The IANA database's theory.html: up to three parts of at most 14 characters.
pub(super) fn time_zone(text: &str, faults: &mut Faults) {
    let part = |part: &str| {
        matches!(part.len(), 1..=14)
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-".contains(&byte))
    };
    if text.split('/').count() > 3 || !text.split('/').all(part) {
        faults.add("must be a time zone such as Europe/Vienna");
    }
}

/// ISO 3166-1 alpha-2.
pub(super) fn country(text: &str, faults: &mut Faults) {
    if text.len() != 2 || !text.bytes().all(|byte| byte.is_ascii_uppercase()) {
        faults.add("must be two capital letters");
    }
}

/// Between `-most` and `most`.
pub(super) fn within(value: &Option<f64>, most: f64, faults: &mut Faults) {
    if value.is_some_and(|value| value.abs() > most) {
        faults.add(format_args!("must be between -{most} and {most}"));
    }
}

/// Each tag has to match [`TAG`], and none may be repeated.
pub(super) fn tags(tags: &[Text<'_>], faults: &mut Faults) {
    if tags.len() > TAGS {
        return faults.add(format_args!("has more than {TAGS} elements"));
    }
    for (index, tag) in tags.iter().enumerate() {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let valid = matches!(tag.len(), 1..=32)
            && letter(tag.as_bytes()[0])
            && tag.bytes().all(|byte| letter(byte) || b"_-".contains(&byte));
        if !valid {
            faults.element(index, |faults| {
                faults.add("must be 1 to 32 of a-z, 0-9, _ and -, the last two inside")
            });
        } else if tags[..index].contains(tag) {
            faults.element(index, |faults| faults.add("is there twice"));
        }
    }
}

/// Settings: scalars, lists of scalars, and groups of these.
pub(super) fn preferences(preferences: &Preferences<'_>, faults: &mut Faults) {
    group(preferences, faults, |value, faults| match value {
        Setting::Group(settings) => group(settings, faults, setting),
        other => setting(other, faults),
    });
}

fn group(settings: &Preferences<'_>, faults: &mut Faults, rule: fn(&Setting<'_>, &mut Faults)) {
    if settings.0.len() > PREFERENCES {
        return faults.add(format_args!("has more than {PREFERENCES} members"));
    }
    for (name, value) in &settings.0 {
        let known = matches!(name.len(), 1..=64)
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !known {
            faults
                .member(name, |faults| faults.add("must be called by 1 to 64 of a-z, A-Z, 0-9, _, . and -"));
        }
        faults.member(name, |faults| rule(value, faults));
    }
}

fn setting(value: &Setting<'_>, faults: &mut Faults) {
    match value {
        Setting::List(elements) if elements.len() > PREFERENCES => {
            faults.add(format_args!("has more than {PREFERENCES} elements"));
        }
        Setting::List(elements) => {
            for (index, element) in elements.iter().enumerate() {
                faults.element(index, |faults| scalar(element, faults));
            }
        }
        other => scalar(other, faults),
    }
}

fn scalar(value: &Setting<'_>, faults: &mut Faults) {
    match value {
        Setting::Text(string) => text(string, SETTING_CHARS, faults),
        Setting::List(_) | Setting::Group(_) => {
            faults.add("must be a text, a number, true, false or null");
        }
        Setting::Null | Setting::Bool(_) | Setting::Number(_) => {}
    }
}

/// The schema of [`tags`].
pub(super) fn tags_schema() -> RefOr<Schema> {
    let tag = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(32))
        .pattern(Some(TAG));
    let description = Some("By which users are grouped");
    let array =
        ArrayBuilder::new().items(tag).max_items(Some(TAGS)).unique_items(true).description(description);
    array.into()
}

/// The schema of [`preferences`].
pub(super) fn preferences_schema() -> RefOr<Schema> {
    let scalars = || {
        let text = ObjectBuilder::new()
            .schema_type(Type::String)
            .max_length(Some(SETTING_CHARS))
            .pattern(Some(r"^[^\x00]*$"));
        let number = ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(-MAX_NUMBER))
            .maximum(Some(MAX_NUMBER));
        let rest = ObjectBuilder::new().schema_type(SchemaType::Array(vec![Type::Boolean, Type::Null]));
        AnyOfBuilder::new().item(text).item(number).item(rest)
    };
    let setting = || scalars().item(ArrayBuilder::new().items(scalars()).max_items(Some(PREFERENCES)));
    let group = |value: AnyOfBuilder| {
        ObjectBuilder::new()
            .schema_type(Type::Object)
            .property_names(Some(ObjectBuilder::new().schema_type(Type::String).pattern(Some(SETTING_NAME))))
            .additional_properties(Some(AdditionalProperties::RefOr(value.into())))
            .max_properties(Some(PREFERENCES))
    };
    let description = Some("What the user wants: settings, lists of them, and groups of these");
    group(setting().item(group(setting()))).description(description).into()
}
