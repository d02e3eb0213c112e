//! A service's metrics, in Prometheus's text format.

/// All metrics at one time.
#[derive(Clone, Debug)]
pub struct Metrics(String);

impl Metrics {
    /// Metrics from the text of `/metrics`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value of the metric with this name and labels.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[track_caller]
    pub fn value(&self, name: &str) -> f64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_else(|| panic!("no {name} in\n{}", self.0))
    }

    /// The value on the first line that contains all of these texts.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    #[track_caller]
    pub fn with(&self, parts: &[&str]) -> f64 {
        let mut lines = self.samples().filter(|line| parts.iter().all(|part| line.contains(part)));
        lines.find_map(value).unwrap_or_else(|| panic!("no {parts:?} in\n{}", self.0))
    }

    /// The sum of all metrics whose names start with `name`.
    #[must_use]
    pub fn sum(&self, name: &str) -> f64 {
        self.samples().filter(|line| line.starts_with(name)).filter_map(value).sum()
    }

    /// The text from `/metrics`.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    fn samples(&self) -> impl Iterator<Item = &str> {
        self.0.lines().filter(|line| !line.starts_with('#'))
    }
}

fn value(line: &str) -> Option<f64> {
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_name_or_by_what_is_on_its_line() {
        let metrics =
            Metrics::new("# TYPE a counter\na 1\na{b=\"x\",c=\"y\"} 2\na{b=\"x\",c=\"z\"} 3\nab 4\n");
        assert_eq!((metrics.value("a"), metrics.value("a{b=\"x\",c=\"z\"}")), (1.0, 3.0));
        assert_eq!(metrics.with(&["a{", "c=\"z\""]), 3.0);
        assert_eq!(metrics.sum("a{"), 5.0);
    }
}
