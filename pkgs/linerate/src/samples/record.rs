//! The parts that are used here of the records that the kernel writes to a ring (perf_event_open(2), "MMAP layout").

/// Records of samples, of losses, and of threads that are switched in and out (`PERF_RECORD_*`).
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const SWITCH: u32 = 14;
const SWITCH_CPU_WIDE: u32 = 15;

/// `PERF_RECORD_MISC_SWITCH_OUT`, and `_PREEMPT`: the thread was still runnable.
const OUT: u16 = 1 << 13;
const PREEMPTED: u16 = 1 << 14;

/// The most addresses that are kept of a stack; `kernel.perf_event_max_stack` can be set to more.
const MOST_ADDRESSES: usize = 512;

/// A recorded stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stack {
    /// Its process.
    pub(super) pid: u32,
    /// Its thread.
    pub(super) tid: u32,
    /// The addresses, innermost first, with marks for the kernel's (`PERF_CONTEXT_*`).
    pub(super) addresses: Box<[u64]>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A stack was sampled.
    Sample(Stack),
    /// A thread left its CPU.
    Left {
        /// The thread.
        tid: u32,
        /// Whether it was preempted while still runnable.
        preempted: bool,
    },
    /// A thread was put on a CPU.
    Came {
        /// The thread.
        tid: u32,
    },
    /// This many records were lost.
    Lost(u64),
}

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// In nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) at: u64,
    /// The event itself.
    pub(super) what: What,
}

impl Event {
    /// The stack, if it is a sample.
    pub(super) fn sample(self) -> Option<Stack> {
        match self.what {
            What::Sample(stack) => Some(stack),
            _ => None,
        }
    }

    /// Reads a record. Samples must have `TID`, `TIME` and `CALLCHAIN`, and all records `sample_id_all`. Returns none
    /// for other kinds of record.
    pub(super) fn read(kind: u32, misc: u16, data: &[u8]) -> Option<Self> {
        let mut fields = Fields(data);
        match kind {
            SAMPLE => {
                let (pid, tid, at, count) = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
                let count = usize::try_from(count).ok()?.min(MOST_ADDRESSES);
                let addresses = (0..count).map_while(|_| fields.u64()).collect();
                Some(Self { at, what: What::Sample(Stack { pid, tid, addresses }) })
            }
            LOST => {
                let (_id, lost) = (fields.u64()?, fields.u64()?);
                Some(Self { at: 0, what: What::Lost(lost) })
            }
            SWITCH | SWITCH_CPU_WIDE => {
                if kind == SWITCH_CPU_WIDE {
                    // Skip the other thread of the switch.
                    fields.u64()?;
                }
                let (_pid, tid, at) = (fields.u32()?, fields.u32()?, fields.u64()?);
                let what = match misc & OUT {
                    0 => What::Came { tid },
                    _ => What::Left { tid, preempted: misc & PREEMPTED != 0 },
                };
                Some(Self { at, what })
            }
            _ => None,
        }
    }
}

/// Reads numbers in the machine's byte order, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*number))
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        // A pid and a tid are the halves of one number.
        let who = u64::from_ne_bytes([7, 0, 0, 0, 9, 0, 0, 0]);
        let stack = Stack { pid: 7, tid: 9, addresses: [1, 2].into() };
        for (kind, misc, numbers, expected) in [
            (SAMPLE, 0, &[who, 5, 2, 1, 2][..], Some((5, What::Sample(stack.clone())))),
            // A record that claims to be longer than it is ends with its data.
            (SAMPLE, 0, &[who, 5, u64::MAX, 1, 2], Some((5, What::Sample(stack)))),
            (SAMPLE, 0, &[who, 5], None),
            (LOST, 0, &[1, 3], Some((0, What::Lost(3)))),
            (SWITCH, 0, &[who, 5], Some((5, What::Came { tid: 9 }))),
            (SWITCH, OUT, &[who, 5], Some((5, What::Left { tid: 9, preempted: false }))),
            (
                SWITCH_CPU_WIDE,
                OUT | PREEMPTED,
                &[0, who, 5],
                Some((5, What::Left { tid: 9, preempted: true })),
            ),
            (SWITCH_CPU_WIDE, 0, &[0], None),
            (77, 0, &[who, 5, 2, 1, 2], None),
        ] {
            let read = Event::read(kind, misc, &data(numbers));
            assert_eq!(read, expected.map(|(at, what)| Event { at, what }), "{kind} {numbers:?}");
        }
    }
}
