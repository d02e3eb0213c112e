//! Flow control for answers that h2 does not know of.
//!
//! h2 knows only the part of the connection's window that it is told. Of each WINDOW_UPDATE, a part is kept for
//! answers from here, and h2 is told the rest, so both together never exceed the window. If h2 has no window left, it
//! gets what was kept, since a client may extend the window only after it received all that the window allowed.

use super::super::frame::MOST;

/// The largest window (RFC 9113, section 6.9.1).
const LARGEST: u64 = (1 << 31) - 1;

/// The default window (RFC 9113, section 6.9.2).
const DEFAULT: u32 = 65_535;

/// One in this many bytes of the window is kept for answers from here. Clients extend the window once half of it is
/// used (nghttp2, browsers), so it does not run out if all answers are from here, and h2 has as much for its own.
const SHARE: u64 = 2;

/// The result of a WINDOW_UPDATE.
#[derive(Debug, PartialEq, Eq)]
pub enum Increment {
    /// h2 is told this much; nothing if 0.
    Told(u32),
    /// The window would exceed the maximum.
    TooLarge,
}

/// The send windows of a connection.
#[derive(Debug)]
pub struct Windows {
    /// The connection's window.
    all: u64,
    /// How much of that is kept from h2.
    credit: u32,
    /// The smallest stream window that the client has ever set, since it may still count by an earlier one.
    stream: u32,
}

impl Default for Windows {
    fn default() -> Self {
        Self { all: DEFAULT.into(), credit: 0, stream: DEFAULT }
    }
}

impl Windows {
    /// The client sets the window of streams.
    pub fn say(&mut self, stream: u32) {
        self.stream = self.stream.min(stream);
    }

    /// The client extends the connection's window.
    pub fn grow(&mut self, increment: u32) -> Increment {
        let all = self.all + u64::from(increment);
        if all > LARGEST {
            // If nothing is kept, h2 knows as much as this layer.
            return if self.credit == 0 { Increment::Told(increment) } else { Increment::TooLarge };
        }
        self.all = all;
        let most = u32::try_from(all / SHARE).unwrap_or(u32::MAX);
        let kept = most.saturating_sub(self.credit).min(increment);
        self.credit += kept;
        Increment::Told(increment - kept)
    }

    /// h2 sends this many bytes.
    pub fn passed(&mut self, bytes: usize) {
        self.all = self.all.saturating_sub(bytes as u64);
    }

    /// Whether h2 has no window left except what is kept from it.
    #[inline]
    pub fn is_owed(&self) -> bool {
        self.credit > 0 && self.all <= self.credit.into()
    }

    /// In that case returns the kept window to h2, and its size.
    pub fn give_back(&mut self) -> Option<u32> {
        self.is_owed().then(|| std::mem::take(&mut self.credit))
    }

    /// How long an answer from here may be.
    pub fn room(&self) -> usize {
        (self.credit.min(self.stream) as usize).min(MOST)
    }

    /// An answer from here uses this much of its [room](Self::room).
    pub fn take(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_sub(bytes as u32);
        self.all = self.all.saturating_sub(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_a_part_of_what_there_is() {
        for (increment, told, room) in [
            (0, 0, 0),
            // A small increment is kept completely, since less than half of the window is kept so far.
            (1000, 0, 1000),
            (15_633, 0, 16_384),
            (1 << 20, (1 << 20) - (565_372 - 16_633), 16_384),
            (1 << 30, (1 << 30) - (536_911_996 - 16_633), 16_384),
        ] {
            let mut windows = Windows::default();
            if increment >= 15_633 {
                windows.grow(1000);
            }
            if increment > 15_633 {
                windows.grow(15_633);
            }
            assert_eq!(windows.grow(increment), Increment::Told(told), "{increment}");
            assert_eq!(windows.room(), room, "{increment}");
        }
    }

    #[test]
    fn both_together_send_no_more_than_there_is() {
        // h2's share less what it sent, plus the credit, is the whole window.
        let mut windows = Windows::default();
        let (mut h2, mut state) = (u64::from(DEFAULT), 1_u32);
        for _ in 0..10_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = (state >> 8) % 40_000;
            match (state >> 29) % 5 {
                0 => {
                    let sent = h2.min(bytes.into());
                    h2 -= sent;
                    windows.passed(sent as usize);
                }
                1 => windows.take(windows.room().min(bytes as usize)),
                2 => h2 += windows.give_back().map_or(0, u64::from),
                _ => {
                    let Increment::Told(told) = windows.grow(bytes) else { panic!("it is not too large") };
                    h2 += u64::from(told);
                }
            }
            assert_eq!(h2 + u64::from(windows.credit), windows.all);
        }
    }

    #[test]
    fn a_client_whose_window_is_small_leaves_it_to_h2() {
        let mut windows = Windows::default();
        windows.passed(65_535);
        for _ in 0..100 {
            assert_eq!(windows.grow(4), Increment::Told(2));
            windows.passed(2);
            windows.take(2);
        }
    }

    #[test]
    fn what_is_kept_is_h2_s_once_it_has_nothing_left() {
        let mut windows = Windows::default();
        assert_eq!(windows.grow(4000), Increment::Told(0));
        windows.passed(65_534);
        assert_eq!(windows.give_back(), None);
        windows.passed(1);
        assert_eq!((windows.give_back(), windows.room(), windows.give_back()), (Some(4000), 0, None));
        windows.passed(4000);
        assert_eq!(windows.give_back(), None);
    }

    #[test]
    fn a_window_has_an_end() {
        let mut windows = Windows::default();
        assert_eq!(windows.grow(u32::MAX >> 1), Increment::Told(u32::MAX >> 1), "h2 sees that for itself");
        windows.grow(1);
        assert_eq!(
            windows.grow((u32::MAX >> 1) - 65_536),
            Increment::Told((u32::MAX >> 1) - 65_536 - ((1 << 30) - 2))
        );
        assert_eq!(windows.grow(1), Increment::TooLarge);
    }

    #[test]
    fn a_stream_takes_the_least_that_was_said() {
        let mut windows = Windows::default();
        windows.grow(1 << 20);
        assert_eq!(windows.room(), MOST);
        for (said, room) in [(1 << 20, MOST), (10, 10), (1 << 20, 10), (0, 0)] {
            windows.say(said);
            assert_eq!(windows.room(), room, "{said}");
        }
    }
}
