//! Imports rows as links, for the API and the command line.

use std::collections::VecDeque;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Format, ReadError, read};
use crate::domains::{DEFAULT, InDomains};
use crate::store::{Error, OnConflict, Pending, Record, Store, Tally};

/// Rows per transaction: enough to make the cost of the commit negligible, few enough that other clients of the writer
/// wait some 100 ms at most.
const BATCH_ROWS: usize = 20_000;

/// The most bytes of text in a batch, whatever its number of rows.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Batches that were passed to a file's writer and are not yet committed. It takes them in their order, so one is
/// checked while another is written.
const IN_FLIGHT: usize = 2;

/// The same for a database server, which would write two at once: an older row could win. The next one is still parsed
/// meanwhile.
const IN_FLIGHT_REMOTE: usize = 1;

/// The most refusals listed in a tally.
const ERRORS: usize = 100;

/// An import that was interrupted. The batches before are committed.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct ImportError {
    /// The reason.
    #[source]
    pub cause: Cause,
    /// What was done before.
    pub tally: Tally,
}

/// Why an import was interrupted.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The input cannot be read further.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store accepts no more.
    #[error(transparent)]
    Store(#[from] Error),
}

/// How rows become links.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// What to do if a code is taken.
    pub on_conflict: OnConflict,
    /// The domain of rows that name none; the default one if absent.
    pub domain: Option<String>,
    /// The domains that rows may name. Rows for other domains are refused.
    pub within: InDomains,
    /// Set once nothing more may be stored, since the key of the import is no longer valid. Rows that wait, or are
    /// being checked, are dropped.
    pub is_over: Arc<AtomicBool>,
}

/// Reads links and stores them in batches, each in one transaction. Refused rows are counted and do not stop the
/// import. In [`Tally::errors`] they have the numbers that [`read`] gives them. `progress` gets the tally after each
/// batch. Blocks, so do not call it on an async thread.
pub fn import(
    format: Format,
    input: impl Read,
    store: &Store,
    how: &ImportOptions,
    progress: &mut dyn FnMut(&Tally),
) -> Result<Tally, ImportError> {
    let mut run = Run {
        store,
        how,
        progress,
        tally: Tally::default(),
        batch: Batch::default(),
        in_flight: VecDeque::new(),
        most: if store.remote().is_some() { IN_FLIGHT_REMOTE } else { IN_FLIGHT },
    };
    let mut failed = None;
    let read = read(format, input, &mut |row, record| {
        let taken = match record {
            Ok(record) => run.take(row, record),
            Err(error) => {
                run.refuse(row, error.to_string());
                Ok(())
            }
        };
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(Cause::Store(error));
                ControlFlow::Break(())
            }
        }
    });
    // Rows before an input error are stored too. The tally counts them.
    let finished = run.finish(failed.is_some());
    let cause = match (failed, finished) {
        (Some(cause), _) => Some(cause),
        (None, Err(error)) => Some(Cause::Store(error)),
        (None, Ok(())) => read.err().map(Cause::Read),
    };
    run.tally.errors.sort_unstable_by_key(|(row, _)| *row);
    match cause {
        None => Ok(run.tally),
        Some(cause) => Err(ImportError { cause, tally: run.tally }),
    }
}

/// Rows that wait to become a transaction.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    /// The row numbers of the records.
    rows: Vec<u64>,
    /// The approximate size of the records, in bytes.
    bytes: usize,
}

struct Run<'a> {
    store: &'a Store,
    how: &'a ImportOptions,
    progress: &'a mut dyn FnMut(&Tally),
    tally: Tally,
    batch: Batch,
    /// The row numbers of each submitted batch, and its pending answer.
    in_flight: VecDeque<(Vec<u64>, Pending<Tally>)>,
    /// How many batches may be in flight.
    most: usize,
}

