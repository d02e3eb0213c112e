//! Flame graphs: call stacks folded into a tree, laid out, and drawn.
//!
//! Folded stacks are lines of `outermost;…;innermost WEIGHT`, the common format of flame graph tools. The console draws
//! them itself, since its content security policy allows no inline scripts. Its pictures have no scripts, and zooming
//! works with links.

mod layout;
pub(crate) mod profiles;
mod svg;
mod tree;

pub use layout::{Block, HEIGHT, WIDTH, blocks, colour, height, label};
pub use svg::{MOST_BLOCKS, svg};
pub use tree::{Change, Hot, Node, ParseError, Tree, changes};

/// The longest recording, in seconds.
pub const MOST_SECONDS: u64 = 60;

/// The unit of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Samples on a CPU.
    Samples,
    /// Microseconds of waiting.
    Micros,
}

impl Unit {
    /// A weight as it is displayed.
    pub fn show(self, weight: u64) -> String {
        match self {
            Self::Samples => format!("{weight} {}", if weight == 1 { "sample" } else { "samples" }),
            Self::Micros => format!("{:.1} ms", weight as f64 / 1000.0),
        }
    }
}

/// The share of one weight in another, in percent.
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
