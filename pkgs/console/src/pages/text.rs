//! Formats figures with three significant digits and a unit.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maud::{Markup, html};

/// The text for a missing value.
const NONE: &str = "–";

/// `0`, `0.4`, `12`, `1,234`, `12.3 k`, `4.56 M`.
pub(super) fn count(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{} G", digits(value / 1e9)),
        value if value >= 1e6 => format!("{} M", digits(value / 1e6)),
        value if value >= 1e4 => format!("{} k", digits(value / 1e3)),
        value if value >= 10.0 || value.fract() == 0.0 => grouped(value.round() as u64),
        value => format!("{value:.1}"),
    }
}

/// `1,234,567`.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// `512 B`, `1.50 MiB`.
pub(super) fn bytes(value: f64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(size, _)| value >= *size as f64);
    unit.map_or_else(
        || format!("{value:.0} B"),
        |(size, name)| format!("{} {name}", digits(value / size as f64)),
    )
}

/// `850 ns`, `12.3 µs`, `1.20 ms`, `3.40 s`.
pub(super) fn time(value: Duration) -> String {
    let seconds = value.as_secs_f64();
    match seconds {
        seconds if seconds >= 1.0 => format!("{} s", digits(seconds)),
        seconds if seconds >= 1e-3 => format!("{} ms", digits(seconds * 1e3)),
        seconds if seconds >= 1e-6 => format!("{} µs", digits(seconds * 1e6)),
        seconds => format!("{:.0} ns", seconds * 1e9),
    }
}

/// `3 d 4 h`, `2 h 5 min`, `9 s`: the largest unit and the next smaller one.
pub(super) fn span(seconds: u64) -> String {
    let units = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let first = units.iter().position(|(size, _)| seconds >= *size).unwrap_or(3);
    let (size, name) = units[first];
    let rest = units.get(first + 1).map(|(below, name)| (seconds % size / below, name));
    match rest {
        Some((more, below)) if more > 0 => format!("{} {name} {more} {below}", seconds / size),
        _ => format!("{} {name}", seconds / size),
    }
}

/// `12.3 %` for a share between 0 and 1.
pub(super) fn percent(part: f64) -> String {
    match part * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.01 => "< 0.01 %".to_owned(),
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent if percent >= 99.95 => "100 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

/// The value as text, or a dash if there is none.
pub(super) fn or_none<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), text)
}

/// A time in the APIs' format (`2030-01-31T08:12:01Z`), shown to the minute.
pub(super) fn instant(text: &str) -> Markup {
    let shown = match (text.get(..10), text.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute}"),
        _ => text.to_owned(),
    };
    html! { time datetime=(text) title={ (text) } { (shown) } }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// A number with its noun: `1 link`, `2 links`.
pub(super) fn number(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count as u64), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_a_unit() {
        let counts = [0.0, 0.44, 3.0, 12.6, 1234.0, 45_678.0, 4_560_000.0, 7e9].map(count);
        assert_eq!(counts, ["0", "0.4", "3", "13", "1,234", "45.7 k", "4.56 M", "7.00 G"]);
        assert_eq!([999, 1000, 1_234_567].map(grouped), ["999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 1023.0, 1536.0, 2e9].map(bytes), ["0 B", "1023 B", "1.50 KiB", "1.86 GiB"]);
        assert_eq!(
            [850, 12_300, 1_200_000].map(|nanos| time(Duration::from_nanos(nanos))),
            ["850 ns", "12.3 µs", "1.20 ms"]
        );
        assert_eq!([0, 59, 60, 3700, 90_000].map(span), ["0 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h"]);
        assert_eq!(
            [0.0, 0.00001, 0.005, 0.5, 0.9999].map(percent),
            ["0 %", "< 0.01 %", "0.50 %", "50.0 %", "100 %"]
        );
    }
}
