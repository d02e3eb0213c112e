//! Generated users of about 2 KB. The same number always gives the same user.

use serde_json::Map;

use crate::json::Text;
use crate::store::{Draft, Entry, Error};
use crate::user::{Address, Document, Preferences, Profile, Setting, Status, UserId};
use crate::users::Users;

/// When user 0 was created, in milliseconds since the Unix epoch: 2025-01-01. Each further user was created a
/// millisecond later.
const BEGIN: u64 = 1_735_689_600_000;

/// Users per transaction.
const BATCH: u64 = 500;

/// Words of a biography, enough for a document of about 2 KB.
const BIO_WORDS: usize = 150;

const GIVEN: [&str; 16] = [
    "Ada",
    "Alan",
    "Barbara",
    "Bjarne",
    "Claude",
    "Dennis",
    "Donald",
    "Edsger",
    "Frances",
    "Grace",
    "Hedy",
    "John",
    "Katherine",
    "Ken",
    "Margaret",
    "Radia",
];

const FAMILY: [&str; 16] = [
    "Allen",
    "Backus",
    "Dijkstra",
    "Hamilton",
    "Hopper",
    "Johnson",
    "Kernighan",
    "Knuth",
    "Lamarr",
    "Liskov",
    "Lovelace",
    "Perlman",
    "Ritchie",
    "Shannon",
    "Thompson",
    "Turing",
];

const CITIES: [(&str, &str, &str, f64, f64); 8] = [
    ("Amsterdam", "NL", "Europe/Amsterdam", 52.37, 4.9),
    ("Berlin", "DE", "Europe/Berlin", 52.52, 13.4),
    ("Kyoto", "JP", "Asia/Tokyo", 35.01, 135.77),
    ("Lisbon", "PT", "Europe/Lisbon", 38.72, -9.14),
    ("Montevideo", "UY", "America/Montevideo", -34.9, -56.16),
    ("Nairobi", "KE", "Africa/Nairobi", -1.29, 36.82),
    ("Oslo", "NO", "Europe/Oslo", 59.91, 10.75),
    ("Seattle", "US", "America/Los_Angeles", 47.61, -122.33),
];

const WORDS: [&str; 32] = [
    "algebra",
    "began",
    "compiler",
    "designed",
    "engine",
    "famous",
    "garden",
    "hardware",
    "invented",
    "journal",
    "kernel",
    "language",
    "machine",
    "network",
    "operating",
    "paper",
    "quickly",
    "research",
    "system",
    "theory",
    "university",
    "verified",
    "wrote",
    "years",
    "and",
    "the",
    "of",
    "a",
    "with",
    "for",
    "her",
    "his",
];

const TAGS: [&str; 8] = ["admin", "beta", "customer", "editor", "newsletter", "partner", "trial", "vip"];

/// The id of a number's user.
pub fn id(number: u64) -> UserId {
    let mut draw = Draw(number);
    let mut random = [0; 10];
    random[..8].copy_from_slice(&draw.next().to_le_bytes());
    random[8..].copy_from_slice(&draw.next().to_le_bytes()[..2]);
    UserId(uuid::Builder::from_unix_timestamp_millis(BEGIN + number, &random).into_uuid())
}

