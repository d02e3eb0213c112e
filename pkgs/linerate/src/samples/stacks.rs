//! Counts stacks and waits, with limits on memory no matter how many different stacks there are.

use std::collections::{BTreeMap, HashMap};

use console::flame::Unit;

use super::record::{Event, Stack, What};
use super::symbols::Symbols;

/// The most different stacks, and the most addresses in all of them together (32 MiB).
const MOST_STACKS: usize = 1 << 16;
const MOST_ADDRESSES: usize = 1 << 22;

/// The most waiting threads.
const MOST_WAITING: usize = 1 << 14;

/// The most bytes in all folded lines.
const MOST_FOLDED: usize = 4 << 20;

/// The name for everything that exceeds the limits.
const OTHERS: &str = "(others)";

/// Stacks and their weights.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    weights: HashMap<(u32, Box<[u64]>), u64>,
    addresses: usize,
    others: u64,
    seen: u64,
}

impl Stacks {
    /// Counts a stack.
    pub(super) fn add(&mut self, stack: Stack, weight: u64) {
        self.seen += 1;
        let key = (stack.pid, stack.addresses);
        if let Some(known) = self.weights.get_mut(&key) {
            *known = known.saturating_add(weight);
        } else if self.weights.len() < MOST_STACKS && self.addresses + key.1.len() <= MOST_ADDRESSES {
            self.addresses += key.1.len();
            self.weights.insert(key, weight);
        } else {
            self.others = self.others.saturating_add(weight);
        }
    }

    /// How many were counted.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// All stacks with function names, folded. If they exceed the limit, the heaviest are kept.
    pub(super) fn fold(&self, symbols: &mut Symbols, unit: Unit) -> String {
        let mut folded: BTreeMap<String, u64> = BTreeMap::new();
        let mut others = self.others;
        let mut heaviest: Vec<_> = self.weights.iter().collect();
        heaviest.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        let mut bytes = 0;
        for ((pid, addresses), &weight) in heaviest {
            let mut stack = symbols.stack(*pid, addresses);
            if unit == Unit::Micros {
                stack.truncate(without_scheduler(&stack).len());
            }
            let kept = folded.contains_key(&stack);
            if !kept && bytes + stack.len() > MOST_FOLDED {
                others = others.saturating_add(weight);
                continue;
            }
            bytes += if kept { 0 } else { stack.len() };
            let known = folded.entry(stack).or_default();
            *known = known.saturating_add(weight);
        }
        if others > 0 {
            folded.insert(OTHERS.to_owned(), others);
        }
        let scaled = |weight: u64| match unit {
            Unit::Samples => weight,
            // The weights are in nanoseconds.
            Unit::Micros => weight / 1000,
        };
        let lines = folded.into_iter().map(|(stack, weight)| (stack, scaled(weight)));
        lines.filter(|(_, weight)| *weight > 0).map(|(stack, weight)| format!("{stack} {weight}\n")).collect()
    }
}

/// A stack without the scheduler's functions at its end. Every waiting thread has these, so they don't show why it
/// waits.
fn without_scheduler(stack: &str) -> &str {
    let mut rest = stack;
    while let Some((outer, name)) = rest.rsplit_once(';')
        && name.ends_with("_[k]")
        && ["schedule", "__schedule", "io_schedule", "preempt_schedule"]
            .iter()
            .any(|begin| name.starts_with(begin))
    {
        rest = outer;
    }
    rest
}

/// Threads that have left their CPU, with the stack at that time.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By thread: the time when it left its CPU, and its stack.
    waiting: HashMap<u32, (u64, Stack)>,
}

impl Waits {
    /// Handles events, which must be in order. When a wait is over, returns its stack and duration in nanoseconds.
    pub(super) fn note(&mut self, event: Event) -> Option<(Stack, u64)> {
        let at = event.at;
        match event.what {
            // The sample is taken when the thread leaves its CPU.
            What::Sample(stack) => {
                if self.waiting.len() < MOST_WAITING {
                    self.waiting.insert(stack.tid, (at, stack));
                }
                None
            }
            // A preempted thread waits only for a CPU, which doesn't count.
            What::Left { tid, preempted: true } => {
                self.waiting.remove(&tid);
                None
            }
            What::Left { .. } => None,
            What::Came { tid } => {
                let (since, stack) = self.waiting.remove(&tid)?;
                Some((stack, at.saturating_sub(since)))
            }
            // The lost records may have contained returns of waiting threads.
            What::Lost(_) => {
                self.waiting.clear();
                None
            }
        }
    }

    /// Threads that are still waiting, and for how long.
    pub(super) fn left(self, now: u64) -> impl Iterator<Item = (Stack, u64)> {
        self.waiting.into_values().map(move |(since, stack)| (stack, now.saturating_sub(since)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(tid: u32, address: u64) -> Stack {
        Stack { pid: 1, tid, addresses: [address].into() }
    }

    #[test]
    fn waiting_is_from_leaving_a_cpu_to_coming_back() {
        let mut waits = Waits::default();
        let mut note = |at, what| waits.note(Event { at, what });
        assert_eq!(note(10, What::Sample(stack(7, 1))), None);
        assert_eq!(note(10, What::Left { tid: 7, preempted: false }), None);
        assert_eq!(note(12, What::Came { tid: 8 }), None, "nobody saw it leave");
        assert_eq!(note(40, What::Came { tid: 7 }), Some((stack(7, 1), 30)));
        assert_eq!(note(50, What::Came { tid: 7 }), None, "once");
        note(60, What::Sample(stack(7, 2)));
        note(60, What::Left { tid: 7, preempted: true });
        assert_eq!(note(90, What::Came { tid: 7 }), None, "it waited for a CPU alone");
        note(100, What::Sample(stack(7, 3)));
        note(101, What::Lost(5));
        assert_eq!(note(110, What::Came { tid: 7 }), None, "it may have come and gone meanwhile");
        note(120, What::Sample(stack(9, 4)));
        assert_eq!(waits.left(150).collect::<Vec<_>>(), [(stack(9, 4), 30)]);
    }

    #[test]
    fn the_scheduler_is_left_out_of_what_waits() {
        for (stack, expected) in [
            ("a;main;ep_poll_[k];schedule_hrtimeout_range_[k];schedule_[k]", "a;main;ep_poll_[k]"),
            ("a;schedule;schedule_[k]", "a;schedule"),
            ("schedule_[k]", "schedule_[k]"),
        ] {
            assert_eq!(without_scheduler(stack), expected, "{stack}");
        }
    }

    #[test]
    fn stacks_beyond_the_bound_are_counted_together() {
        let mut stacks = Stacks::default();
        for number in 0..MOST_STACKS as u64 + 5 {
            stacks.add(stack(1, number), 1);
        }
        stacks.add(stack(1, 3), 7);
        assert_eq!((stacks.weights.len(), stacks.others), (MOST_STACKS, 5));
        assert_eq!(stacks.weights[&(1, Box::from([3]))], 8);
        assert_eq!(stacks.seen(), MOST_STACKS as u64 + 6);
        let mut stacks = Stacks::default();
        for number in 0..MOST_ADDRESSES as u64 / 100 + 9 {
            stacks.add(Stack { pid: 1, tid: 1, addresses: [number; 100].into() }, 1);
        }
        assert!(stacks.addresses <= MOST_ADDRESSES && stacks.others > 0);
    }
}
