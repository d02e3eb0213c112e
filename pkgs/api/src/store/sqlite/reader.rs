//! Read connections, one per thread that reads.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use crate::store::Error;

use super::connection;

/// How many databases a thread reads: one in a service, several in tests.
const MOST: usize = 8;

thread_local! {
    /// This thread's connections, by their database's number.
    static CONNECTIONS: RefCell<Vec<(u64, Connection)>> = const { RefCell::new(Vec::new()) };
}

/// The read connections of a database.
pub struct Readers {
    /// A unique number.
    number: u64,
    path: PathBuf,
}

impl Readers {
    pub fn new(path: PathBuf) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), path }
    }

    /// Reads with this thread's connection, which is opened at first use.
    pub fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        CONNECTIONS.with_borrow_mut(|connections| {
            let known = connections.iter().position(|(number, _)| *number == self.number);
            let index = match known {
                Some(index) => index,
                None => {
                    if connections.len() == MOST {
                        connections.remove(0);
                    }
                    connections.push((self.number, connection::reader(&self.path)?));
                    connections.len() - 1
                }
            };
            read(&connections[index].1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_panics_costs_itself_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.db");
        drop(connection::writer(&path).expect("it opens"));
        let readers = Readers::new(path);
        let one =
            |connection: &Connection| Ok(connection.query_one("SELECT 1", [], |row| row.get::<_, i64>(0))?);
        assert_eq!(readers.with(one).ok(), Some(1));
        let panicked = service::panics::catch(|| {
            readers.with(|connection| -> Result<(), Error> {
                let _statement = connection.prepare_cached("SELECT 1")?;
                panic!("on purpose")
            })
        });
        assert!(panicked.is_err());
        assert_eq!(readers.with(one).ok(), Some(1), "by the same connection, or another");
    }
}
