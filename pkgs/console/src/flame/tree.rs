//! Stacks, merged by their common beginnings.

use std::collections::{BTreeMap, HashMap};

use service::access_log::misleads;

/// The most nodes of a tree. A stack that needs more is cut off there, and its weight counts for the last node.
const MOST_NODES: usize = 1 << 18;

/// The most nested calls.
const MOST_DEPTH: usize = 512;

/// The most characters of a name.
const MOST_NAME: usize = 256;

/// A function with one particular stack of callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The weight of the function and everything that it calls.
    pub total: u64,
    /// Its own weight.
    pub own: u64,
    /// `total` of the same node in the profile that this one is compared with.
    pub before: u64,
    children: BTreeMap<String, usize>,
}

/// Folded stacks as a tree. The first node is the root; its total is the weight of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Whether it is a comparison with another profile.
    compared: bool,
}

/// A function, summed up over all its callers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hot {
    /// Its name.
    pub name: String,
    /// Its own weight.
    pub own: u64,
    /// The weight of the function and everything that it calls; recursive calls count once.
    pub total: u64,
}

/// A function's own share in two profiles, in percent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// Its share in the older profile.
    pub before: f64,
    /// Its share in the newer profile.
    pub now: f64,
}

/// The functions whose own share grew or shrank most from one profile to another.
pub fn changes(before: &Tree, now: &Tree, most: usize) -> Vec<Change> {
    let mut all: HashMap<String, Change> = HashMap::new();
    for (tree, newer) in [(before, false), (now, true)] {
        for hot in tree.hottest(usize::MAX) {
            let share = super::percent(hot.own, tree.total());
            let change =
                all.entry(hot.name.clone()).or_insert(Change { name: hot.name, ..Change::default() });
            *(if newer { &mut change.now } else { &mut change.before }) = share;
        }
    }
    let mut changes: Vec<Change> = all.into_values().collect();
    let size = |change: &Change| (change.now - change.before).abs();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
    changes.truncate(most);
    changes
}

/// Why a text can't be read as folded stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is none of folded stacks, which are `outer;inner COUNT`")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node { name: "all".into(), ..Node::default() }], compared: false }
    }
}

impl Tree {
    /// Reads folded stacks.
    ///
    /// # Errors
    /// When a non-empty line has no weight.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut tree = Self::default();
        for (stack, weight) in folded(text)? {
            tree.add(stack, weight, 0);
        }
        Ok(tree)
    }

    /// The stacks of a profile, each with its weight in an earlier one. The earlier weights are scaled so that both
    /// have the same sum.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn compare(before: &str, now: &str) -> Result<Self, ParseError> {
        let mut tree = Self::parse(now)?;
        let stacks = folded(before)?;
        let sum = stacks.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(*weight));
        let all = tree.nodes[0].total;
        for (stack, weight) in stacks {
            let scaled = u128::from(weight) * u128::from(all) / u128::from(sum.max(1));
            tree.add(stack, 0, u64::try_from(scaled).unwrap_or(u64::MAX));
        }
        tree.compared = true;
        Ok(tree)
    }

    /// Whether it is a comparison with another profile.
    pub fn compared(&self) -> bool {
        self.compared
    }

    /// A node by its number; the same text always gives the same numbers.
    pub fn node(&self, number: usize) -> Option<&Node> {
        self.nodes.get(number)
    }

    /// The weight of everything.
    pub fn total(&self) -> u64 {
        self.nodes[0].total
    }

    /// The nodes that a node calls, sorted by name.
    pub fn children<'t>(&'t self, node: &'t Node) -> impl DoubleEndedIterator<Item = (usize, &'t Node)> {
        node.children.values().map(|&number| (number, &self.nodes[number]))
    }

    /// The functions with the greatest weight of their own.
    pub fn hottest(&self, most: usize) -> Vec<Hot> {
        let mut all: HashMap<&str, Hot> = HashMap::new();
        let mut above: HashMap<&str, usize> = HashMap::new();
        // Depth first without recursion: a node is finished after everything that it calls.
        let mut to_do = vec![(0, false)];
        while let Some((number, left)) = to_do.pop() {
            let node = &self.nodes[number];
            let depth = above.entry(&node.name).or_default();
            if left {
                *depth -= 1;
                continue;
            }
            *depth += 1;
            if number > 0 {
                let hot = all.entry(&node.name).or_default();
                hot.own = hot.own.saturating_add(node.own);
                if *depth == 1 {
                    hot.total = hot.total.saturating_add(node.total);
                }
            }
            to_do.push((number, true));
            to_do.extend(node.children.values().map(|&child| (child, false)));
        }
        let named = all.into_iter().map(|(name, hot)| Hot { name: name.to_owned(), ..hot });
        let mut hottest: Vec<Hot> = named.filter(|hot| hot.own > 0).collect();
        hottest.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
        hottest.truncate(most);
        hottest
    }

    fn add(&mut self, stack: &str, weight: u64, before: u64) {
        let mut at = 0;
        self.weigh(at, weight, before);
        for name in stack.split(';').filter(|name| !name.is_empty()).take(MOST_DEPTH) {
            let name = plain(name);
            at = match self.nodes[at].children.get(&name) {
                Some(&child) => child,
                None if self.nodes.len() == MOST_NODES => break,
                None => {
                    let child = self.nodes.len();
                    self.nodes.push(Node { name: name.clone(), ..Node::default() });
                    self.nodes[at].children.insert(name, child);
                    child
                }
            };
            self.weigh(at, weight, before);
        }
        self.nodes[at].own = self.nodes[at].own.saturating_add(weight);
    }

    fn weigh(&mut self, at: usize, weight: u64, before: u64) {
        let node = &mut self.nodes[at];
        node.total = node.total.saturating_add(weight);
        node.before = node.before.saturating_add(before);
    }
}

