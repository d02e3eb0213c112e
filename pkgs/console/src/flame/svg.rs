//! A flame graph as a separate file, with shapes and text, and without scripts.

use maud::{PreEscaped, html};

use super::layout::{HEIGHT, WIDTH, blocks, colour, height, label};
use super::{Tree, Unit, percent};

/// The most blocks that are drawn.
pub const MOST_BLOCKS: usize = 8000;

/// The row with the title.
const TITLE: usize = 28;

/// Draws a tree. Browsers show a function's whole name when the pointer is on its block.
pub fn svg(tree: &Tree, title: &str, unit: Unit) -> String {
    let drawn = blocks(tree, 0, MOST_BLOCKS);
    let high = TITLE + height(&drawn).max(HEIGHT);
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {WIDTH} {high}")) width=(WIDTH) height=(high)
            font-family="ui-monospace, monospace" font-size="12" {
            title { (title) }
            rect width="100%" height="100%" fill="#fffdf8" {}
            text x="6" y="19" font-size="14" { (title) ": " (unit.show(tree.total())) }
            @for block in &drawn {
                @if let Some(node) = tree.node(block.node) {
                    g {
                        title { (node.name) ", " (unit.show(node.total)) ", " (share(tree, node.total))
                            @if tree.compared() { ", before " (share(tree, node.before)) } }
                        rect x=(format!("{:.2}", block.x)) y=(TITLE + block.row * HEIGHT) width=(format!("{:.2}", block.width))
                            height=(HEIGHT - 1) fill=(colour(tree, node)) {}
                        @let label = label(&node.name, block.width);
                        @if !label.is_empty() { text x=(format!("{:.2}", block.x + 3.0)) y=(TITLE + block.row * HEIGHT + 13) { (label) } }
                    }
                }
            }
        }
    };
    let PreEscaped(text) = markup;
    text + "\n"
}

fn share(tree: &Tree, weight: u64) -> String {
    format!("{:.1}%", percent(weight, tree.total()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_each_name_and_runs_nothing_whatever_names_are() {
        let tree = Tree::parse("<script>alert(1)</script>;a\"&'b 3\nplain 1\n").expect("folded");
        let text = svg(&tree, "links & <files>", Unit::Samples);
        assert!(text.starts_with("<svg xmlns=") && text.ends_with("</svg>\n"));
        assert!(
            text.contains("plain, 1 sample, 25.0%") && text.contains("links &amp; &lt;files&gt;: 4 samples")
        );
        assert!(!text.contains("<script") && !text.contains(" on") && !text.contains("style="), "{text}");
        assert_eq!(text.matches("<rect").count(), 5);
    }

    #[test]
    fn what_is_compared_says_both_shares() {
        let tree = Tree::compare("a 1\nb 1", "a 3\nb 1").expect("folded");
        assert!(svg(&tree, "t", Unit::Micros).contains("a, 0.0 ms, 75.0%, before 50.0%"));
    }
}
