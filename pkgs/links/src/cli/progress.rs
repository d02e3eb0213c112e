//! Progress on standard error, where a person watches it.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes where their number is known, a counter of bytes where it is not. Hidden unless standard
/// error is a terminal.
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

/// A style; the plain one should the template be wrong, which is no reason to fail.
fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
