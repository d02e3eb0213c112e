//! A tree to which routes are added, and its conversion to the frozen tree.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::exact::Exact;
use super::{Alternative, Bucket, COMPARED, NONE, Node, Span, Takes, Tree, bytes, head};
use crate::error::BuildError;
use crate::limits::MAX_TRIES;
use crate::pattern::Segment;

/// The longest run of probes in a table, per bit of its size. If a run would be longer, another seed is tried, and then
/// a larger table.
const PROBES_PER_BIT: usize = 4;

/// How many seeds are tried before the table is enlarged.
const SEEDS: u16 = 16;

/// A tree that routes can be added to.
#[derive(Debug)]
pub(crate) struct Draft {
    nodes: Vec<DraftNode>,
}

#[derive(Debug)]
struct DraftNode {
    /// Static children, by segment.
    children: HashMap<Box<[u8]>, u32>,
    params: Vec<(Param, u32)>,
    value: Option<u32>,
}

/// A parameter without its name. Two routes with equal parameters are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    takes: Takes,
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
}

impl Param {
    /// The order in which parameters are tried: a segment before a catch-all, then more literal bytes, then the longer
    /// prefix, then the text.
    fn order(&self) -> impl Ord + '_ {
        let literal = self.prefix.len() + self.suffix.len();
        (self.takes, Reverse(literal), Reverse(self.prefix.len()), &self.prefix, &self.suffix)
    }
}

impl Default for Draft {
    fn default() -> Self {
        Self { nodes: vec![DraftNode::new()] }
    }
}

impl DraftNode {
    fn new() -> Self {
        Self { children: HashMap::new(), params: Vec::new(), value: None }
    }
}

impl Draft {
    /// The place of the value for the route with these segments. Routes that differ only in the names of parameters
    /// share it.
    pub(crate) fn value(&mut self, segments: &[Segment<'_>]) -> &mut Option<u32> {
        let mut at = 0;
        for segment in segments {
            let param = match segment {
                Segment::Static(text) => {
                    at = self.child(at, text);
                    continue;
                }
                Segment::Param { prefix, suffix, .. } => {
                    Param { takes: Takes::Segment, prefix: prefix[..].into(), suffix: suffix[..].into() }
                }
                Segment::CatchAll { .. } => {
                    Param { takes: Takes::Rest, prefix: Box::default(), suffix: Box::default() }
                }
            };
            at = self.param(at, param);
        }
        &mut self.nodes[at].value
    }

    fn child(&mut self, at: usize, text: &[u8]) -> usize {
        if let Some(&child) = self.nodes[at].children.get(text) {
            return child as usize;
        }
        let child = self.add();
        self.nodes[at].children.insert(text.into(), child as u32);
        child
    }

    fn param(&mut self, at: usize, param: Param) -> usize {
        if let Some((_, node)) = self.nodes[at].params.iter().find(|(known, _)| *known == param) {
            return *node as usize;
        }
        let node = self.add();
        self.nodes[at].params.push((param, node as u32));
        node
    }

    fn add(&mut self) -> usize {
        self.nodes.push(DraftNode::new());
        self.nodes.len() - 1
    }

    /// Freezes the tree, and merges runs of segments without branches.
    pub(crate) fn freeze(mut self) -> Result<Tree, BuildError> {
        let mut frozen = Frozen::default();
        let root = frozen.place(Span::default())?;
        // Nodes that still have to be filled in, parents first: the draft node, the frozen node, and the path if it has
        // no parameters.
        let mut waiting = std::collections::VecDeque::from([(0, root, Some(Vec::new()))]);
        let mut exact = Vec::new();
        while let Some((draft, node, path)) = waiting.pop_front() {
            let mut draft = std::mem::replace(&mut self.nodes[draft], DraftNode::new());
            let mut children: Vec<_> = draft.children.drain().collect();
            children.sort_unstable();
            let first = frozen.nodes.len() as u32;
            // A child is hashed by its first segment only.
            let mut keys = Vec::with_capacity(children.len());
            for (text, child) in children {
                let (literal, last) = self.run(&text, child as usize);
                let path = path.as_ref().map(|path| [path, &b"/"[..], &literal].concat());
                let literal = frozen.literal(&literal)?;
                let placed = frozen.place(literal)?;
                waiting.push_back((last, placed, path));
                keys.push(text);
            }
            draft.params.sort_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
            let alternatives = frozen.alternatives.len() as u32;
            for (param, next) in &draft.params {
                let (prefix, suffix) = (frozen.literal(&param.prefix)?, frozen.literal(&param.suffix)?);
                let placed = frozen.place(Span::default())?;
                frozen.alternatives.push(Alternative { takes: param.takes, prefix, suffix, node: placed });
                waiting.push_back((*next as usize, placed, None));
            }
            if let (Some(path), Some(value)) = (path, draft.value) {
                exact.push((path, value));
            }
            let count = keys.len() as u32;
            let (children, seed, bits) =
                if keys.len() > COMPARED { frozen.table(&keys, first)? } else { (first, 0, 0) };
            let mut heads = [0; COMPARED];
            heads.iter_mut().zip(&keys).for_each(|(first, key)| *first = head(key));
            let heads = u32::from_le_bytes(heads);
            let node = &mut frozen.nodes[node as usize];
            *node = Node {
                literal: node.literal,
                children,
                count,
                alternatives,
                alternative_count: draft.params.len() as u32,
                value: draft.value.unwrap_or(NONE),
                heads,
                seed,
                bits,
            };
        }
        let tries = frozen.tries();
        if tries > MAX_TRIES {
            return Err(BuildError::TooAmbiguous { tries });
        }
        let has_no_exact = exact.is_empty();
        let exact = Exact::new(&exact);
        let single = frozen.single().filter(|_| has_no_exact || exact.is_some());
        Ok(Tree {
            nodes: frozen.nodes.into(),
            alternatives: frozen.alternatives.into(),
            tables: frozen.tables.into(),
            literals: frozen.literals.into(),
            exact,
            single,
            tries,
        })
    }

    /// Follows the nodes from a child on, as long as there is only one way. Returns their segments and the last node.
    fn run(&mut self, text: &[u8], child: usize) -> (Vec<u8>, usize) {
        let (mut literal, mut at) = (text.to_vec(), child);
        loop {
            let node = &mut self.nodes[at];
            if node.value.is_some() || !node.params.is_empty() || node.children.len() != 1 {
                return (literal, at);
            }
            let Some((text, child)) = node.children.drain().next() else { return (literal, at) };
            literal.push(b'/');
            literal.extend_from_slice(&text);
            at = child as usize;
        }
    }
}

/// The arrays of a tree that is being frozen.
#[derive(Default)]
struct Frozen {
    nodes: Vec<Node>,
    alternatives: Vec<Alternative>,
    tables: Vec<Bucket>,
    literals: Vec<u8>,
}

impl Frozen {
    /// Adds an empty node, which is filled in later.
    fn place(&mut self, literal: Span) -> Result<u32, BuildError> {
        let node = u32::try_from(self.nodes.len()).ok().filter(|&node| node != NONE);
        let node = node.ok_or(BuildError::TooManyRoutes)?;
        self.nodes.push(Node {
            literal,
            children: 0,
            count: 0,
            alternatives: 0,
            alternative_count: 0,
            value: NONE,
            heads: 0,
            seed: 0,
            bits: 0,
        });
        Ok(node)
    }

