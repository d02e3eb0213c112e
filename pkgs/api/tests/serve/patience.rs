//! How long a service waits whose tests share a database, and a machine that may be slow.

/// Nobody is refused because the machine is slow.
pub const PATIENT: [&str; 4] = ["--acquire-timeout", "60000", "--database-timeout", "60000"];
