//! Running and finished imports, kept in memory up to a limit. [`rows`] reads their files.

pub(crate) mod rows;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::csrf;
use crate::links::Tally;

/// How many imports are kept. New ones replace the oldest finished ones.
const KEPT: usize = 16;

/// How many imports may run at once, since the rows of each are held in memory.
const RUNNING: usize = 2;

/// How many refused rows are reported.
const ERRORS: usize = 100;

/// A place for an import, which is taken before its file is read.
pub(crate) type Place = OwnedSemaphorePermit;

/// The task that performs an import. When it is dropped, even by a panic, the import is over and its place is free.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) import: Arc<Import>,
    _place: Place,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.import.end(Err("the console failed".to_owned()));
    }
}

/// How far an import has got.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Rows in the file.
    pub(crate) total: u64,
    /// Rows that links has accepted or refused.
    pub(crate) read: u64,
    /// The outcome of those rows.
    pub(crate) tally: Tally,
    /// Whether it is over and, if it ended early, the reason.
    pub(crate) ended: Option<Result<(), String>>,
}

/// An import.
#[derive(Debug)]
pub(crate) struct Import {
    /// The id by which its progress is requested.
    pub(crate) id: String,
    /// The cookie of the visitor who began it.
    owner: String,
    progress: Mutex<Progress>,
}

impl Import {
    /// How far it has got.
    pub(crate) fn progress(&self) -> Progress {
        self.lock().clone()
    }

    /// Adds the outcome of more rows.
    pub(crate) fn add(&self, rows: u64, tally: Tally) {
        let mut progress = self.lock();
        let before = progress.read;
        let sum = &mut progress.tally;
        sum.created += tally.created;
        sum.replaced += tally.replaced;
        sum.skipped += tally.skipped;
        sum.failed += tally.failed;
        let room = ERRORS.saturating_sub(sum.errors.len());
        // Rows are numbered as in the file.
        sum.errors.extend(tally.errors.into_iter().take(room).map(|(row, why)| (before + row, why)));
        progress.read += rows;
    }

    /// Marks it as over.
    pub(crate) fn end(&self, ended: Result<(), String>) {
        self.lock().ended.get_or_insert(ended);
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The imports that are kept, and places for running ones.
#[derive(Debug)]
pub(crate) struct Imports {
    /// Newest last.
    kept: Mutex<VecDeque<Arc<Import>>>,
    places: Arc<Semaphore>,
}

impl Default for Imports {
    fn default() -> Self {
        Self { kept: Mutex::default(), places: Arc::new(Semaphore::new(RUNNING)) }
    }
}

impl Imports {
    /// Takes a place for one more import; none if too many are running.
    pub(crate) fn place(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Begins an import of this many rows; none if the system has no randomness for its id.
    pub(crate) fn begin(&self, owner: &str, total: u64, place: Place) -> Option<Worker> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            let oldest = kept.iter().position(|import| import.lock().ended.is_some())?;
            kept.remove(oldest);
        }
        let progress = Mutex::new(Progress { total, ..Progress::default() });
        let import = Arc::new(Import { id: csrf::random().ok()?, owner: owner.to_owned(), progress });
        kept.push_back(Arc::clone(&import));
        Some(Worker { import, _place: place })
    }

    /// One of this visitor's imports.
    pub(crate) fn find(&self, owner: &str, id: &str) -> Option<Arc<Import>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|import| import.id == id && import.owner == owner).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(imports: &Imports, owner: &str, total: u64) -> Worker {
        let place = imports.place().expect("there is room");
        imports.begin(owner, total, place).expect("random")
    }

    #[test]
    fn imports_are_their_owners_and_so_many_at_a_time() {
        let imports = Imports::default();
        let [one, two] = ["a", "b"].map(|owner| begin(&imports, owner, 10));
        assert!(imports.place().is_none(), "two are under way");
        let [one_id, two_id] = [&one, &two].map(|worker| worker.import.id.clone());
        assert!(imports.find("a", &one_id).is_some() && imports.find("b", &one_id).is_none());
        drop(two);
        for _ in 0..2 * KEPT {
            begin(&imports, "c", 1).import.end(Err("broken".into()));
        }
        assert!(imports.find("a", &one_id).is_some(), "one that is under way stays");
        assert!(imports.find("b", &two_id).is_none(), "the oldest that has ended makes room");
        assert_eq!(imports.kept.lock().expect("nobody panicked").len(), KEPT);
    }

    #[test]
    fn what_panics_is_over() {
        let imports = Imports::default();
        let worker = begin(&imports, "a", 1);
        let import = Arc::clone(&worker.import);
        let panicked = std::thread::spawn(move || {
            let _worker = worker;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert!(matches!(import.progress().ended, Some(Err(_))));
    }

    #[test]
    fn what_pieces_came_to_is_summed_and_rows_have_the_numbers_of_the_file() {
        let imports = Imports::default();
        let import = &begin(&imports, "a", 2_000).import;
        let errors = |count: u64| (1..=count).map(|row| (row, format!("row {row}"))).collect();
        import.add(1_000, Tally { created: 990, failed: 10, errors: errors(10), ..Tally::default() });
        import.add(1_000, Tally { skipped: 900, failed: 100, errors: errors(100), ..Tally::default() });
        let Progress { total, read, tally, ended } = import.progress();
        assert_eq!((total, read, ended), (2_000, 2_000, None));
        assert_eq!((tally.created, tally.skipped, tally.failed), (990, 900, 110));
        assert_eq!((tally.errors.len(), &tally.errors[10]), (ERRORS, &(1_001, "row 1".to_owned())));
        import.end(Err("broken".to_owned()));
        import.end(Ok(()));
        assert_eq!(import.progress().ended, Some(Err("broken".to_owned())), "it ends once");
    }
}
