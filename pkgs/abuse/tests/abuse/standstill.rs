//! Makes one thread of a program hang, as a lock that is never free or a disk that never answers would, while all its
//! other threads continue. Can also make the call in which the thread waits fail. Only a debugger's interface,
//! ptrace(2), can do that.

use std::io;
use std::marker::PhantomData;
use std::ptr;

/// More registers of 8 bytes than any machine has.
const REGISTERS: usize = 128;

/// The register with the result of a system call.
const RESULT: usize = if cfg!(target_arch = "x86_64") { 10 } else { 0 };

/// A thread of a child process, stopped until this is dropped. It has to be dropped on the thread that made it, since
/// the kernel knows that thread as the debugger.
#[derive(Debug)]
pub struct Standstill {
    thread: libc::pid_t,
    here: PhantomData<*const ()>,
}

impl Standstill {
    /// Stops the thread with this id and waits until it is stopped.
    ///
    /// # Errors
    /// When there is no such thread, or we may not stop it.
    pub fn of(thread: libc::pid_t) -> io::Result<Self> {
        ask(libc::PTRACE_SEIZE, thread, 0, ptr::null_mut())?;
        // From here on, dropping this lets the thread continue.
        let this = Self { thread, here: PhantomData };
        ask(libc::PTRACE_INTERRUPT, thread, 0, ptr::null_mut())?;
        let mut status = 0;
        // SAFETY: `status` is there to be written to.
        let stopped = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
        match stopped {
            -1 => Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => Ok(this),
            _ => Err(io::Error::other("it has ended")),
        }
    }

    /// Lets it continue, and makes the interrupted system call in which it waited fail. Returns false if it waits in no
    /// call that reports the interruption, as epoll_wait(2) does.
    ///
    /// # Errors
    /// When its registers can't be read or written.
    pub fn fail_wait(self, errno: i32) -> io::Result<bool> {
        let mut registers = [0_u64; REGISTERS];
        let mut area =
            libc::iovec { iov_base: registers.as_mut_ptr().cast(), iov_len: size_of_val(&registers) };
        ask(libc::PTRACE_GETREGSET, self.thread, libc::NT_PRSTATUS as usize, (&raw mut area).cast())?;
        if registers[RESULT] != failure(libc::EINTR) {
            return Ok(false);
        }
        registers[RESULT] = failure(errno);
        // Writes back as many bytes as were read.
        area.iov_base = registers.as_mut_ptr().cast();
        ask(libc::PTRACE_SETREGSET, self.thread, libc::NT_PRSTATUS as usize, (&raw mut area).cast())?;
        Ok(true)
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        // The thread may be gone.
        let _ = ask(libc::PTRACE_DETACH, self.thread, 0, ptr::null_mut());
    }
}

/// The kernel's representation of a failed call.
fn failure(errno: i32) -> u64 {
    i64::from(-errno).cast_unsigned()
}

fn ask(what: libc::c_uint, thread: libc::pid_t, which: usize, area: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: of what is asked here, only PTRACE_GETREGSET writes to this process, through the iovec that `area` then
    // points to, whose buffer is live and as long as it says; the others read it, or `area` is null.
    match unsafe { libc::ptrace(what, thread, which, area) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
