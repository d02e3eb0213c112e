//! Bearer tokens: a random secret, kept as its SHA-256.
//!
//! A secret is `lr_`, 16 hexadecimal digits that find the row, and 48 that prove the rest. With 256 random
//! bits there is nothing to guess, so a fast hash is enough.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::domains::{DEFAULT, DomainId, Domains, InDomains};
use crate::when::Timestamp;

use super::domains;
use crate::store::sqlite::work::WriteContext;
use crate::store::{Error, Grant, Scope, TokenInfo};

/// What every secret begins with, so that scanners for leaked secrets know it.
const PREFIX: &str = "lr_";

/// Random bytes in a secret.
const SECRET_BYTES: usize = 32;

/// Hexadecimal digits that find the row.
const SELECTOR_DIGITS: usize = 16;

/// Tokens at most.
pub(in crate::store) const MAX_TOKENS: i64 = 1_000;

/// The longest name, in characters.
const MAX_NAME: usize = 100;

pub(in crate::store) fn create(
    work: &mut WriteContext<'_>,
    name: String,
    scope: Scope,
    domains: Option<Vec<DomainId>>,
) -> Result<(TokenInfo, String), Error> {
    let name = named(&name)?;
    let connection = work.connection;
    let tokens: i64 = connection.query_row("SELECT count(*) FROM tokens", [], |row| row.get(0))?;
    if tokens >= MAX_TOKENS {
        return Err(Error::field("name", format!("there are {MAX_TOKENS} tokens already; revoke some")));
    }
    let (secret, selector) = draw();
    let created_at = Timestamp::now();
    let ids = domains.map(|domains| text_of(&domains));
    connection.execute(
        "INSERT INTO tokens (name, scope, selector, hash, created_at, domains) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![name, number_of(scope), selector, hash(&secret), created_at.0, ids],
    )?;
    let domains = names(ids, &domains::load(connection)?);
    Ok((TokenInfo { id: connection.last_insert_rowid(), name, scope, domains, created_at }, secret))
}

/// A name that may be a token's.
pub(in crate::store) fn named(name: &str) -> Result<String, Error> {
    let name = name.trim().to_owned();
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        return Err(Error::field("name", format!("1 to {MAX_NAME} printable characters")));
    }
    Ok(name)
}

/// A new secret, and what finds its row.
pub(in crate::store) fn draw() -> (String, String) {
    let mut random = [0; SECRET_BYTES];
    getrandom::fill(&mut random).expect("the system has a source of randomness");
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{PREFIX}{digits}"), digits[..SELECTOR_DIGITS].to_owned())
}

/// What finds the row of a secret.
pub(in crate::store) fn selector(secret: &str) -> Option<&str> {
    secret.strip_prefix(PREFIX).and_then(|digits| digits.get(..SELECTOR_DIGITS))
}

/// Domains as a row names them.
pub(in crate::store) fn text_of(domains: &[DomainId]) -> String {
    domains.iter().map(|domain| domain.0.to_string()).collect::<Vec<_>>().join(" ")
}

pub(in crate::store) fn revoke(work: &mut WriteContext<'_>, id: i64) -> Result<(), Error> {
    match work.connection.execute("DELETE FROM tokens WHERE id = ?1", [id])? {
        0 => Err(Error::NoToken(id)),
        _ => Ok(()),
    }
}

pub(in crate::store) fn list(connection: &Connection) -> Result<Vec<TokenInfo>, Error> {
    let known = domains::load(connection)?;
    let mut statement =
        connection.prepare_cached("SELECT id, name, scope, created_at, domains FROM tokens ORDER BY id")?;
    let rows = statement.query_map([], |row| {
        Ok(TokenInfo {
            id: row.get(0)?,
            name: row.get(1)?,
            scope: scope_of(row.get(2)?),
            created_at: Timestamp(row.get(3)?),
            domains: names(row.get(4)?, &known),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a text has the form of a secret.
pub(in crate::store) fn has_form(secret: &str) -> bool {
    secret.strip_prefix(PREFIX).is_some_and(|digits| {
        digits.len() == 2 * SECRET_BYTES
            && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

pub(in crate::store) fn authorize(connection: &Connection, secret: &str) -> Result<Option<Grant>, Error> {
    let Some(selector) = selector(secret) else { return Ok(None) };
    let known: Option<(Vec<u8>, Grant)> = connection
        .prepare_cached("SELECT hash, id, name, scope, domains FROM tokens WHERE selector = ?1")?
        .query_row([selector], |row| {
            let domains: Option<String> = row.get(4)?;
            let domains = domains.map_or(InDomains::All, |ids| InDomains::Only(ids_of(&ids)));
            let grant =
                Grant { id: Some(row.get(1)?), name: row.get(2)?, scope: scope_of(row.get(3)?), domains };
            Ok((row.get(0)?, grant))
        })
        .optional()?;
    let Some((stored, grant)) = known else { return Ok(None) };
    let same: bool = stored.as_slice().ct_eq(hash(secret).as_slice()).into();
    Ok(same.then_some(grant))
}

/// The domains that a row names.
pub(in crate::store) fn ids_of(ids: &str) -> Vec<DomainId> {
    ids.split_ascii_whitespace().filter_map(|id| id.parse().ok()).map(DomainId).collect()
}

/// The same for people, as far as there are such domains.
pub(in crate::store) fn names(ids: Option<String>, known: &Domains) -> Option<Vec<String>> {
    let name = |id| match id {
        DomainId::DEFAULT => Some(DEFAULT.to_owned()),
        id => known.get(id).map(|domain| domain.host.clone()),
    };
    ids.map(|ids| ids_of(&ids).into_iter().filter_map(name).collect())
}

pub(in crate::store) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

pub(in crate::store) fn number_of(scope: Scope) -> i64 {
    match scope {
        Scope::Read => 0,
        Scope::Write => 1,
    }
}

pub(in crate::store) fn scope_of(number: i64) -> Scope {
    if number == 1 { Scope::Write } else { Scope::Read }
}
