//! The bars: CPU time per request of one case, as an SVG that follows the reader's colour scheme.

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

/// Draws the rows of `case` in their order and writes them to `path`.
pub fn write(path: &Path, title: &str, case: &str, rows: &[Row]) -> Result<(), Error> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.case == case).collect();
    fs::write(path, draw(title, &rows)).map_err(Error::file(path))
}

fn draw(title: &str, rows: &[&Row]) -> String {
    let most = rows.iter().map(|row| row.cpu_us).fold(f64::MIN_POSITIVE, f64::max);
    let height = TOP + rows.len() * (BAR_HEIGHT + 8) + 8;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n\
         <style>text {{ fill: #222 }} rect {{ fill: #2a78b8 }} \
         @media (prefers-color-scheme: dark) {{ text {{ fill: #ddd }} }}</style>\n\
         <text x=\"8\" y=\"22\" font-weight=\"bold\">{title}</text>\n"
    );
    for (index, row) in rows.iter().enumerate() {
        let top = TOP + index * (BAR_HEIGHT + 8);
        let baseline = top + BAR_HEIGHT - 6;
        let length = row.cpu_us / most * (WIDTH - LABEL_WIDTH - VALUE_WIDTH) as f64;
        let end = LABEL_WIDTH as f64 + length;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL_WIDTH}\" y=\"{top}\" width=\"{length:.1}\" height=\"{BAR_HEIGHT}\"/>\
             <text x=\"{:.1}\" y=\"{baseline}\">{:.2} µs</text>",
            LABEL_WIDTH - 8,
            row.server,
            end + 6.0,
            row.cpu_us
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_the_others_follow() {
        let row = |server, cpu_us| Row {
            server,
            case: "hot",
            qps: 0.0,
            p50_us: 0.0,
            p99_us: 0.0,
            cpu_us,
            cpu_us_spread: (cpu_us, cpu_us),
            user_us: 0.0,
            ratios: Vec::new(),
            resident_bytes: 0,
        };
        let svg = draw("t", &[&row("a", 4.0), &row("b", 2.0)]);
        assert!(svg.contains("width=\"430.0\"") && svg.contains("width=\"215.0\""), "{svg}");
    }
}
