//! Threads that leave the CPU to workers.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread that takes no CPU from one that is running: it begins when a CPU is idle, or when the scheduler
/// would switch anyway (`SCHED_BATCH`, sched(7)).
///
/// A thread with the usual policy interrupts the worker that wakes it. So a worker with several jobs to give away was
/// interrupted by each, and switching took a fifth of the CPU.
///
/// # Errors
/// When the system can't start any more.
pub fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(|| {
        // Where the kernel forbids it, such as by seccomp(2), the thread has the usual policy.
        let _ = set_batch();
        work();
    })
}

fn set_batch() -> io::Result<()> {
    // The kernel's `sched_param`. The call itself, since musl's function always fails (POSIX means processes by it).
    let priority: libc::c_int = 0;
    // SAFETY: the kernel only reads the priority. 0 is the calling thread.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_thread_has_the_batch_policy_and_its_starter_does_not() {
        // SAFETY: this only asks.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let own = policy();
        let (give, take) = std::sync::mpsc::channel();
        let thread = spawn("background".to_owned(), move || give.send(policy()).expect("it is waited for"));
        thread.expect("a thread").join().expect("no panic");
        assert_eq!((take.recv(), policy()), (Ok(libc::SCHED_BATCH), own));
    }
}
