//! The context of a job for the writer.

use rusqlite::Connection;

use crate::domains::LinkKey;

/// How many changed codes are listed. If there are more, everything counts as changed.
const MAX_CODES: usize = 4096;

/// The context of a job: the connection within a transaction, and a list of changes.
pub(in crate::store) struct WriteContext<'w> {
    pub connection: &'w Connection,
    pub changes: &'w mut Changes,
}

impl WriteContext<'_> {
    /// Records that the link with this code has changed.
    pub fn changed(&mut self, key: LinkKey) {
        if self.changes.codes.len() < MAX_CODES {
            self.changes.codes.push(key);
        } else {
            self.changes.all = true;
        }
    }

    /// Records that everything may have changed.
    pub fn all_changed(&mut self) {
        self.changes.all = true;
    }

    /// Records that domains have changed.
    pub fn domains_changed(&mut self) {
        self.changes.domains = true;
    }
}

/// The changes of a transaction.
#[derive(Default)]
pub(in crate::store) struct Changes {
    /// The links with these codes, unless all may have changed.
    pub codes: Vec<LinkKey>,
    pub all: bool,
    /// Whether domains have changed.
    pub domains: bool,
}
