//! Waits until queues may have to be placed again, because a link came back, or channels or rings changed.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use crate::system::System;
use crate::system::netlink::UNKNOWN;

/// How long no change must have arrived before queues are placed again. A flapping link settles within that time.
pub const SETTLE: Duration = Duration::from_millis(500);

/// How often that wait may start again. Queues are placed after at most 5 s even if changes keep arriving.
const RESTLESS: usize = 10;

/// How long to wait for a notification before all interfaces are checked anyway. Interrupts can be moved without a
/// notification.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until interfaces have to be checked, and returns them: those that changed, once no more changes arrive, or all
/// of them after [`PATIENCE`].
pub fn settled(system: &dyn System, watched: &[String]) -> io::Result<Vec<String>> {
    let mut changed: BTreeSet<String> = system.changes(PATIENCE)?;
    if changed.is_empty() {
        return Ok(watched.to_vec());
    }
    for _ in 0..RESTLESS {
        let more = system.changes(SETTLE)?;
        if more.is_empty() {
            break;
        }
        changed.extend(more);
    }
    let concerned = |name: &&String| changed.contains(*name) || changed.contains(UNKNOWN);
    Ok(watched.iter().filter(concerned).cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Recorded;

    #[test]
    fn changes_are_gathered_until_it_is_quiet() {
        let watched = ["eth0".to_owned(), "eth1".to_owned()];
        let cases: [(&[&[&str]], &[&str]); 5] = [
            (&[&["eth0"], &["eth0", "lo"], &[]], &["eth0"]),
            (&[&["lo"], &[]], &[]),
            (&[&["lo"], &["eth1"], &[]], &["eth1"]),
            // Notifications were lost: anything may have changed.
            (&[&[""], &[]], &["eth0", "eth1"]),
            // No notification arrived for a long time.
            (&[&[]], &["eth0", "eth1"]),
        ];
        for (script, expected) in cases {
            let machine = Recorded::default();
            machine.tell(script);
            assert_eq!(settled(&machine, &watched).expect("settled"), expected, "{script:?}");
        }
    }

    #[test]
    fn a_link_that_never_rests_is_looked_at_all_the_same() {
        let machine = Recorded::default();
        machine.tell(&[&["eth0"] as &[&str]; 1 + RESTLESS]);
        assert_eq!(settled(&machine, &["eth0".to_owned()]).expect("settled"), ["eth0"]);
        assert!(settled(&machine, &[]).is_err(), "the script is at its end");
    }
}
