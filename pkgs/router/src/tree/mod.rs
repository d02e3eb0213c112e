//! Routes as a tree of segments in flat arrays, and the search in it.

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

/// Up to this many static children are compared by their first bytes, which fill a word. If there are more, a child is
/// found by its hash.
const COMPARED: usize = size_of::<u32>();

/// Matches paths to routes, which are numbers from [`Draft::value`].
#[derive(Debug)]
pub(crate) struct Tree {
    /// The root comes first, children follow their parents, and static siblings are adjacent.
    nodes: Box<[Node]>,
    /// Parameters of all nodes. Those of one node are adjacent, in the order of attempts.
    alternatives: Box<[Alternative]>,
    /// Hash tables of all nodes with many static children.
    tables: Box<[Bucket]>,
    /// All literal text.
    literals: Box<[u8]>,
    exact: Option<Exact>,
    /// The route of a path that is one segment and no route of `exact`, if there is only one for all of them.
    single: Option<u32>,
    tries: u32,
}

/// A position between segments.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// The static segments from the parent to here.
    literal: Span,
    /// Static children: the position of the first, or of their hash table.
    children: u32,
    /// The number of static children.
    count: u32,
    /// The position of the first parameter.
    alternatives: u32,
    alternative_count: u32,
    /// The route of a path that ends here.
    value: u32,
    /// The [`head`] of each child, if they are compared.
    heads: u32,
    /// The seed of the hash table.
    seed: u16,
    bits: u8,
}

/// A parameter, and the node after it.
#[derive(Clone, Copy, Debug)]
struct Alternative {
    takes: Takes,
    prefix: Span,
    suffix: Span,
    node: u32,
}

/// The part of the path that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Takes {
    /// A segment.
    Segment,
    /// Everything that follows.
    Rest,
}

/// The result of the first part of the search.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun {
    /// The number of the route that matches.
    Found(u32),
    /// Nothing matches the path as written.
    Nothing,
    /// Parameters come next. The node that has them, and the offset in the path.
    Params(u32, usize),
}

/// A place of a hash table.
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
    /// Matches as long as there is only one way and no parameter. For most static routes this is the whole search.
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

    /// The route that takes the whole path after the first `/` as its only parameter. `None` says nothing about other
    /// routes.
    #[inline(always)]
    pub(crate) fn single(&self, path: &[u8]) -> Option<u32> {
        let value = self.single?;
        if path.first() != Some(&b'/') || path.len() > MAX_PATH {
            return None;
        }
        let segment = bytes::segment(path, 1);
        let is_one = segment.end == path.len() && !segment.escapes && segment.end > 1;
        (is_one && self.exact.as_ref().is_none_or(|exact| exact.find(path).is_none())).then_some(value)
    }

    /// Matches the rest. Returns the route's number, and adds its parameters to `captures`, which must be empty.
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

    /// Searches again with the path in normal form, if it is not yet normal. Literals are in normal form, so the path
    /// as written may match another route. A path is copied only if it has a `%` in a parameter, or if it has a `%` and
    /// matches nothing.
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
        // The path as written has escapes, whether or not any are left in the normal form.
        captures.escapes = true;
        Some(value)
    }

    /// The value of the first route, in order of precedence, that matches the path from the segment at `from` on.
    /// Recurses if there is another alternative to try afterwards.
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

    /// Calls [`walk`](Self::walk). This is a separate function, since `walk` is inlined.
    fn branch(&self, at: u32, path: &[u8], from: usize, captures: &mut Captures) -> u32 {
        self.walk(at, path, from, captures)
    }

    /// The static child whose segments are next in the path.
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

    /// The range that a parameter matches: in the segment, or the rest of the path.
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

/// The first byte of a text that starts with a segment. For an empty segment it is the `/` after it, even at the end of
/// the path.
#[inline(always)]
fn head(text: &[u8]) -> u8 {
    text.first().copied().unwrap_or(b'/')
}
