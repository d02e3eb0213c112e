//! The trace of a request in the statements that are made for it, as sqlcommenter has it: `/*traceparent='…'*/` behind
//! each, where `pg_stat_activity`, the server's log and `auto_explain` show it.
//!
//! A comment makes of each request another statement, which a cache of prepared ones is of no use for. So a statement with
//! one is not kept there, and is parsed and planned anew each time: some hundred microseconds more. That is for traces
//! that their callers record, and only where the service was told to pass them on; all others have the statements that
//! they always had.

use service::traceparent::TraceParent;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{AssertSqlSafe, FromRow, Postgres, SqlSafeStr, SqlStr};

tokio::task_local! {
    static TRACE: TraceParent;
}

/// Does work whose statements tell of a trace, if there is one to tell of.
pub async fn scope<W: Future>(trace: Option<TraceParent>, work: W) -> W::Output {
    match trace {
        Some(trace) => TRACE.scope(trace, work).await,
        None => work.await,
    }
}

/// The trace of the calling task.
pub fn current() -> Option<TraceParent> {
    TRACE.try_with(TraceParent::clone).ok()
}

/// A statement, and whether it is worth keeping prepared.
fn told(sql: impl SqlSafeStr) -> (SqlStr, bool) {
    let sql = sql.into_sql_str();
    TRACE.try_with(|trace| format!("{}{}", sql.as_str(), trace.sql_comment())).map_or((sql, true), |sql| {
        // A well-formed traceparent has no characters that end a comment.
        (AssertSqlSafe(sql).into_sql_str(), false)
    })
}

/// [`sqlx::query`].
pub fn query<'q>(sql: impl SqlSafeStr) -> Query<'q, Postgres, PgArguments> {
    let (sql, kept) = told(sql);
    sqlx::query(sql).persistent(kept)
}

/// [`sqlx::query_with`].
pub fn query_with<'q>(sql: impl SqlSafeStr, arguments: PgArguments) -> Query<'q, Postgres, PgArguments> {
    let (sql, kept) = told(sql);
    sqlx::query_with(sql, arguments).persistent(kept)
}

/// [`sqlx::query_as`].
pub fn query_as<'q, O>(sql: impl SqlSafeStr) -> QueryAs<'q, Postgres, O, PgArguments>
where
    O: for<'r> FromRow<'r, PgRow>,
{
    let (sql, kept) = told(sql);
    sqlx::query_as(sql).persistent(kept)
}

/// [`sqlx::query_scalar`].
pub fn query_scalar<'q, O>(sql: impl SqlSafeStr) -> QueryScalar<'q, Postgres, O, PgArguments>
where
    (O,): for<'r> FromRow<'r, PgRow>,
{
    let (sql, kept) = told(sql);
    sqlx::query_scalar(sql).persistent(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statements_of_a_trace_have_a_comment_and_are_not_kept_prepared() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (sql, kept) = told("SELECT 1");
        assert_eq!((sql.as_str(), kept), ("SELECT 1", true));
        let (sql, kept) = scope(TraceParent::parse(text.as_bytes()), async { told("SELECT 1") }).await;
        assert_eq!((sql.as_str(), kept), (&*format!("SELECT 1 /*traceparent='{text}'*/"), false));
        assert!(scope(None, async { current() }).await.is_none());
    }
}
