//! The kernel's view of its clock.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use super::Clock;

/// Asks adjtimex(2), which changes nothing if `modes` is 0.
pub fn read() -> io::Result<Clock> {
    let mut timex = MaybeUninit::<libc::timex>::zeroed();
    // SAFETY: a timex of zeros is valid with `modes` 0, and the pointer is to our own memory.
    let state = unsafe { libc::adjtimex(timex.as_mut_ptr()) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was all zeros, and the kernel has filled it in.
    let timex = unsafe { timex.assume_init() };
    let max_error = Duration::from_micros(timex.maxerror.try_into().unwrap_or(0));
    Ok(Clock { synchronised: timex.status & libc::STA_UNSYNC == 0, max_error })
}
