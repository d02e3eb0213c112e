//! The trace of a request in the statements that are made for it, as sqlcommenter has it: `/*traceparent='…'*/` behind
//! each, where `pg_stat_activity`, the server's log and `auto_explain` show it.
//!
//! A comment makes of each request another statement, which a cache of prepared ones is of no use for. So a statement with
//! one is not kept there, and is parsed and planned anew each time: some hundred microseconds more. That is for traces
//! that their callers record, and only where the service was told to pass them on; all others have the statements that
//! they always had.

use postgres::{Error, Parameter, Row, Session};
use service::traceparent::TraceParent;

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

/// A statement as it is for the calling task's trace; None where it tells of none.
fn told(sql: &str) -> Option<String> {
    // A well-formed traceparent has no characters that end a comment.
    TRACE.try_with(|trace| format!("{sql}{}", trace.sql_comment())).ok()
}

/// Rows of a statement.
pub async fn query(session: &Session, sql: &str, values: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
    match told(sql) {
        Some(sql) => session.query_once(&sql, values).await,
        None => session.query(sql, values).await,
    }
}

/// How many rows a statement changes.
pub async fn execute(session: &Session, sql: &str, values: &[Parameter<'_>]) -> Result<u64, Error> {
    match told(sql) {
        Some(sql) => session.execute_once(&sql, values).await,
        None => session.execute(sql, values).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn statements_of_a_trace_have_a_comment() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(told("SELECT 1"), None);
        let sql = scope(TraceParent::parse(text.as_bytes()), async { told("SELECT 1") }).await;
        assert_eq!(sql, Some(format!("SELECT 1 /*traceparent='{text}'*/")));
        assert!(scope(None, async { current() }).await.is_none());
    }
}
