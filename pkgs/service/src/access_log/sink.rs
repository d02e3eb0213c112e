//! A bounded queue of lines, and the thread that writes them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use super::file::LogFile;
use super::options::Destination;
use super::output::Output;

/// The most blocks of lines that wait for the disk.
pub(super) const BLOCKS: usize = 1024;

/// The most bytes of all waiting blocks together. A single block always has room.
const QUEUE_BYTES: usize = 2 << 20;

/// Lines are handed on once they have this many bytes.
pub(super) const BLOCK_BYTES: usize = 32 * 1024;

/// How long shutdown waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// How often the writer checks during that pause whether to end or to reopen the file.
const LOOK: Duration = Duration::from_millis(50);

/// A log that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{to}: {source}")]
pub struct OpenError {
    to: String,
    source: io::Error,
}

/// What happens to lines that the disk does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// They are dropped and counted.
    Accepted,
    /// They are tried again until the end.
    Avoided,
}

/// The queue to the thread that writes. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    blocks: SyncSender<Block>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    reopen: AtomicBool,
    ending: AtomicBool,
    lost: AtomicU64,
    /// Bytes in the queue.
    queued: AtomicUsize,
}

/// A message to the thread.
#[derive(Debug)]
enum Block {
    /// Lines to write.
    Lines(Vec<u8>),
    /// Reopen the file, unless that was done already.
    Reopen,
    /// Answer once everything before it is written.
    End(SyncSender<()>),
}

impl Sink {
    /// Starts a thread of this name that writes lines to `to`.
    pub fn open(to: &Destination, thread: &str, loss: Loss) -> Result<Self, OpenError> {
        let file = LogFile::open(to).map_err(|source| OpenError { to: to.to_string(), source })?;
        Self::begin(file, thread, loss)
    }

    /// Starts a thread of this name that writes lines to `output`.
    pub fn begin(output: impl Output, thread: &str, loss: Loss) -> Result<Self, OpenError> {
        let to = output.to_string();
        let writer = Writer { output, torn: false, failing: false };
        let (blocks, queue) = mpsc::sync_channel(BLOCKS);
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name(thread.to_owned());
        let spawned = thread.spawn(move || run(&queue, writer, &shared, loss));
        spawned.map_err(|source| OpenError { to, source })?;
        Ok(Self { blocks, state })
    }

    /// Puts lines into the queue.
    ///
    /// # Errors
    /// Gives the lines back if the queue is full.
    pub fn offer(&self, lines: Vec<u8>) -> Result<(), Vec<u8>> {
        let (queued, bytes) = (&self.state.queued, lines.len());
        let before = queued.fetch_add(bytes, Relaxed);
        let sent = match before == 0 || before + bytes <= QUEUE_BYTES {
            true => self.blocks.try_send(Block::Lines(lines)).map_err(|error| match error {
                TrySendError::Full(block) | TrySendError::Disconnected(block) => block.into_lines(),
            }),
            false => Err(lines),
        };
        sent.inspect_err(|_| {
            queued.fetch_sub(bytes, Relaxed);
        })
    }

    /// Counts lines as lost.
    pub fn lose(&self, lines: &[u8]) {
        self.state.lose(lines);
    }

    /// How many lines were lost.
    pub fn lost(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move || state.lost.load(Relaxed)
    }

    /// Reopens the file before the next write, for when it was renamed.
    pub fn reopen(&self) {
        self.state.reopen.store(true, Relaxed);
        // If the queue is full, there is something to write, and the writer checks then.
        let _ = self.blocks.try_send(Block::Reopen);
    }

