//! The meaning of errors of accept(2).

use std::io;

use rustix::io::Errno;

/// Whether accept failed because of that one connection, so that the next can be accepted at once. Linux reports errors
/// that the new socket already has, and a firewall's refusal (accept(2)). All other errors concern the process or the
/// machine, such as a lack of file descriptors, and will last longer.
#[must_use]
pub fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::INTR
                | Errno::PERM
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NONET
                | Errno::TIMEDOUT
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_connection_are_told_from_those_of_all() {
        for (error, about_one) in [
            (Errno::CONNABORTED, true),
            (Errno::CONNRESET, true),
            (Errno::INTR, true),
            (Errno::PERM, true),
            (Errno::PROTO, true),
            (Errno::NOPROTOOPT, true),
            (Errno::NETDOWN, true),
            (Errno::NETUNREACH, true),
            (Errno::HOSTDOWN, true),
            (Errno::HOSTUNREACH, true),
            (Errno::NONET, true),
            (Errno::TIMEDOUT, true),
            (Errno::AGAIN, false),
            (Errno::MFILE, false),
            (Errno::NFILE, false),
            (Errno::NOBUFS, false),
            (Errno::NOMEM, false),
            // The next accept would fail in the same way at once.
            (Errno::BADF, false),
            (Errno::INVAL, false),
            (Errno::NOTSOCK, false),
            (Errno::OPNOTSUPP, false),
        ] {
            assert_eq!(is_about_one_connection(&error.into()), about_one, "{error:?}");
        }
        assert!(!is_about_one_connection(&io::Error::other("no error of the kernel")));
    }
}
