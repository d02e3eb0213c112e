//! Answers that are asked for again and again, kept whole: the head in the same pipe as the body.
//!
//! A head on its own is a call to the kernel, a tenth of what a small file costs. It changes once a second, with its
//! `Date`; until then a file that is asked for often has the same one each time.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, tee};

use crate::shelf::FileCopy;

/// Answers of a worker: each has a pipe.
const ANSWERS: usize = 64;

/// The most bytes of a head: what one place of a pipe takes (`PIPE_BUF` of Linux, a page).
const HEAD_BYTES: usize = 4096;

/// The time of asking from which on a pipe is worth its making: that costs as much as is saved by some ten answers.
const WORTH: u32 = 4;

/// An answer nobody asks for in so many ticks is let go of: by then its `Date` has passed.
const UNUSED: u32 = 6;

/// The answers of a worker.
#[derive(Debug, Default)]
pub struct Wholes(Vec<Whole>);

#[derive(Debug)]
struct Whole {
    copy: Arc<FileCopy>,
    head: Vec<u8>,
    asked: u32,
    /// When it was asked for last.
    tick: u32,
    pipe: Option<Rc<OwnedFd>>,
}

impl Wholes {
    /// The pipe with this head and the whole file behind it, to be read by tee(2) alone. None where it has not been
    /// asked for often enough, and for a file that has more than one pipe.
    pub fn answer(&mut self, copy: &Arc<FileCopy>, head: &[u8], tick: u32) -> Option<Rc<OwnedFd>> {
        let Some(whole) = self.0.iter_mut().find(|whole| Arc::ptr_eq(&whole.copy, copy)) else {
            if self.0.len() < ANSWERS && head.len() <= HEAD_BYTES && copy.whole().is_some() {
                let (copy, head) = (Arc::clone(copy), head.to_vec());
                self.0.push(Whole { copy, head, asked: 1, tick, pipe: None });
            }
            return None;
        };
        whole.tick = tick;
        if whole.head != head {
            if head.len() <= HEAD_BYTES {
                whole.head.clear();
                whole.head.extend_from_slice(head);
                (whole.asked, whole.pipe) = (1, None);
            }
            return None;
        }
        if whole.pipe.is_none() {
            whole.asked = whole.asked.saturating_add(1);
            if whole.asked == WORTH {
                whole.pipe = fill(head, whole.copy.whole()?).map(Rc::new).ok();
            }
        }
        whole.pipe.clone()
    }

    /// Lets go of what nobody asked for.
    pub fn tidy(&mut self, tick: u32) {
        self.0.retain(|whole| whole.tick.saturating_add(UNUSED) > tick);
    }
}

/// A pipe with a head, and behind it all that `body` has.
fn fill(head: &[u8], (body, length): (impl AsFd, usize)) -> io::Result<OwnedFd> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let mut write = std::fs::File::from(write);
    write.write_all(head)?;
    let taken = tee(body, &write, length, SpliceFlags::NONBLOCK)?;
    // The head has taken a place: the last of the body may have found none.
    if taken == length { Ok(read) } else { Err(io::ErrorKind::StorageFull.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::shelf::tests::copy_of;

    fn bytes(pipe: &OwnedFd) -> Vec<u8> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        tee(pipe, &write, 1 << 20, SpliceFlags::NONBLOCK).expect("bytes");
        drop(write);
        let mut bytes = Vec::new();
        std::fs::File::from(read).read_to_end(&mut bytes).expect("bytes");
        bytes
    }

    #[test]
    fn what_is_asked_for_again_is_kept_with_its_head() {
        let body: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        let copy = copy_of(&body);
        let mut wholes = Wholes::default();
        for head in ["one\r\n\r\n", "another\r\n\r\n"] {
            for asked in 1..WORTH {
                assert!(wholes.answer(&copy, head.as_bytes(), 1).is_none(), "{asked}");
            }
            for _ in 0..2 {
                let pipe = wholes.answer(&copy, head.as_bytes(), 1).expect("a pipe");
                assert!(bytes(&pipe) == [head.as_bytes(), &body].concat());
            }
        }
        wholes.tidy(1 + UNUSED);
        assert!(wholes.0.is_empty());
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let mut wholes = Wholes::default();
        // A full pipe, two of them, and a head that takes two places.
        let cases =
            [(512 * 1024, "head".to_owned()), (600_000, "head".to_owned()), (1, "x".repeat(HEAD_BYTES + 1))];
        for (size, head) in cases {
            let copy = copy_of(&vec![1; size]);
            for _ in 0..2 * WORTH {
                assert!(wholes.answer(&copy, head.as_bytes(), 1).is_none(), "{size}");
            }
        }
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let mut wholes = Wholes::default();
        let copies: Vec<_> = (0..=ANSWERS).map(|_| copy_of(b"body")).collect();
        for copy in &copies {
            wholes.answer(copy, b"head", 1);
        }
        assert_eq!(wholes.0.len(), ANSWERS);
    }
}