/// A number's user in a client's form.
pub fn document(number: u64) -> Document<'static> {
    // Other numbers than those of the id.
    let mut draw = Draw(!number);
    let (given, family) = (draw.of(&GIVEN), draw.of(&FAMILY));
    let (.., time_zone, _, _) = draw.of(&CITIES);
    let bio: Vec<&str> = (0..BIO_WORDS).map(|_| *draw.of(&WORDS)).collect();
    let mut tags: Vec<&str> = (0..3).map(|_| *draw.of(&TAGS)).collect();
    tags.sort_unstable();
    tags.dedup();
    Document {
        email: format!("{}.{}.{number}@example.com", given.to_lowercase(), family.to_lowercase()).into(),
        name: format!("{given} {family}").into(),
        status: *draw.of(&[
            Status::Active,
            Status::Active,
            Status::Active,
            Status::Invited,
            Status::Suspended,
        ]),
        profile: Some(Profile {
            given_name: Some((*given).into()),
            family_name: Some((*family).into()),
            birth_date: format!("19{}-0{}-1{}", 50 + draw.below(50), 1 + draw.below(9), draw.below(10))
                .parse()
                .ok(),
            phone: Some(format!("+1555{:07}", draw.below(10_000_000)).into()),
            locale: Some("en".into()),
            time_zone: Some((*time_zone).into()),
            bio: Some(bio.join(" ").into()),
            more: Map::new(),
        }),
        addresses: vec![address("home", &mut draw), address("work", &mut draw)],
        tags: tags.into_iter().map(Text::from).collect(),
        preferences: preferences(&mut draw),
        more: Map::new(),
    }
}

fn address(label: &'static str, draw: &mut Draw) -> Address<'static> {
    let (city, country, _, latitude, longitude) = *draw.of(&CITIES);
    Address {
        label: label.into(),
        street: format!("{} {} Street", 1 + draw.below(200), draw.of(&FAMILY)).into(),
        city: city.into(),
        region: None,
        postal_code: Some(format!("{:05}", draw.below(100_000)).into()),
        country: country.into(),
        latitude: Some(latitude),
        longitude: Some(longitude),
        more: Map::new(),
    }
}

fn preferences(draw: &mut Draw) -> Preferences<'static> {
    let text = |text: &'static str| Setting::Text(text.into());
    let group = |settings: Vec<(&'static str, Setting<'static>)>| {
        Preferences(settings.into_iter().map(|(name, setting)| (name.into(), setting)).collect())
    };
    let theme = *draw.of(&["dark", "light", "system"]);
    group(vec![
        ("theme", text(theme)),
        ("page_size", Setting::Number((10 * (1 + draw.below(10))).into())),
        (
            "notifications",
            Setting::Group(group(vec![
                ("email", Setting::Bool(draw.below(2) == 0)),
                ("push", Setting::Bool(draw.below(2) == 0)),
                ("digest", text("weekly")),
            ])),
        ),
        (
            "shortcuts",
            Setting::Group(group(vec![("search", text("/")), ("new", text("n")), ("archive", text("e"))])),
        ),
    ])
}

/// A number's user as a row.
///
/// # Errors
/// None.
pub fn entry(number: u64) -> Result<Entry, Error> {
    let created_at = (BEGIN + number) as i64 * 1_000;
    let draft = Draft::of(&document(number)).map_err(Error::failed)?;
    Ok(draft.at(id(number), 1, created_at, created_at))
}

/// Writes users 0 to `count`, except existing ones. Returns how many were written. `progress` gets how many are done.
///
/// # Errors
/// When the database refuses them.
pub async fn seed(users: &Users, count: u64, mut progress: impl FnMut(u64)) -> Result<u64, Error> {
    let (mut written, mut seen) = (0, 0);
    while seen < count {
        let end = count.min(seen + BATCH);
        let entries: Result<Vec<Entry>, Error> = (seen..end).map(entry).collect();
        written += users.load(entries?).await?;
        seen = end;
        progress(seen);
    }
    Ok(written)
}

/// Pseudo-random numbers: splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_always_the_same_user_of_about_2_kb() {
        assert_eq!(id(7), id(7));
        assert_eq!(id(0).to_string(), "01941f29-7c00-7fcd-9d7b-39a820e2f465");
        let (mut least, mut most) = (usize::MAX, 0);
        for number in 0..1_000 {
            let entry = entry(number).expect("it serialises");
            assert_eq!(entry.record.id, id(number));
            assert!(id(number) < id(number + 1), "in the order of their creation");
            (least, most) = (least.min(entry.record.body.len()), most.max(entry.record.body.len()));
        }
        assert!(least > 1_700 && most < 2_300, "{least} to {most} bytes");
    }
}
