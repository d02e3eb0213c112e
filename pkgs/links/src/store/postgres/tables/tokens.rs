//! Tokens, with the same rules as in SQLite.

use postgres::{Pool, Row};
use subtle::ConstantTimeEq;

use crate::domains::{Domains, InDomains};
use crate::store::rules::tokens::{
    MAX_TOKENS, checked, draw, hash, ids_of, names, number_of, scope_of, selector, text_of,
};
use crate::store::{Error, Grant, NewToken, TokenInfo};
use crate::when::Timestamp;

use super::domains;
use crate::store::postgres::values::values;

pub async fn create(pool: &Pool, new: NewToken) -> Result<(TokenInfo, String), Error> {
    let created_at = Timestamp::now();
    let NewToken { name, scope, domains, expires_at } = checked(new, created_at)?;
    let (secret, selector) = draw();
    let ids = domains.map(|domains| text_of(&domains));
    let session = pool.get().await?;
    let sql = "INSERT INTO tokens (name, scope, selector, hash, created_at, domains, expires_at) \
         SELECT $1, $2, $3, $4, $5, $6, $7 WHERE (SELECT count(*) FROM tokens) < $8 RETURNING id";
    let digest = hash(&secret);
    let values = values![
        name => TEXT, number_of(scope) => INT8, selector => TEXT, &digest[..] => BYTEA, created_at.0 => INT8,
        ids => TEXT, expires_at.map(|end| end.0) => INT8, MAX_TOKENS => INT8,
    ];
    let rows = session.query(sql, values).await?;
    let Some(row) = rows.first() else {
        return Err(Error::field("name", format!("there are {MAX_TOKENS} tokens already; revoke some")));
    };
    let id = row.try_get(0)?;
    let domains = names(ids, &domains::load(&session).await?);
    Ok((TokenInfo { id, name, scope, domains, created_at, expires_at, last_used_at: None }, secret))
}

pub async fn revoke(pool: &Pool, id: i64) -> Result<(), Error> {
    let sql = "DELETE FROM tokens WHERE id = $1";
    match pool.get().await?.execute(sql, values![id => INT8]).await? {
        0 => Err(Error::NoToken(id)),
        _ => Ok(()),
    }
}

/// Records a token's use. Of two uses, the later one is kept.
pub async fn used(pool: &Pool, id: i64, at: Timestamp) -> Result<(), Error> {
    let sql = "UPDATE tokens SET last_used_at = greatest($2, last_used_at) WHERE id = $1";
    pool.get().await?.execute(sql, values![id => INT8, at.0 => INT8]).await?;
    Ok(())
}

pub async fn list(pool: &Pool) -> Result<Vec<TokenInfo>, Error> {
    let session = pool.get().await?;
    let known: Domains = domains::load(&session).await?;
    let sql = "SELECT id, name, scope, created_at, domains, expires_at, last_used_at FROM tokens ORDER BY id";
    let token = |row: &Row| {
        Ok(TokenInfo {
            id: row.try_get(0)?,
            name: row.try_get(1)?,
            scope: scope_of(row.try_get(2)?),
            created_at: Timestamp(row.try_get(3)?),
            domains: names(row.try_get(4)?, &known),
            expires_at: row.try_get::<_, Option<i64>>(5)?.map(Timestamp),
            last_used_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
        })
    };
    session.query(sql, &[]).await?.iter().map(token).collect()
}

pub async fn authorize(pool: &Pool, secret: &str) -> Result<Option<Grant>, Error> {
    let Some(selector) = selector(secret) else { return Ok(None) };
    let sql =
        "SELECT hash, id, name, scope, domains, expires_at, last_used_at FROM tokens WHERE selector = $1";
    let rows = pool.get().await?.query(sql, values![selector => TEXT]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let domains: Option<String> = row.try_get(4)?;
    let id = row.try_get(1)?;
    let grant = Grant {
        id: Some(id),
        client: id,
        name: row.try_get(2)?,
        scope: scope_of(row.try_get(3)?),
        domains: domains.map_or(InDomains::All, |ids| InDomains::Only(ids_of(&ids))),
        expires_at: row.try_get::<_, Option<i64>>(5)?.map(Timestamp),
        last_used_at: row.try_get::<_, Option<i64>>(6)?.map(Timestamp),
    };
    let stored: &[u8] = row.try_get(0)?;
    let same: bool = stored.ct_eq(hash(secret).as_slice()).into();
    Ok(same.then_some(grant))
}