    /// Waits until everything handed on is written, but not for a disk that takes nothing.
    pub fn finish(&self) {
        self.state.ending.store(true, Relaxed);
        let (written, answer) = mpsc::sync_channel(1);
        let deadline = Instant::now() + PATIENCE;
        let mut end = Block::End(written);
        while let Err(TrySendError::Full(again)) = self.blocks.try_send(end) {
            if Instant::now() >= deadline {
                return;
            }
            end = again;
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = answer.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Block {
    fn into_lines(self) -> Vec<u8> {
        match self {
            Self::Lines(lines) => lines,
            Self::Reopen | Self::End(_) => Vec::new(),
        }
    }
}

impl State {
    fn lose(&self, lines: &[u8]) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        self.lost.fetch_add(count as u64, Relaxed);
    }
}

/// The thread's state: the output, and how writing goes.
struct Writer<O> {
    output: O,
    /// Whether the last line lacks its end.
    torn: bool,
    /// Whether the last write failed, and was reported.
    failing: bool,
}

impl<O: Output> Writer<O> {
    /// Writes `left`, and removes from it what was written.
    fn write(&mut self, left: &mut &[u8]) -> io::Result<()> {
        self.output.write(left)?;
        if self.failing {
            self.failing = false;
            tracing::info!(to = %self.output, "the log is written again");
        }
        Ok(())
    }

    fn reopen(&mut self) {
        match self.output.reopen() {
            Ok(anew) => self.torn &= !anew,
            Err(error) => tracing::error!(%error, to = %self.output, "the log stays where it was"),
        }
    }

    /// Reports a failure once, however long it lasts.
    fn complain(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(%error, to = %self.output, "cannot write the log");
        }
    }
}

fn run(queue: &Receiver<Block>, mut output: Writer<impl Output>, state: &State, loss: Loss) {
    for block in queue {
        if state.reopen.swap(false, Relaxed) {
            output.reopen();
        }
        match block {
            Block::Lines(lines) => {
                write(&lines, &mut output, state, loss);
                state.queued.fetch_sub(lines.len(), Relaxed);
            }
            Block::Reopen => {}
            Block::End(written) => {
                let _ = written.try_send(());
            }
        }
    }
}

fn write(lines: &[u8], output: &mut Writer<impl Output>, state: &State, loss: Loss) {
    if output.torn {
        let mut end = &b"\n"[..];
        // If this fails, so will the next write.
        output.torn = output.write(&mut end).is_err();
    }
    let mut left = lines;
    while let Err(error) = output.write(&mut left) {
        output.complain(&error);
        let until = Instant::now() + RETRY;
        while loss == Loss::Avoided
            && Instant::now() < until
            && !state.ending.load(Relaxed)
            && !state.reopen.load(Relaxed)
        {
            std::thread::sleep(LOOK);
        }
        if loss == Loss::Accepted || state.ending.load(Relaxed) {
            state.lose(left);
            let written = lines.len() - left.len();
            output.torn |= written > 0 && lines[written - 1] != b'\n';
            return;
        }
        if state.reopen.swap(false, Relaxed) {
            output.reopen();
            // The new file starts with a whole line.
            let written = lines.len() - left.len();
            let start = lines[..written].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            left = &lines[start..];
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn sink(to: &str, loss: Loss) -> Sink {
        Sink::open(&to.parse().expect("a destination"), "log", loss).expect("it opens")
    }

    /// Waits for it.
    pub(in crate::access_log) fn until(what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !what() {
            assert!(Instant::now() < deadline, "it never comes");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted_and_nobody_waits() {
        let full = sink("/dev/full", Loss::Accepted);
        full.offer(b"a\nb\n".to_vec()).expect("room");
        until(|| full.lost()() == 2);
        // Lines that do not fit come back at once.
        let refused = (0..10_000).filter_map(|_| full.offer(b"c\n".to_vec()).err()).count();
        (0..refused).for_each(|_| full.lose(b"c\n"));
        until(|| full.lost()() == 10_002);
        full.finish();
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_in_blocks() {
        let full = sink("/dev/full", Loss::Avoided);
        let large = || vec![b'x'; QUEUE_BYTES / 4];
        let taken = (0..10).filter(|_| full.offer(large()).is_ok()).count();
        assert_eq!(taken, 4);
        let full = sink("/dev/full", Loss::Avoided);
        let taken = (0..2 * BLOCKS).filter(|_| full.offer(vec![b'\n']).is_ok()).count();
        // The thread holds one block.
        assert!((BLOCKS..=BLOCKS + 1).contains(&taken), "{taken}");
    }

    #[test]
    fn lines_that_are_not_to_be_lost_wait_for_another_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        // To the thread, this looks like a full disk.
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        let log = sink(&path.display().to_string(), Loss::Avoided);
        log.offer(b"a\n".to_vec()).expect("room");
        std::fs::remove_file(&path).expect("it is there");
        log.reopen();
        until(|| std::fs::read(&path).is_ok_and(|text| text == b"a\n"));
        assert_eq!(log.lost()(), 0);

        std::fs::remove_file(&path).expect("it is there");
        std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
        log.reopen();
        log.offer(b"b\n".to_vec()).expect("room");
        let begin = Instant::now();
        log.finish();
        assert!(begin.elapsed() < 2 * PATIENCE, "the end does not wait for it");
        until(|| log.lost()() == 1);
    }

    #[test]
    fn a_file_is_its_owners_and_one_that_was_renamed_is_made_anew() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let log = sink(&path.display().to_string(), Loss::Accepted);
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o007, 0, "{mode:o}");
        log.offer(b"a\n".to_vec()).expect("room");
        log.finish();
        // It waits for a while only.
        until(|| std::fs::read(&path).is_ok_and(|text| text == b"a\n"));
        let moved = directory.path().join("log.1");
        std::fs::rename(&path, &moved).expect("it is there");
        log.reopen();
        until(|| path.exists());
        log.offer(b"b\n".to_vec()).expect("room");
        log.finish();
        until(|| std::fs::read(&path).is_ok_and(|text| text == b"b\n"));
        assert_eq!(std::fs::read(&moved).expect("it is there"), b"a\n");
    }
}
