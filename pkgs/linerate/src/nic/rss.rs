//! The table that a card uses to distribute packets to its receive queues (RSS,
//! `Documentation/networking/scaling.rst`).

use std::io;

use serde::Serialize;

use super::Error;
use super::device::Device;
use crate::system::System;

/// An interface's table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rss {
    /// The queue of each entry.
    pub now: Vec<u32>,
    /// The queue that each entry should have.
    pub wanted: Vec<u32>,
}

impl Rss {
    /// Reads the table; none if the card has one queue, or the driver doesn't report a table.
    pub fn read(system: &dyn System, device: &Device) -> Result<Option<Self>, Error> {
        let queues = device.queues.iter().filter(|queue| queue.receives).count();
        if queues < 2 {
            return Ok(None);
        }
        // A card may have queues that its table can't name: ixgbe has one per CPU, and on the 82599 and the X540 the
        // table names 16 at most.
        let rings = system.rss_rings(&device.interface).map_or(queues, |rings| rings.max(1) as usize);
        let queues = queues.min(rings);
        match system.indirection(&device.interface) {
            Ok(now) => Ok(Some(Self::new(now, queues))),
            // Some drivers return EINVAL if the device has no such table.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) =>
            {
                Ok(None)
            }
            Err(source) => {
                Err(Error::Read { path: format!("the RSS table of {}", device.interface), source })
            }
        }
    }

    /// The wanted table for this number of queues that it may name. An even table stays unchanged, whatever its order.
    fn new(now: Vec<u32>, queues: usize) -> Self {
        let mut counts = vec![0_usize; queues];
        let known =
            now.iter().all(|&queue| counts.get_mut(queue as usize).map(|count| *count += 1).is_some());
        let (least, most) = (counts.iter().min().unwrap_or(&0), counts.iter().max().unwrap_or(&0));
        let even = known && most - least <= 1;
        let wanted =
            if even { now.clone() } else { (0..now.len()).map(|entry| (entry % queues) as u32).collect() };
        Self { now, wanted }
    }

    /// Sets the default table, which is even. False if the driver refuses it: in older kernels, ixgbe's default names
    /// more queues than its table may.
    pub fn reset(system: &dyn System, interface: &str) -> io::Result<bool> {
        match system.set_indirection(interface, &[]) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Restores a table. If it is the default, the kernel is told to use its default, which then follows the number of
    /// channels.
    pub fn restore(system: &dyn System, interface: &str, table: &[u32]) -> io::Result<()> {
        let queues = table.iter().max().map_or(1, |highest| highest + 1);
        let default = table.iter().zip(0..).all(|(&queue, entry)| queue == entry % queues);
        let rings = system.rss_rings(interface).unwrap_or(u32::MAX);
        let there = system.channels(interface).is_ok_and(|channels| channels.combined.min(rings) == queues);
        system.set_indirection(interface, if default && there { &[] } else { table })
    }

    /// Whether the table is as wanted: the numbers of entries of all queues differ by at most one.
    pub fn holds(&self) -> bool {
        self.now == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn an_even_table_stays_whatever_its_order() {
        assert!(Rss::new(vec![3, 2, 1, 0, 0, 1, 2, 3], 4).holds());
        assert!(Rss::new(vec![1, 0, 1], 2).holds());
        assert_eq!(Rss::new(vec![0; 6], 4).wanted, [0, 1, 2, 3, 0, 1]);
        // Entries of queues that no longer exist.
        assert_eq!(Rss::new(vec![0, 1, 2, 3], 2).wanted, [0, 1, 0, 1]);
    }

    proptest! {
        #[test]
        fn a_table_is_even_within_one_and_stays_so(now in vec(0..9_u32, 1..300), queues in 2..64_usize) {
            let wanted = Rss::new(now, queues).wanted;
            let count = |queue: u32| wanted.iter().filter(|&&entry| entry == queue).count();
            let counts: Vec<usize> = (0..queues as u32).map(count).collect();
            prop_assert_eq!(counts.iter().sum::<usize>(), wanted.len());
            prop_assert!(counts.iter().max().unwrap_or(&0) - counts.iter().min().unwrap_or(&0) <= 1);
            prop_assert!(Rss::new(wanted, queues).holds());
        }
    }
}
