//! Progress on standard error, if it is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar if the total number of bytes is known, otherwise a counter. Hidden unless standard error is a terminal.
pub fn bytes(total: Option<u64>) -> ProgressBar {
    match total {
        Some(total) => ProgressBar::new(total)
            .with_style(style("{wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}")),
        None => ProgressBar::no_length().with_style(style("{spinner} {bytes} {binary_bytes_per_sec}")),
    }
}

/// A bar over rows.
pub fn rows(of: &'static str, total: u64) -> ProgressBar {
    ProgressBar::new(total)
        .with_message(of)
        .with_style(style("{msg:12} {wide_bar} {human_pos}/{human_len} rows {per_sec} {eta}"))
}

/// A bar over database pages.
pub fn pages() -> ProgressBar {
    ProgressBar::new(0).with_style(style("{wide_bar} {pos}/{len} pages {eta}"))
}

/// A style, or the plain one if the template is wrong, since that is no reason to fail.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
