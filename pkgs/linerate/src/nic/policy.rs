//! Which CPUs may serve queues.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::cpus::{self, Cpus};

/// Which CPUs may serve queues, and the order in which they are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// All CPUs: one thread of each core before siblings, and the interface's NUMA node first.
    #[default]
    Spread,
    /// Only CPUs of the interface's NUMA node.
    Local,
    /// These CPUs, in this order.
    Pin(Vec<usize>),
    /// All CPUs except these, which are reserved for services.
    Reserve(Cpus),
}

/// Why a text isn't a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// There is no such policy.
    #[error("spread, local, pin=LIST or reserve=LIST is needed")]
    Unknown,
    /// Its list names no CPU.
    #[error("the list names no CPU")]
    Empty,
    /// Its list isn't valid.
    #[error(transparent)]
    List(#[from] cpus::ParseError),
}

impl FromStr for Policy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.split_once('=') {
            None if text == "spread" => Ok(Self::Spread),
            None if text == "local" => Ok(Self::Local),
            Some((_, "")) => Err(ParseError::Empty),
            Some(("pin", list)) => Ok(Self::Pin(cpus::in_order(list)?)),
            Some(("reserve", list)) => Ok(Self::Reserve(list.parse()?)),
            _ => Err(ParseError::Unknown),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spread => f.write_str("spread"),
            Self::Local => f.write_str("local"),
            Self::Pin(cpus) => {
                let cpus: Vec<String> = cpus.iter().map(usize::to_string).collect();
                write!(f, "pin={}", cpus.join(","))
            }
            Self::Reserve(cpus) => write!(f, "reserve={cpus}"),
        }
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_reads_back_as_it_is_written() {
        for text in ["spread", "local", "pin=4,0,1", "reserve=0-1,8"] {
            assert_eq!(text.parse::<Policy>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        use cpus::ParseError::{List, Twice};
        let cases = [
            ("", ParseError::Unknown),
            ("fair", ParseError::Unknown),
            ("local=0", ParseError::Unknown),
            ("pin", ParseError::Unknown),
            ("pin=", ParseError::Empty),
            ("pin=1,1", ParseError::List(Twice(1))),
            ("reserve=a", ParseError::List(List("a".to_owned()))),
        ];
        for (text, error) in cases {
            assert_eq!(text.parse::<Policy>(), Err(error), "{text}");
        }
    }
}
