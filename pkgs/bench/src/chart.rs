//! The bar chart: CPU time per request for one case, as an SVG that follows the reader's colour scheme.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::report::Row;

const WIDTH: usize = 640;
const LABEL_WIDTH: usize = 140;
const VALUE_WIDTH: usize = 70;
const BAR_HEIGHT: usize = 22;
const TOP: usize = 36;
/// A generous estimate of the width of a character in a note.
const CHARACTER_WIDTH: usize = 8;
/// Where notes start.
const NOTES: usize = WIDTH + 16;

/// The meaning of a bar's colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Better than the previous bar. If all bars have this tone, it means nothing.
    #[default]
    Good,
    /// Neither better nor worse than the previous bar.
    Neutral,
    /// Worse than the previous bar.
    Bad,
}

impl Tone {
    /// Distinguishable for people who don't see red or green, on white and on black.
    const fn colour(self) -> &'static str {
        match self {
            Self::Good => "#2a78b8",
            Self::Neutral => "#8f9aa3",
            Self::Bad => "#d97a1f",
        }
    }
}

/// A bar.
#[derive(Clone, Debug, Default)]
pub struct Bar {
    /// The text before it.
    pub label: String,
    /// Its length: CPU time per request, in microseconds.
    pub cpu_us: f64,
    /// The text at the end of its line; may be empty.
    pub note: String,
    /// Its colour.
    pub tone: Tone,
}

/// Draws the rows for `case` in their order and writes them to `path`.
pub fn write(path: &Path, title: &str, case: &str, rows: &[Row]) -> Result<(), Error> {
    let bar = |row: &Row| Bar { label: row.server.into(), cpu_us: row.cpu_us, ..Bar::default() };
    let bars: Vec<Bar> = rows.iter().filter(|row| row.case == case).map(bar).collect();
    write_bars(path, title, &bars)
}

/// Draws `bars` in their order and writes them to `path`. Labels and notes are plain text.
pub fn write_bars(path: &Path, title: &str, bars: &[Bar]) -> Result<(), Error> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(Error::file(directory))?;
    }
    fs::write(path, draw(title, bars)).map_err(Error::file(path))
}

fn draw(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.cpu_us).fold(f64::MIN_POSITIVE, f64::max);
    // Leave room for notes only if there are any.
    let longest_note = bars.iter().map(|bar| bar.note.chars().count()).max().unwrap_or(0);
    let width = if longest_note == 0 { WIDTH } else { NOTES + longest_note * CHARACTER_WIDTH };
    let height = TOP + bars.len() * (BAR_HEIGHT + 8) + 8;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n\
         <style>text {{ fill: #222 }} .note {{ fill: #666 }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} .note {{ fill: #999 }} }}</style>\n\
         <text x=\"8\" y=\"22\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (index, Bar { label, cpu_us, note, tone }) in bars.iter().enumerate() {
        let top = TOP + index * (BAR_HEIGHT + 8);
        let baseline = top + BAR_HEIGHT - 6;
        let length = cpu_us / most * (WIDTH - LABEL_WIDTH - VALUE_WIDTH) as f64;
        let end = LABEL_WIDTH as f64 + length;
        // Writing to a string can't fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{cpu_us:.2} µs</text>",
            LABEL_WIDTH - 8,
            escaped(label),
            tone.colour(),
            end + 6.0,
        );
        if !note.is_empty() {
            let _ =
                writeln!(svg, "<text class=\"note\" x=\"{NOTES}\" y=\"{baseline}\">{}</text>", escaped(note));
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_the_others_follow() {
        let bar = |label: &str, cpu_us, note: &str, tone| Bar {
            label: label.into(),
            cpu_us,
            note: note.into(),
            tone,
        };
        let svg = draw("t", &[bar("a", 4.0, "", Tone::Good), bar("b < c", 2.0, "", Tone::Good)]);
        assert!(svg.contains("width=\"430.0\"") && svg.contains("width=\"215.0\""), "{svg}");
        assert!(svg.contains("b &lt; c") && svg.contains("0 0 640 "), "{svg}");
        let noted = draw("t", &[bar("a", 4.0, "costs more", Tone::Bad)]);
        assert!(
            noted.contains("x=\"656\" y=\"52\">costs more</text>") && !noted.contains("0 0 640 "),
            "{noted}"
        );
        assert!(noted.contains(Tone::Bad.colour()), "{noted}");
    }
}