/// The stacks in a text and their weights.
fn folded(text: &str) -> Result<Vec<(&str, u64)>, ParseError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let stack = |(index, line): (usize, &'_ str)| -> Option<(usize, usize, u64)> {
        let (stack, weight) = line.trim_end().rsplit_once(' ')?;
        Some((index, stack.len(), weight.parse().ok()?))
    };
    lines
        .map(|(index, line)| {
            let (_, length, weight) = stack((index, line)).ok_or(ParseError { line: index + 1 })?;
            Ok((&line[..length], weight))
        })
        .collect()
}

/// Makes a name safe to show: no line breaks, nothing that misleads a reader, and a limited length. Processes can choose
/// their own names.
fn plain(name: &str) -> String {
    let odd = |c: char| c.is_control() || misleads(c) || matches!(c, '\u{fffe}' | '\u{ffff}');
    name.chars().take(MOST_NAME).map(|c| if odd(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_that_begin_alike_are_one_tree() {
        let tree = Tree::parse("a;b;c 3\na;b 2\na;d 1\n\ne 4\n").expect("folded");
        let of = |name: &str| {
            let node = tree.nodes.iter().find(|node| node.name == name).expect("a node");
            (node.total, node.own)
        };
        assert_eq!(
            ["all", "a", "b", "c", "d", "e"].map(of),
            [(10, 0), (6, 0), (5, 2), (3, 3), (1, 1), (4, 4)]
        );
    }

    #[test]
    fn functions_are_added_up_however_they_are_called_and_recursion_once() {
        let tree = Tree::parse("a;f;f;f 3\nb;f 2\nb 1").expect("folded");
        let hottest = tree.hottest(9);
        let shown: Vec<_> = hottest.iter().map(|hot| (hot.name.as_str(), hot.own, hot.total)).collect();
        assert_eq!(shown, [("f", 5, 5), ("b", 1, 3)]);
        assert_eq!(tree.hottest(1).len(), 1);
    }

    #[test]
    fn what_is_compared_is_scaled_to_the_same_sum() {
        let tree = Tree::compare("a 10\nb 30", "a 10\nb 10").expect("folded");
        let shown: Vec<_> =
            tree.nodes.iter().map(|node| (node.name.as_str(), node.total, node.before)).collect();
        assert_eq!(shown, [("all", 20, 20), ("a", 10, 5), ("b", 10, 15)]);
        // A function that has disappeared still has a node, with a weight of 0.
        let gone = Tree::compare("x 1", "a 1").expect("folded");
        assert_eq!(gone.nodes.iter().map(|node| node.total).collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn changes_are_of_shares_and_the_greatest_come_first() {
        let [before, now] =
            ["a 10\nb 10\nc 20", "a 1\nb 3\nd 0\nc 4"].map(|text| Tree::parse(text).expect("folded"));
        let shown: Vec<_> = changes(&before, &now, 2)
            .into_iter()
            .map(|change| format!("{} {} {}", change.name, change.before, change.now))
            .collect();
        assert_eq!(shown, ["a 25 12.5", "b 25 37.5"]);
    }

    #[test]
    fn what_is_no_folded_stack_is_refused_by_its_line() {
        for (text, line) in [("a;b", 1), ("a 1\nb x", 2), ("a 1\nb -1", 2), ("a 1.5", 1), (" ", 0), ("", 0)] {
            let expected = if line == 0 { Ok(()) } else { Err(ParseError { line }) };
            assert_eq!(Tree::parse(text).map(drop), expected, "{text:?}");
        }
    }

    #[test]
    fn hostile_stacks_are_bounded_in_depth_names_and_sum() {
        let deep = format!("{} {max}\nx {max}\n", "f;".repeat(100_000), max = u64::MAX);
        let tree = Tree::parse(&deep).expect("folded");
        assert_eq!((tree.nodes.len(), tree.total()), (1 + MOST_DEPTH + 1, u64::MAX));
        assert_eq!(tree.hottest(2).len(), 2);
        let tree = Tree::parse(&format!("{}\u{202e}\u{1b}[31m 1", "é".repeat(10))).expect("folded");
        assert_eq!(tree.nodes[1].name, format!("{}??[31m", "é".repeat(10)));
        let wide: String = (0..MOST_NODES + 10).map(|number| format!("{number} 1\n")).collect();
        let tree = Tree::parse(&wide).expect("folded");
        assert_eq!((tree.nodes.len(), tree.total()), (MOST_NODES, MOST_NODES as u64 + 10));
    }
}
