//! A request's identification as a comment in its statements. It has the format of sqlcommenter: `/*key='…'*/` after
//! each statement. `pg_stat_activity`, the server's log and `auto_explain` show it.
//!
//! With a comment, each request has a different statement, so a cache of prepared statements would be useless. Such a
//! statement is therefore not cached, and is parsed and planned each time, which takes about a hundred microseconds
//! more. Such a read doesn't share a query with others either, since the comment would be wrong for them. All other
//! statements are unchanged.

use std::sync::Arc;

tokio::task_local! {
    static COMMENT: Comment;
}

/// The text after a statement; clones share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment(Arc<str>);

impl Comment {
    /// A comment with `value` for `key`. None if either contains anything but letters, digits, `-` and `_`. So nothing
    /// in it can end a comment or a text.
    #[must_use]
    pub fn new(key: &str, value: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (key.bytes().chain(value.bytes()).all(plain)).then(|| Self(format!(" /*{key}='{value}'*/").into()))
    }

    /// The statement, followed by the comment.
    pub(crate) fn behind(&self, sql: &str) -> String {
        format!("{sql}{}", self.0)
    }
}

/// Runs work whose statements have this comment, if there is one.
pub async fn commented<W: Future>(comment: Option<Comment>, work: W) -> W::Output {
    match comment {
        Some(comment) => COMMENT.scope(comment, work).await,
        None => work.await,
    }
}

/// The calling task's comment, for work that the caller gives to another task.
#[must_use]
pub fn comment() -> Option<Comment> {
    COMMENT.try_with(Comment::clone).ok()
}

/// Like [`commented`] with the calling task's comment, for work on another thread.
pub fn carrying<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let comment = comment();
    move || match comment {
        Some(comment) => COMMENT.sync_scope(comment, work),
        None => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_comment_is_of_its_task_and_of_plain_characters() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let told = Comment::new("traceparent", trace).expect("plain");
        assert_eq!(told.behind("SELECT 1"), format!("SELECT 1 /*traceparent='{trace}'*/"));
        assert_eq!(comment(), None);
        assert_eq!(commented(Some(told.clone()), async { comment() }).await, Some(told.clone()));
        let elsewhere = async { std::thread::spawn(carrying(comment)).join().expect("no panic") };
        assert_eq!(commented(Some(told.clone()), elsewhere).await, Some(told));
        assert_eq!(commented(None, async { comment() }).await, None);
        for (key, value) in
            [("a", "*/"), ("a", "'"), ("a", "\\"), ("a", "\0"), ("a", "é"), ("a'", "b"), ("a", " ")]
        {
            assert_eq!(Comment::new(key, value), None, "{key} {value}");
        }
    }
}
