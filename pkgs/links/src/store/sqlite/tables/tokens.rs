//! Bearer tokens.

use rusqlite::{Connection, OptionalExtension, params};
use subtle::ConstantTimeEq;

use crate::domains::InDomains;
use crate::when::Timestamp;

use super::domains;
use crate::store::rules::tokens::{
    MAX_TOKENS, checked, draw, hash, ids_of, names, number_of, scope_of, selector, text_of,
};
use crate::store::sqlite::work::WriteContext;
use crate::store::{Error, Grant, NewToken, TokenInfo};

pub(in crate::store::sqlite) fn create(
    work: &mut WriteContext<'_>,
    new: NewToken,
) -> Result<(TokenInfo, String), Error> {
    let created_at = Timestamp::now();
    let NewToken { name, scope, domains, expires_at } = checked(new, created_at)?;
    let connection = work.connection;
    let tokens: i64 = connection.query_row("SELECT count(*) FROM tokens", [], |row| row.get(0))?;
    if tokens >= MAX_TOKENS {
        return Err(Error::field("name", format!("there are {MAX_TOKENS} tokens already; revoke some")));
    }
    let (secret, selector) = draw();
    let ids = domains.map(|domains| text_of(&domains));
    connection.execute(
        "INSERT INTO tokens (name, scope, selector, hash, created_at, domains, expires_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![
            name,
            number_of(scope),
            selector,
            hash(&secret),
            created_at.0,
            ids,
            expires_at.map(|end| end.0)
        ],
    )?;
    let domains = names(ids, &domains::load(connection)?);
    let id = connection.last_insert_rowid();
    Ok((TokenInfo { id, name, scope, domains, created_at, expires_at, last_used_at: None }, secret))
}

pub(in crate::store::sqlite) fn revoke(work: &mut WriteContext<'_>, id: i64) -> Result<(), Error> {
    match work.connection.execute("DELETE FROM tokens WHERE id = ?1", [id])? {
        0 => Err(Error::NoToken(id)),
        _ => Ok(()),
    }
}

/// Records a token's use. Of two uses, the later one is kept.
pub(in crate::store::sqlite) fn used(
    work: &mut WriteContext<'_>,
    id: i64,
    at: Timestamp,
) -> Result<(), Error> {
    let sql = "UPDATE tokens SET last_used_at = max(?2, ifnull(last_used_at, ?2)) WHERE id = ?1";
    work.connection.prepare_cached(sql)?.execute(params![id, at.0])?;
    Ok(())
}

pub(in crate::store::sqlite) fn list(connection: &Connection) -> Result<Vec<TokenInfo>, Error> {
    let known = domains::load(connection)?;
    let mut statement = connection.prepare_cached(
        "SELECT id, name, scope, created_at, domains, expires_at, last_used_at FROM tokens ORDER BY id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(TokenInfo {
            id: row.get(0)?,
            name: row.get(1)?,
            scope: scope_of(row.get(2)?),
            created_at: Timestamp(row.get(3)?),
            domains: names(row.get(4)?, &known),
            expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
            last_used_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(in crate::store::sqlite) fn authorize(
    connection: &Connection,
    secret: &str,
) -> Result<Option<Grant>, Error> {
    let Some(selector) = selector(secret) else { return Ok(None) };
    let known: Option<(Vec<u8>, Grant)> = connection
        .prepare_cached(
            "SELECT hash, id, name, scope, domains, expires_at, last_used_at FROM tokens WHERE selector = ?1",
        )?
        .query_row([selector], |row| {
            let domains: Option<String> = row.get(4)?;
            let domains = domains.map_or(InDomains::All, |ids| InDomains::Only(ids_of(&ids)));
            let id = row.get(1)?;
            let grant = Grant {
                id: Some(id),
                client: id,
                name: row.get(2)?,
                scope: scope_of(row.get(3)?),
                domains,
                expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
                last_used_at: row.get::<_, Option<i64>>(6)?.map(Timestamp),
            };
            Ok((row.get(0)?, grant))
        })
        .optional()?;
    let Some((stored, grant)) = known else { return Ok(None) };
    let same: bool = stored.as_slice().ct_eq(hash(secret).as_slice()).into();
    Ok(same.then_some(grant))
}
