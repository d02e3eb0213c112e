//! Tokens, by the same rules as in a file.

use postgres::{Pool, Row};
use subtle::ConstantTimeEq;

use crate::domains::{DomainId, Domains, InDomains};
use crate::store::rules::tokens::{
    MAX_TOKENS, draw, hash, ids_of, named, names, number_of, scope_of, selector, text_of,
};
use crate::store::{Error, Grant, Scope, TokenInfo};
use crate::when::Timestamp;

use super::domains;
use super::values::values;

pub async fn create(
    pool: &Pool,
    name: &str,
    scope: Scope,
    ids: Option<Vec<DomainId>>,
) -> Result<(TokenInfo, String), Error> {
    let name = named(name)?;
    let (secret, selector) = draw();
    let created_at = Timestamp::now();
    let ids = ids.map(|domains| text_of(&domains));
    let session = pool.get().await?;
    let sql = "INSERT INTO tokens (name, scope, selector, hash, created_at, domains) \
         SELECT $1, $2, $3, $4, $5, $6 WHERE (SELECT count(*) FROM tokens) < $7 RETURNING id";
    let digest = hash(&secret);
    let values = values![
        name => TEXT, number_of(scope) => INT8, selector => TEXT, &digest[..] => BYTEA, created_at.0 => INT8,
        ids => TEXT, MAX_TOKENS => INT8,
    ];
    let rows = session.query(sql, values).await?;
    let Some(row) = rows.first() else {
        return Err(Error::field("name", format!("there are {MAX_TOKENS} tokens already; revoke some")));
    };
    let id = row.try_get(0)?;
    let domains = names(ids, &domains::load(&session).await?);
    Ok((TokenInfo { id, name, scope, domains, created_at }, secret))
}

pub async fn revoke(pool: &Pool, id: i64) -> Result<(), Error> {
    let sql = "DELETE FROM tokens WHERE id = $1";
    match pool.get().await?.execute(sql, values![id => INT8]).await? {
        0 => Err(Error::NoToken(id)),
        _ => Ok(()),
    }
}

pub async fn list(pool: &Pool) -> Result<Vec<TokenInfo>, Error> {
    let session = pool.get().await?;
    let known: Domains = domains::load(&session).await?;
    let sql = "SELECT id, name, scope, created_at, domains FROM tokens ORDER BY id";
    let token = |row: &Row| {
        Ok(TokenInfo {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            scope: scope_of(row.try_get(2)?),
            created_at: Timestamp(row.try_get(3)?),
            domains: names(row.try_get(4)?, &known),
        })
    };
    session.query(sql, &[]).await?.iter().map(token).collect()
}

pub async fn authorize(pool: &Pool, secret: &str) -> Result<Option<Grant>, Error> {
    let Some(selector) = selector(secret) else { return Ok(None) };
    let sql = "SELECT hash, id, name, scope, domains FROM tokens WHERE selector = $1";
    let rows = pool.get().await?.query(sql, values![selector => TEXT]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let domains: Option<String> = row.try_get(4)?;
    let grant = Grant {
        id: Some(row.try_get(1)?),
        name: row.try_get(2)?,
        scope: scope_of(row.try_get(3)?),
        domains: domains.map_or(InDomains::All, |ids| InDomains::Only(ids_of(&ids))),
    };
    let stored: &[u8] = row.try_get(0)?;
    let same: bool = stored.ct_eq(hash(secret).as_slice()).into();
    Ok(same.then_some(grant))
}
