//! Other nodes' writes, from the feed of changes.

use std::sync::Arc;
use std::time::Instant;

use postgres::Heard;

use crate::store::{Change, Watch};
use crate::user::UserId;

/// Passes the feed's changes to a watch.
pub struct Follower(pub Arc<dyn Watch>);

impl Heard for Follower {
    fn changed(&self, change: postgres::Change<'_>) {
        match change {
            postgres::Change::Row { topic: "user", keys } => {
                match keys.iter().map(|key| key.parse()).collect::<Result<Vec<UserId>, _>>() {
                    Ok(ids) => self.0.changed(Change::Users(&ids)),
                    Err(_) => self.0.changed(Change::All),
                }
            }
            postgres::Change::Row { topic: "keys", .. } => self.0.changed(Change::Keys),
            // A newer version may report other kinds of changes.
            postgres::Change::Row { .. } | postgres::Change::All => self.0.changed(Change::All),
        }
    }

    fn heard_all_before(&self, instant: Instant) {
        self.0.heard_all_before(instant);
    }

    fn away(&self) {
        self.0.away();
    }
}
