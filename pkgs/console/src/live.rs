//! Limits the number of live pages at once. Each one requests new figures every second and holds a connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The limit for all sessions together.
const ALL: usize = 32;

/// The limit for one session. Browsers open six HTTP/1.1 connections per host, and need some of them to load pages.
const EACH: usize = 4;

/// Why a page doesn't update by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// All slots are taken.
    All,
    /// All of this session's slots are taken.
    Own,
}

/// How many live pages each cookie has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live(Arc<Mutex<HashMap<String, usize>>>);

/// A slot for a live page, held as long as this value lives.
#[derive(Debug)]
pub(crate) struct Place {
    live: Live,
    cookie: String,
}

impl Live {
    /// Takes a slot for one more page of this session.
    ///
    /// # Errors
    /// [`Full`].
    pub(crate) fn take(&self, cookie: &str) -> Result<Place, Full> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.get(cookie).is_some_and(|own| *own >= EACH) {
            return Err(Full::Own);
        }
        if taken.values().sum::<usize>() >= ALL {
            return Err(Full::All);
        }
        *taken.entry(cookie.to_owned()).or_insert(0) += 1;
        Ok(Place { live: self.clone(), cookie: cookie.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.live.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.cookie) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.cookie);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_session_leaves_room_for_others_and_all_are_bounded() {
        let live = Live::default();
        let mut own: Vec<Place> = (0..EACH).map(|_| live.take("own").expect("room")).collect();
        assert_eq!(live.take("own").err(), Some(Full::Own));
        let others: Vec<Place> =
            (EACH..ALL).map(|number| live.take(&(number / 2).to_string()).expect("room")).collect();
        assert_eq!(live.take("another").err(), Some(Full::All));
        own.pop();
        own.push(live.take("own").expect("a page was left"));
        drop((own, others));
        assert!(live.0.lock().expect("a lock").is_empty());
    }
}
