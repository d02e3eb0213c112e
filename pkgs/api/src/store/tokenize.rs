//! The words for searching a user, the same in every database.

use std::collections::BTreeSet;

use crate::user::Document;

/// The significant characters of a word. A search for a longer word finds all words with the same start.
const LONGEST: usize = 40;

/// The most words of a user. Those of name, email and tags come first, so only the end of a long text is left out.
const MOST: usize = 1_000;

/// All words of a user, each once.
pub fn words(user: &Document<'_>) -> BTreeSet<String> {
    let bio = user.profile.as_ref().and_then(|profile| profile.bio.as_deref());
    let texts = [&*user.name, &*user.email];
    let texts = texts.into_iter().chain(user.tags.iter().map(|tag| &**tag)).chain(bio);
    texts.flat_map(split).take(MOST).collect()
}

/// The words of a text: runs of letters and digits, in lower case.
pub fn split(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    // Lower-casing may produce combining marks, which are not letters.
    words.map(|word| {
        word.chars().flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()).take(LONGEST).collect()
    })
}

/// A word as it may be stored. Greek writes a sigma at the end of a word as ς, but in capitals as any other; in lower
/// case, that is a σ.
pub fn forms(word: &str) -> Vec<String> {
    match word.strip_suffix(['σ', 'ς']) {
        Some(start) => vec![format!("{start}σ"), format!("{start}ς")],
        None => vec![word.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        let long = "x".repeat(LONGEST + 1);
        for (text, expected) in [
            ("Ada.Lovelace+x@Example.com", vec!["ada", "lovelace", "x", "example", "com"]),
            ("  -- ", vec![]),
            ("Ægir's ÉCOLE 42", vec!["ægir", "s", "école", "42"]),
            ("İstanbul", vec!["istanbul"]),
            (&long, vec![&long[..LONGEST]]),
        ] {
            assert_eq!(split(text).collect::<Vec<_>>(), expected, "{text}");
        }
    }
}