impl Run<'_> {
    fn take(&mut self, row: u64, mut record: Record) -> Result<(), Error> {
        let domain = &mut record.link.domain;
        if domain.is_none() {
            domain.clone_from(&self.how.domain);
        }
        if let within @ InDomains::Only(_) = &self.how.within {
            let domain = domain.as_deref();
            // Such a row takes no room in a batch. The store checks again, since the batch waits meanwhile. The error
            // does not reveal whether another domain of this name exists.
            if !self.store.domains().id(domain).is_ok_and(|domain| within.has(domain)) {
                self.refuse(row, Error::OtherDomain(domain.unwrap_or(DEFAULT).to_owned()).to_string());
                return Ok(());
            }
        }
        self.batch.bytes += bytes(&record);
        self.batch.records.push(record);
        self.batch.rows.push(row);
        if self.batch.records.len() == BATCH_ROWS || self.batch.bytes >= BATCH_BYTES {
            self.submit()?;
        }
        Ok(())
    }

    fn refuse(&mut self, row: u64, reason: String) {
        self.tally.failed += 1;
        if self.tally.errors.len() < ERRORS {
            self.tally.errors.push((row, reason));
        }
    }

    fn submit(&mut self) -> Result<(), Error> {
        if self.in_flight.len() == self.most {
            self.settle()?;
        }
        let Batch { records, rows, .. } = std::mem::take(&mut self.batch);
        if self.how.is_over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let ImportOptions { on_conflict, within, is_over, .. } = self.how;
        self.in_flight.push_back((rows, self.store.import(records, *on_conflict, within, is_over)));
        Ok(())
    }

    /// Waits for the oldest batch.
    fn settle(&mut self) -> Result<(), Error> {
        let Some((rows, pending)) = self.in_flight.pop_front() else { return Ok(()) };
        let tally = pending.wait()?;
        self.tally.created += tally.created;
        self.tally.replaced += tally.replaced;
        self.tally.skipped += tally.skipped;
        self.tally.failed += tally.failed;
        let room = ERRORS.saturating_sub(self.tally.errors.len());
        self.tally.errors.extend(tally.errors.into_iter().take(room).map(|(index, reason)| {
            let row = usize::try_from(index).ok().and_then(|index| rows.get(index));
            (row.copied().unwrap_or(index), reason)
        }));
        (self.progress)(&self.tally);
        Ok(())
    }

    /// Stores the last rows unless a batch has `failed`, and waits for all batches: the tally counts what was stored
    /// even if another one fails. Returns the first error.
    fn finish(&mut self, failed: bool) -> Result<(), Error> {
        let mut done = if failed || self.batch.records.is_empty() { Ok(()) } else { self.submit() };
        while !self.in_flight.is_empty() {
            done = done.and(self.settle());
        }
        done
    }
}

/// The approximate heap memory of a record.
fn bytes(record: &Record) -> usize {
    let link = &record.link;
    let texts = [&link.domain, &link.code, &link.title, &link.password, &record.password_hash];
    link.target.len()
        + texts.iter().filter_map(|text| text.as_ref()).map(String::len).sum::<usize>()
        + link.tags.iter().map(|tag| tag.len() + size_of::<String>()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::domains::NewDomain;
    use crate::store::Options;

    const HOST: &str = "b.example";

    fn add_domain(store: &Store) {
        store.create_domain(NewDomain { host: HOST.to_owned(), ..NewDomain::default() }).wait().unwrap();
    }

    /// A file whose domain is deleted and created again before its end is read.
    struct File<'a> {
        store: &'a Store,
        rest: &'a [u8],
    }

    impl Read for File<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.rest.is_empty() {
                while !self.store.delete_domain(HOST.to_owned(), true).wait().unwrap() {}
                add_domain(self.store);
            }
            self.rest.read(buffer)
        }
    }

    #[test]
    fn a_domain_that_is_made_again_is_not_the_one_an_import_began_for() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(&directory.path().join("links.db"))).unwrap();
        add_domain(&store);
        let id = store.domains().id(Some(HOST)).unwrap();
        let how = ImportOptions { within: InDomains::Only(vec![id]), ..ImportOptions::default() };
        let file = File { store: &store, rest: b"domain,code,target\nb.example,a,https://t.example/\n" };
        let tally = import(Format::Csv, file, &store, &how, &mut |_| {}).unwrap();
        assert_ne!(store.domains().id(Some(HOST)), Ok(id));
        assert_eq!((tally.created, tally.failed), (0, 1), "{tally:?}");
        assert_eq!(tally.errors, [(1, "the key is not for the domain \"b.example\"".to_owned())]);
        assert!(store.reader().unwrap().is_empty().unwrap());
        store.close();
    }
}
