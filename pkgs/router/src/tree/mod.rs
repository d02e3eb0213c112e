//! Routes as a tree of segments in flat arrays, and the walk through it.

mod build;
mod bytes;
mod captures;
mod exact;

pub(crate) use build::Draft;
pub(crate) use captures::Captures;

use crate::escape;
use crate::limits::MAX_PATH;

use exact::Exact;

/// No node, or no value.
const NONE: u32 = u32::MAX;

/// As many static children are told apart by their first bytes, which fill a word; of more, one is looked up
/// by its hash.
const COMPARED: usize = size_of::<u32>();

/// Which routes match a path. They are known by a number, [`Draft::value`]'s.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The root is the first; children come after their parents, static siblings side by side.
    nodes: Box<[Node]>,
    /// Parameters of all nodes; those of one node side by side, in the order in which they are tried.
    alternatives: Box<[Alternative]>,
    /// Hash tables of all nodes with many static children.
    tables: Box<[Bucket]>,
    /// All text.
    literals: Box<[u8]>,
    exact: Option<Exact>,
    tries: u32,
}

/// A place between segments.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The segments that lead here from the parent, when static.
    literal: Span,
    /// Static children: where the first of them is, or their table.
    children: u32,
    /// How many there are of them.
    count: u32,
    /// Parameters.
    alternatives: u32,
    alternative_count: u32,
    /// What matches when the path ends here.
    value: u32,
    /// [`head`] of each of the children, when they are compared.
    heads: u32,
    /// Seed of the table, and the binary logarithm of its size.
    seed: u16,
    bits: u8,
}

/// A parameter, and the node behind it.
#[derive(Clone, Copy, Debug)]
struct Alternative {
    takes: Takes,
    prefix: Span,
    suffix: Span,
    node: u32,
}

/// What a parameter takes of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    /// A segment.
    Segment,
    /// All that follows.
    Rest,
}

/// How matching began.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun {
    /// With the number of the route that matches.
    Found(u32),
    /// Nothing matches the path as it is written.
    Nothing,
    /// With a node that has parameters, and where the path goes on.
    Params(u32, usize),
}

/// A place in a hash table.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The upper half of the hash.
    tag: u32,
    node: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    length: u32,
}

impl Tree {
    /// Matches as far as there is one way only and nothing to capture: for most static routes that is all.
    #[inline(always)]
    pub(crate) fn begin(&self, path: &str) -> Begun {
        let path = path.as_bytes();
        if path.first() != Some(&b'/') || path.len() > MAX_PATH {
            return Begun::Nothing;
        }
        if let Some(value) = self.exact.as_ref().and_then(|exact| exact.find(path)) {
            return Begun::Found(value);
        }
        let (mut at, mut from) = (0, 1);
        loop {
            let node = &self.nodes[at as usize];
            if node.alternative_count != 0 {
                return Begun::Params(at, from);
            }
            let Some(child) = self.child(node, path, from) else { return Begun::Nothing };
            let next = &self.nodes[child as usize];
            let end = from + next.literal.length as usize;
            if end == path.len() {
                return if next.value == NONE { Begun::Nothing } else { Begun::Found(next.value) };
            }
            (at, from) = (child, end + 1);
        }
    }

    /// Matches the rest: the number of what matches `path`, and in `captures`, empty before, its parameters.
    #[inline]
    pub(crate) fn finish(&self, begun: Begun, path: &str, captures: &mut Captures) -> Option<u32> {
        let value = match begun {
            Begun::Found(value) => return Some(value),
            Begun::Nothing => NONE,
            Begun::Params(at, from) => self.walk(at, path.as_bytes(), from, captures),
        };
        if value == NONE || captures.escapes {
            return self.find_normal(value, path.as_bytes(), captures);
        }
        Some(value)
    }

    /// The most nodes that any path visits.
    pub(crate) fn tries(&self) -> u32 {
        self.tries
    }

    /// Literals are normal, so a path that is not may match another route than it seems to: only a path
    /// with `%` in a parameter, or in a path that matches nothing, is ever copied.
    #[cold]
    fn find_normal(&self, value: u32, path: &[u8], captures: &mut Captures) -> Option<u32> {
        let found = |value: u32| (value != NONE).then_some(value);
        if path.first() != Some(&b'/') || path.len() > MAX_PATH || !path.contains(&b'%') {
            return found(value);
        }
        let Some(normal) = escape::normalize(path) else { return found(value) };
        *captures = Captures::new();
        let value = found(self.walk(0, &normal, 1, captures))?;
        captures.map(|offset| escape::denormalized(path, offset));
        // The path as it was written has some, whatever is left of them in the normal one.
        captures.escapes = true;
        Some(value)
    }

