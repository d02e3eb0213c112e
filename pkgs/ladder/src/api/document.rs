//! The document that is sent and stored.

/// A user, for people to read; [`super::database::document`] is what is sent.
pub(super) const DOCUMENT: &str = r#"{
  "id": 1,
  "email": "Ada.Lovelace@Example.com",
  "name": "Ada Lovelace",
  "phone": "+44 20 7946 0018",
  "active": true,
  "age": 36,
  "score": 97.25,
  "address": {
    "street": "12 St James's Square",
    "city": "London",
    "postcode": "SW1Y 4JH",
    "country": "United Kingdom",
    "latitude": 51.507351,
    "longitude": -0.136439
  },
  "tags": ["Mathematics", "engines", "notes", "Bernoulli", "poetry", "translation", "first-programmer", "analytical"],
  "roles": [
    { "name": "author", "scope": "notes", "since": 1842 },
    { "name": "translator", "scope": "memoirs", "since": 1842 },
    { "name": "correspondent", "scope": "letters", "since": 1833 },
    { "name": "reviewer", "scope": "engines", "since": 1834 }
  ],
  "preferences": {
    "language": "en-GB",
    "theme": "paper",
    "time-zone": "Europe/London",
    "newsletter": "monthly",
    "currency": "GBP",
    "first-day": "monday",
    "density": "comfortable",
    "notifications": "post"
  },
  "sign_ins": [
    { "at": 1763683201, "address": "192.0.2.17", "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)", "ok": true },
    { "at": 1763599844, "address": "192.0.2.17", "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0)", "ok": true },
    { "at": 1763512020, "address": "198.51.100.4", "agent": "curl/8.14.1", "ok": false },
    { "at": 1763426519, "address": "203.0.113.250", "agent": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6)", "ok": true },
    { "at": 1763339001, "address": "2001:db8::8:800:200c:417a", "agent": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6)", "ok": true },
    { "at": 1763251999, "address": "192.0.2.17", "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:139.0)", "ok": true },
    { "at": 1763166000, "address": "192.0.2.17", "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:139.0)", "ok": true }
  ],
  "bio": "Wrote down how a machine that did not exist would compute the numbers of Bernoulli, and noted on the way that it might act on other things than numbers. Translated a memoir and tripled its length with notes \"A\" to \"G\". Kept up a long correspondence about engines, logic and horses, and signed most of it with three letters. Asked for more machine time than anybody had, which has been the custom since."
}"#;
