//! Computes where each function of a tree is drawn.

use super::tree::{Node, Tree};

/// The width of a drawing, in its own units.
pub const WIDTH: f64 = 1200.0;

/// The height of a row.
pub const HEIGHT: usize = 18;

/// Narrower blocks aren't drawn.
const LEAST: f64 = 0.4;

/// The width of a character in the font of the drawing.
const CHARACTER: f64 = 7.0;

/// A function and where it is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Block {
    /// Its node in the tree.
    pub node: usize,
    /// Its row, counted from 0.
    pub row: usize,
    /// Its distance from the left.
    pub x: f64,
    /// Its width.
    pub width: f64,
}

/// The blocks of a tree from a node on, outer functions before inner ones. If there were more than `most` blocks,
/// narrow ones are left out, not inner ones.
pub fn blocks(tree: &Tree, root: usize, most: usize) -> Vec<Block> {
    let mut least = LEAST;
    loop {
        let drawn = wider(tree, root, least, most);
        if drawn.len() <= most || least > WIDTH {
            return drawn;
        }
        least *= 2.0;
    }
}

/// The blocks with at least this width. Stops once there are more than `most`.
fn wider(tree: &Tree, root: usize, least: f64, most: usize) -> Vec<Block> {
    let Some(node) = tree.node(root).filter(|node| node.total > 0) else { return Vec::new() };
    let scale = WIDTH / node.total as f64;
    let mut drawn = vec![Block { node: root, row: 0, x: 0.0, width: WIDTH }];
    let mut next = 0;
    while next < drawn.len() {
        let Block { node, row, mut x, .. } = drawn[next];
        next += 1;
        let Some(node) = tree.node(node) else { continue };
        for (number, child) in tree.children(node) {
            let width = child.total as f64 * scale;
            if width >= least && drawn.len() <= most {
                drawn.push(Block { node: number, row: row + 1, x, width });
            }
            x += width;
        }
    }
    drawn
}

/// The height of all blocks together.
pub fn height(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| block.row + 1).max().unwrap_or(0) * HEIGHT
}

/// As much of a name as fits, or nothing if too little of it would be readable.
pub fn label(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    let length = name.chars().count();
    match room {
        0..=2 => String::new(),
        _ if length <= room => name.to_owned(),
        _ => name.chars().take(room - 1).chain(['…']).collect(),
    }
}

/// The colour of a node, always light enough for black text. Colours are warm and differ by name; the kernel's
/// functions are greenish. In comparisons, a function that grew is red, and one that shrank is blue.
pub fn colour(tree: &Tree, node: &Node) -> String {
    if tree.compared() {
        let all = tree.total().max(1) as f64;
        let change = (node.total as f64 - node.before as f64) / all;
        // The colour is deepest for a change by a tenth of the whole profile.
        let pale = 255 - (change.abs() * 10.0).min(1.0).mul_add(115.0, 0.0) as u8;
        return match change {
            change if change > 0.0 => format!("#ff{pale:02x}{pale:02x}"),
            change if change < 0.0 => format!("#{pale:02x}{pale:02x}ff"),
            _ => "#ffffff".into(),
        };
    }
    let hash = node
        .name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let (one, other) = ((hash >> 8) as u8 % 60, (hash >> 16) as u8 % 50);
    if node.name.ends_with("_[k]") {
        format!("#{:02x}{:02x}{:02x}", 150 + other, 205 + one / 2, 150 + other)
    } else {
        format!("#ff{:02x}{:02x}", 165 + one, 90 + other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_stands_below_its_caller_and_within_its_width() {
        let tree = Tree::parse("a;b 1\na;c 2\nd 1\ne;f 0").expect("folded");
        let drawn = blocks(&tree, 0, 100);
        let shown: Vec<_> = drawn
            .iter()
            .map(|block| {
                (tree.node(block.node).expect("a node").name.as_str(), block.row, block.x, block.width)
            })
            .collect();
        let expected = [
            ("all", 0, 0.0, 1200.0),
            ("a", 1, 0.0, 900.0),
            ("d", 1, 900.0, 300.0),
            ("b", 2, 0.0, 300.0),
            ("c", 2, 300.0, 600.0),
        ];
        assert_eq!(shown, expected);
        assert_eq!(height(&drawn), 3 * HEIGHT);
        let names = |most| -> Vec<usize> { blocks(&tree, 0, most).iter().map(|block| block.node).collect() };
        // Once narrower blocks than 819.2 are left out, only the function with three quarters of the weight remains.
        assert_eq!((names(2), names(1)), (vec![0, 1], vec![0]));
        assert!(blocks(&tree, 99, 100).is_empty() && blocks(&Tree::default(), 0, 9).is_empty());
    }

    #[test]
    fn names_are_cut_where_they_do_not_fit() {
        for (width, expected) in [(10.0, ""), (30.0, "fu…"), (62.0, "function"), (900.0, "function")] {
            assert_eq!(label("function", width), expected, "{width}");
        }
    }

    #[test]
    fn what_grew_is_red_and_what_shrank_is_blue() {
        let tree = Tree::compare("a 1\nb 3\nc 4", "a 3\nb 1\nc 4").expect("folded");
        let root = tree.node(0).expect("a root");
        let colours: Vec<_> = tree.children(root).map(|(_, node)| colour(&tree, node)).collect();
        assert_eq!(colours, ["#ff8c8c", "#8c8cff", "#ffffff"]);
    }
}
