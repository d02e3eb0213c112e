//! Domains, within the writer's transaction.

use rusqlite::{Connection, params};

use crate::domains::{Domain, DomainId, DomainPatch, Domains, MAX_DOMAINS};
use crate::when::Timestamp;

use super::clicks;
use crate::store::Error;
use crate::store::rules::domains::MAX_LINKS_DELETED;
use crate::store::sqlite::work::WriteContext;

/// All domains.
pub(in crate::store::sqlite) fn load(connection: &Connection) -> Result<Domains, Error> {
    let mut statement = connection.prepare_cached(
        "SELECT id, host, root_target, default_target, not_found_html, created_at FROM domains",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(Domain {
            id: DomainId(row.get(0)?),
            host: row.get(1)?,
            root_target: row.get(2)?,
            default_target: row.get(3)?,
            not_found_html: row.get(4)?,
            created_at: Timestamp(row.get(5)?),
        })
    })?;
    Ok(Domains::new(rows.collect::<Result<Vec<_>, _>>()?))
}

pub(in crate::store::sqlite) fn create(work: &mut WriteContext<'_>, domain: Domain) -> Result<Domain, Error> {
    let connection = work.connection;
    let count: usize = connection.query_row("SELECT count(*) FROM domains", [], |row| row.get(0))?;
    if count >= MAX_DOMAINS {
        return Err(Error::field("host", format!("there are {MAX_DOMAINS} domains already")));
    }
    let inserted = connection.execute(
        "INSERT INTO domains (host, root_target, default_target, not_found_html, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
        params![
            domain.host,
            domain.root_target,
            domain.default_target,
            domain.not_found_html,
            domain.created_at.0
        ],
    )?;
    if inserted == 0 {
        return Err(Error::DomainTaken(domain.host));
    }
    work.domains_changed();
    Ok(Domain { id: DomainId(connection.last_insert_rowid()), ..domain })
}

pub(in crate::store::sqlite) fn edit(
    work: &mut WriteContext<'_>,
    host: &str,
    patch: DomainPatch,
) -> Result<Domain, Error> {
    let connection = work.connection;
    let domains = load(connection)?;
    let Some(known) = domains.named(Some(host))? else { return Err(Error::NoDomain(host.to_owned())) };
    let mut domain = Domain::clone(known);
    domain.root_target = patch.root_target.unwrap_or(domain.root_target);
    domain.default_target = patch.default_target.unwrap_or(domain.default_target);
    domain.not_found_html = patch.not_found_html.unwrap_or(domain.not_found_html);
    domain.check()?;
    connection.execute(
        "UPDATE domains SET root_target = ?2, default_target = ?3, not_found_html = ?4 WHERE id = ?1",
        params![domain.id.0, domain.root_target, domain.default_target, domain.not_found_html],
    )?;
    work.domains_changed();
    Ok(domain)
}

/// Deletes a domain without links; with `force`, some of its links. Returns whether the domain is gone.
pub(in crate::store::sqlite) fn delete(
    work: &mut WriteContext<'_>,
    host: &str,
    force: bool,
) -> Result<bool, Error> {
    let connection = work.connection;
    let id = load(connection)?.id(Some(host))?;
    if id == DomainId::DEFAULT {
        return Err(Error::NoDomain(host.to_owned()));
    }
    let links: Vec<i64> = connection
        .prepare_cached("SELECT id FROM links WHERE domain = ?1 AND domain <> 0 LIMIT ?2")?
        .query_map(params![id.0, MAX_LINKS_DELETED], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if !links.is_empty() && !force {
        return Err(Error::DomainInUse(host.to_owned()));
    }
    for &link in &links {
        connection.prepare_cached("DELETE FROM links WHERE id = ?1")?.execute([link])?;
        clicks::delete(connection, link)?;
    }
    if !links.is_empty() {
        work.all_changed();
    }
    if links.len() == MAX_LINKS_DELETED {
        return Ok(false);
    }
    connection.execute("DELETE FROM domains WHERE id = ?1", [id.0])?;
    work.domains_changed();
    Ok(true)
}

/// Refuses a domain that was deleted since it was looked up.
pub(in crate::store::sqlite) fn expect(connection: &Connection, domain: &Domain) -> Result<(), Error> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM domains WHERE id = ?1")?;
    match statement.exists([domain.id.0])? {
        true => Ok(()),
        false => Err(Error::NoDomain(domain.host.clone())),
    }
}
