//! Domains.

use postgres::{Pool, Session};

use crate::domains::{Domain, DomainId, DomainPatch, Domains, MAX_DOMAINS};
use crate::store::Error;
use crate::store::rules::domains::MAX_LINKS_DELETED;
use crate::when::Timestamp;

use super::links;
use crate::store::postgres::values::values;

/// All domains.
pub async fn load(session: &Session) -> Result<Domains, Error> {
    let sql = "SELECT id, host, root_target, default_target, not_found_html, created_at FROM domains";
    let rows = session.query(sql, &[]).await?;
    let domain = |row: &postgres::Row| {
        Ok(Domain {
            id: DomainId(row.try_get(0)?),
            host: row.try_get(1)?,
            root_target: row.try_get(2)?,
            default_target: row.try_get(3)?,
            not_found_html: row.try_get(4)?,
            created_at: Timestamp(row.try_get(5)?),
        })
    };
    let domains: Result<Vec<_>, Error> = rows.iter().map(domain).collect();
    Ok(Domains::new(domains?))
}

/// Refuses a page that PostgreSQL cannot store.
fn storable(domain: &Domain) -> Result<(), Error> {
    match &domain.not_found_html {
        Some(page) if page.contains('\0') => {
            Err(Error::field("not_found_html", "a page has no NUL in PostgreSQL"))
        }
        _ => Ok(()),
    }
}

pub async fn create(pool: &Pool, domain: Domain) -> Result<Domain, Error> {
    storable(&domain)?;
    let session = pool.get().await?;
    let most = i64::try_from(MAX_DOMAINS).unwrap_or(i64::MAX);
    let transaction = session.begin().await?;
    // Create one domain at a time, since their number is limited.
    transaction
        .query("SELECT pg_advisory_xact_lock(hashtextextended('linerate-links domains', 0))", &[])
        .await?;
    let sql = "INSERT INTO domains (host, root_target, default_target, not_found_html, created_at) \
         SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM domains) < $6 ON CONFLICT DO NOTHING RETURNING id";
    let values = values![
        domain.host => TEXT, domain.root_target => TEXT, domain.default_target => TEXT,
        domain.not_found_html => TEXT, domain.created_at.0 => INT8, most => INT8,
    ];
    let rows = transaction.query(sql, values).await?;
    let Some(row) = rows.first() else {
        let known =
            transaction.query("SELECT 1 FROM domains WHERE host = $1", values![domain.host => TEXT]).await?;
        transaction.rollback().await?;
        return Err(match known.is_empty() {
            true => Error::field("host", format!("there are {MAX_DOMAINS} domains already")),
            false => Error::DomainTaken(domain.host),
        });
    };
    let id = DomainId(row.try_get(0)?);
    transaction.commit().await?;
    Ok(Domain { id, ..domain })
}

pub async fn edit(pool: &Pool, host: &str, patch: DomainPatch) -> Result<Domain, Error> {
    let session = pool.get().await?;
    let transaction = session.begin().await?;
    transaction.query("SELECT 1 FROM domains FOR UPDATE", &[]).await?;
    let domains = load(&transaction).await?;
    let known = domains.named(Some(host)).map(Option::<&_>::cloned);
    let edited = known.map_err(Error::from).and_then(|known| {
        let mut domain = Domain::clone(&*known.ok_or_else(|| Error::NoDomain(host.to_owned()))?);
        domain.root_target = patch.root_target.unwrap_or(domain.root_target);
        domain.default_target = patch.default_target.unwrap_or(domain.default_target);
        domain.not_found_html = patch.not_found_html.unwrap_or(domain.not_found_html);
        domain.check()?;
        storable(&domain)?;
        Ok(domain)
    });
    let domain = match edited {
        Ok(domain) => domain,
        Err(error) => {
            transaction.rollback().await?;
            return Err(error);
        }
    };
    let sql = "UPDATE domains SET root_target = $2, default_target = $3, not_found_html = $4 WHERE id = $1";
    let values = values![
        domain.id.0 => INT8, domain.root_target => TEXT, domain.default_target => TEXT, domain.not_found_html => TEXT,
    ];
    transaction.execute(sql, values).await?;
    transaction.commit().await?;
    Ok(domain)
}

/// Deletes a domain without links; with `force`, some of its links. Returns whether the domain is gone.
pub async fn delete(pool: &Pool, host: &str, force: bool) -> Result<bool, Error> {
    let session = pool.get().await?;
    let id = load(&session).await?.id(Some(host))?;
    if id == DomainId::DEFAULT {
        return Err(Error::NoDomain(host.to_owned()));
    }
    let most = i64::try_from(MAX_LINKS_DELETED).unwrap_or(i64::MAX);
    let found = "SELECT id FROM links WHERE named_domain = $1 LIMIT $2";
    let rows = session.query(found, values![id.0 => INT8, most => INT8]).await?;
    let found: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    if !found.is_empty() && !force {
        return Err(Error::DomainInUse(host.to_owned()));
    }
    let rest = found.len() == MAX_LINKS_DELETED;
    links::delete_ids(&session, &found).await?;
    if rest {
        return Ok(false);
    }
    match session.execute("DELETE FROM domains WHERE id = $1", values![id.0 => INT8]).await {
        Ok(_) => Ok(true),
        // The domain got new links in the meantime.
        Err(error) if links::is_referred(&error) => match force {
            true => Ok(false),
            false => Err(Error::DomainInUse(host.to_owned())),
        },
        Err(error) => Err(error.into()),
    }
}
