//! What a piece of work for the writer has at hand.

use rusqlite::Connection;

use crate::domains::LinkKey;

/// Changed codes told one by one; past it, everything counts as changed.
const MAX_CODES: usize = 4096;

/// What a piece of work has at hand: the connection, within a transaction, and a list of what it changes.
pub(in crate::store) struct WriteContext<'w> {
    pub connection: &'w Connection,
    pub changes: &'w mut Changes,
}

impl WriteContext<'_> {
    /// The link with this code is another now.
    pub fn changed(&mut self, key: LinkKey) {
        if self.changes.codes.len() < MAX_CODES {
            self.changes.codes.push(key);
        } else {
            self.changes.all = true;
        }
    }

    /// More has changed than is worth telling apart.
    pub fn all_changed(&mut self) {
        self.changes.all = true;
    }

    /// There are other domains now.
    pub fn domains_changed(&mut self) {
        self.changes.domains = true;
    }
}

/// What a transaction changes.
#[derive(Default)]
pub(in crate::store) struct Changes {
    /// The links with these codes, unless it is all of them.
    pub codes: Vec<LinkKey>,
    pub all: bool,
    /// Which domains there are.
    pub domains: bool,
}
