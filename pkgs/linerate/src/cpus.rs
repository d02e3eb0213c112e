//! Sets of CPUs in the two formats that the kernel writes.
//!
//! Both are described in `Documentation/core-api/printk-formats.rst` as `%*pbl` (a list, `0-3,8`) and `%*pb` (a
//! mask of comma-separated groups of 32 bits, `00000001,000000ff`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// One more than the highest CPU number a kernel can have (`NR_CPUS`, `arch/x86/Kconfig`).
pub const MAX: usize = 8192;

/// A set of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<usize>);

/// Why a text doesn't name a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It is not a list.
    #[error("{0:?} is not a list of CPUs such as 0-3,8")]
    List(String),
    /// It is not a mask.
    #[error("{0:?} is not a mask of CPUs such as 0000000f")]
    Mask(String),
    /// A CPU number that no kernel can have.
    #[error("there is no CPU {0}: the highest is {highest}", highest = MAX - 1)]
    TooHigh(usize),
    /// A CPU that is named twice where the order matters.
    #[error("CPU {0} is named twice")]
    Twice(usize),
}

impl Cpus {
    /// Parses a mask; surrounding white space is ignored.
    pub fn from_mask(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Mask(text.trim().to_owned());
        let groups: Vec<&str> = text.trim().split(',').collect();
        let mut cpus = BTreeSet::new();
        for (index, group) in groups.iter().rev().enumerate() {
            if group.is_empty() || group.len() > 8 {
                return Err(wrong());
            }
            let bits = u32::from_str_radix(group, 16).map_err(|_| wrong())?;
            for bit in (0..32).filter(|bit| bits >> bit & 1 == 1) {
                let cpu = index * 32 + bit;
                if cpu >= MAX {
                    return Err(ParseError::TooHigh(cpu));
                }
                cpus.insert(cpu);
            }
        }
        Ok(Self(cpus))
    }

    /// The shortest mask that the kernel accepts, without leading zeros.
    pub fn mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last / 32 + 1);
        let mut bits = vec![0_u32; groups];
        for cpu in &self.0 {
            bits[cpu / 32] |= 1 << (cpu % 32);
        }
        let mut text = format!("{:x}", bits[groups - 1]);
        for group in bits[..groups - 1].iter().rev() {
            text.push_str(&format!(",{group:08x}"));
        }
        text
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many CPUs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: usize) {
        self.0.insert(cpu);
    }

    /// Whether all CPUs of this set are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// The CPUs that are not in `other`.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// The CPUs that are also in `other`.
    pub fn within(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// All CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<usize> for Cpus {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

/// Parses a list; surrounding white space is ignored, and an empty list is an empty set.
impl FromStr for Cpus {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Ok(ordered(text, |_| Ok(()))?.into_iter().collect())
    }
}

/// The CPUs of a list in the order in which they are written: `4,0-2` is 4, 0, 1, 2. A CPU that is named twice is an
/// error.
pub fn in_order(text: &str) -> Result<Vec<usize>, ParseError> {
    let mut seen = BTreeSet::new();
    ordered(text, |cpu| if seen.insert(cpu) { Ok(()) } else { Err(ParseError::Twice(cpu)) })
}

fn ordered(
    text: &str,
    mut check: impl FnMut(usize) -> Result<(), ParseError>,
) -> Result<Vec<usize>, ParseError> {
    let wrong = || ParseError::List(text.trim().to_owned());
    let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|_| !text.trim().is_empty()) {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last >= MAX {
            return Err(ParseError::TooHigh(last));
        }
        if first > last {
            return Err(wrong());
        }
        for cpu in first..=last {
            check(cpu)?;
            cpus.push(cpu);
        }
    }
    Ok(cpus)
}

/// Writes a list.
impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for Cpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn a_list_and_a_mask_name_the_same_cpus() {
        let cases = [
            ("", "0", &[][..]),
            ("0", "1", &[0]),
            ("0-3,8", "10f", &[0, 1, 2, 3, 8]),
            ("31-32", "1,80000000", &[31, 32]),
            ("0,64", "1,00000000,00000001", &[0, 64]),
        ];
        for (list, mask, cpus) in cases {
            let expected: Cpus = cpus.iter().copied().collect();
            assert_eq!(list.parse(), Ok(expected.clone()), "{list}");
            assert_eq!(Cpus::from_mask(mask), Ok(expected.clone()), "{mask}");
            assert_eq!((expected.to_string().as_str(), expected.mask().as_str()), (list, mask));
        }
    }

    #[test]
    fn the_kernels_own_spelling_is_understood() {
        assert_eq!(Cpus::from_mask("00000000,0000ffff\n"), "0-15".parse());
        assert_eq!("0-15\n".parse::<Cpus>(), Ok((0..16).collect()));
    }

    #[test]
    fn what_is_no_set_of_cpus_is_refused() {
        for text in ["x", "1-", "-1", "3-1", "1,,2", "0x3"] {
            assert_eq!(text.parse::<Cpus>(), Err(ParseError::List(text.to_owned())));
        }
        assert_eq!("0-4294967295".parse::<Cpus>(), Err(ParseError::TooHigh(4_294_967_295)));
        for text in ["", "xyz", "123456789", "1,"] {
            assert_eq!(Cpus::from_mask(text), Err(ParseError::Mask(text.to_owned())));
        }
        assert_eq!(in_order("1,0-1"), Err(ParseError::Twice(1)));
    }

    #[test]
    fn order_is_kept_where_it_counts() {
        assert_eq!(in_order("4,0-2"), Ok(vec![4, 0, 1, 2]));
    }

    proptest! {
        #[test]
        fn both_forms_can_be_read_back(cpus in btree_set(0..MAX, 0..64)) {
            let cpus = Cpus(cpus);
            prop_assert_eq!(cpus.to_string().parse(), Ok(cpus.clone()));
            prop_assert_eq!(Cpus::from_mask(&cpus.mask()), Ok(cpus));
        }
    }
}