    /// The route of every path of one segment that no static route equals, if the first parameter to be tried takes any.
    fn single(&self) -> Option<u32> {
        let root = self.nodes.first().filter(|root| root.alternative_count > 0)?;
        let first = self.alternatives[root.alternatives as usize];
        let takes_any = first.takes == Takes::Segment && first.prefix.length | first.suffix.length == 0;
        Some(self.nodes[first.node as usize].value).filter(|value| takes_any && *value != NONE)
    }

    fn literal(&mut self, text: &[u8]) -> Result<Span, BuildError> {
        let start = u32::try_from(self.literals.len()).map_err(|_| BuildError::TooManyRoutes)?;
        self.literals.extend_from_slice(text);
        Ok(Span { start, length: text.len() as u32 })
    }

    /// Builds a hash table of the nodes from `first` on, by these keys. Returns its position, seed and bits.
    fn table(&mut self, keys: &[Box<[u8]>], first: u32) -> Result<(u32, u16, u8), BuildError> {
        let start = u32::try_from(self.tables.len()).map_err(|_| BuildError::TooManyRoutes)?;
        let mut bits = (keys.len() * 2).next_power_of_two().trailing_zeros() as u8;
        let mut probes = PROBES_PER_BIT * usize::from(bits);
        // Each round allows twice as many probes, so the loop ends even if no seed distributes the keys.
        loop {
            for seed in 0..SEEDS {
                if let Some(table) = fill(keys, first, seed, bits, probes) {
                    self.tables.extend_from_slice(&table);
                    return Ok((start, seed, bits));
                }
            }
            bits += 1;
            probes *= 2;
        }
    }

    /// The most nodes that any path visits. At each node, this is the most expensive static child plus all parameters.
    fn tries(&self) -> u32 {
        let mut tries: Vec<u32> = vec![0; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let first = if node.count as usize > COMPARED { None } else { Some(node.children) };
            let children: Box<dyn Iterator<Item = u32>> = match first {
                Some(first) => Box::new(first..first + node.count),
                None => {
                    let table = &self.tables[node.children as usize..][..1 << node.bits];
                    Box::new(table.iter().map(|bucket| bucket.node).filter(|&node| node != NONE))
                }
            };
            let dearest = children.map(|child| tries[child as usize]).max().unwrap_or(0);
            let alternatives =
                &self.alternatives[node.alternatives as usize..][..node.alternative_count as usize];
            let sum =
                alternatives.iter().fold(dearest, |sum, next| sum.saturating_add(tries[next.node as usize]));
            tries[at] = sum.saturating_add(1);
        }
        tries[0]
    }
}

/// A table in which no look-up takes more than `probes`. `None` if this seed does not give one.
fn fill(keys: &[Box<[u8]>], first: u32, seed: u16, bits: u8, probes: usize) -> Option<Vec<Bucket>> {
    let mut table = vec![Bucket { tag: 0, node: NONE }; 1 << bits];
    let mask = table.len() - 1;
    for (node, key) in (first..).zip(keys) {
        let hash = bytes::hash(key, u64::from(seed));
        let free =
            (0..probes).map(|probe| (hash as usize + probe) & mask).find(|&at| table[at].node == NONE)?;
        table[free] = Bucket { tag: (hash >> 32) as u32, node };
    }
    Some(table)
}