    /// The value of the first route in the order of precedence that matches what follows `from`, the
    /// beginning of a segment. Where there is another way to come back to, it calls itself.
    #[inline(always)]
    fn walk(&self, at: u32, path: &[u8], from: usize, captures: &mut Captures) -> u32 {
        let (mut at, mut from) = (at, from);
        'node: loop {
            let node = &self.nodes[at as usize];
            let child = self.child(node, path, from);
            if node.alternative_count == 0 {
                let Some(child) = child else { return NONE };
                let next = &self.nodes[child as usize];
                let end = from + next.literal.length as usize;
                if end == path.len() {
                    return next.value;
                }
                (at, from) = (child, end + 1);
                continue;
            }
            let mark = captures.len();
            if let Some(child) = child {
                let next = &self.nodes[child as usize];
                let end = from + next.literal.length as usize;
                let value =
                    if end == path.len() { next.value } else { self.branch(child, path, end + 1, captures) };
                if value != NONE {
                    return value;
                }
                captures.truncate(mark);
            }
            let first = node.alternatives as usize;
            let alternatives = &self.alternatives[first..first + node.alternative_count as usize];
            let extent = bytes::segment(path, from);
            captures.escapes |= extent.escapes;
            for (index, alternative) in alternatives.iter().enumerate() {
                let Some((start, end)) = self.take(alternative, path, from, extent.end) else { continue };
                captures.push(start, end);
                if alternative.takes == Takes::Rest {
                    captures.escapes |= path[extent.end..].contains(&b'%');
                    return self.nodes[alternative.node as usize].value;
                }
                let ends = extent.end == path.len();
                if index + 1 == alternatives.len() && !ends {
                    (at, from) = (alternative.node, extent.end + 1);
                    continue 'node;
                }
                let value = if ends {
                    self.nodes[alternative.node as usize].value
                } else {
                    self.branch(alternative.node, path, extent.end + 1, captures)
                };
                if value != NONE {
                    return value;
                }
                captures.truncate(mark);
            }
            return NONE;
        }
    }

    /// [`walk`](Self::walk), called.
    fn branch(&self, at: u32, path: &[u8], from: usize, captures: &mut Captures) -> u32 {
        self.walk(at, path, from, captures)
    }

    /// The static child whose segments are the next of the path.
    #[inline(always)]
    fn child(&self, node: &Node, path: &[u8], from: usize) -> Option<u32> {
        let rest = &path[from..];
        if node.count as usize <= COMPARED {
            let count = node.count as usize;
            if count == 1 {
                return self.leads_to(node.children, rest).then_some(node.children);
            }
            let mut fits = bytes::positions(node.heads, head(rest));
            while let Some(child) = fits.next().filter(|&child| child < node.count) {
                if self.leads_to(node.children + child, rest) {
                    return Some(node.children + child);
                }
            }
            return None;
        }
        let segment = &rest[..bytes::segment(path, from).end - from];
        let hash = bytes::hash(segment, u64::from(node.seed));
        let table = &self.tables[node.children as usize..][..1 << node.bits];
        let mask = table.len() - 1;
        let tag = (hash >> 32) as u32;
        let mut at = hash as usize & mask;
        loop {
            let bucket = table[at];
            if bucket.node == NONE {
                return None;
            }
            if bucket.tag == tag && self.leads_to(bucket.node, rest) {
                return Some(bucket.node);
            }
            at = (at + 1) & mask;
        }
    }

    #[inline(always)]
    fn leads_to(&self, child: u32, rest: &[u8]) -> bool {
        bytes::begins_with(rest, self.text(self.nodes[child as usize].literal))
    }

    /// The range that a parameter takes of the segment, or of the rest.
    #[inline(always)]
    fn take(
        &self,
        alternative: &Alternative,
        path: &[u8],
        from: usize,
        end: usize,
    ) -> Option<(usize, usize)> {
        if alternative.takes == Takes::Rest {
            return (from < path.len()).then_some((from, path.len()));
        }
        let (mut start, mut stop) = (from, end);
        if alternative.prefix.length | alternative.suffix.length != 0 {
            let segment = &path[from..end];
            let inner = segment.strip_prefix(self.text(alternative.prefix))?;
            let inner = inner.strip_suffix(self.text(alternative.suffix))?;
            start += alternative.prefix.length as usize;
            stop = start + inner.len();
        }
        (start < stop).then_some((start, stop))
    }

    #[inline(always)]
    fn text(&self, span: Span) -> &[u8] {
        &self.literals[span.start as usize..][..span.length as usize]
    }
}

/// The first byte of what begins with a segment; of an empty one it is the `/` that ends it, at the end of
/// the path too.
#[inline(always)]
fn head(text: &[u8]) -> u8 {
    text.first().copied().unwrap_or(b'/')
}
