//! Metrics read at scrape time.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::Snapshot;

/// What a scrape reads: [`u64`] is a counter, [`f64`] a gauge, [`Snapshot`] a histogram.
pub trait MetricValue: Send + Sync + 'static {
    /// The metric's type.
    const TYPE: MetricType;

    /// Writes the value.
    ///
    /// # Errors
    /// When the encoder's writer fails.
    fn encode(&self, encoder: MetricEncoder<'_>) -> fmt::Result;
}

impl MetricValue for u64 {
    const TYPE: MetricType = MetricType::Counter;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter::<NoLabelSet, _, u64>(self, None)
    }
}

impl MetricValue for f64 {
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(self)
    }
}

impl MetricValue for Snapshot {
    const TYPE: MetricType = MetricType::Histogram;

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.seconds(), self.count(), &self.buckets(), None)
    }
}

/// Names and values that distinguish the series of a metric.
pub type Labels = Vec<(&'static str, String)>;

/// Lists the current series with their values.
type Changing<R> = Box<dyn Fn() -> Vec<(Labels, R)> + Send + Sync>;

/// A metric with any number of series, distinguished by labels. A closure reads each when somebody scrapes.
///
/// ```
/// use std::sync::Arc;
/// use service::metrics::{Family, LocalCounter, Registry, encode};
///
/// let workers = Arc::new([LocalCounter::new(), LocalCounter::new()]);
/// let mut registry = Registry::default();
/// let counters = workers.clone();
/// Family::new("requests", "Requests answered")
///     .with(&[("status", "307")], move || counters.iter().map(LocalCounter::get).sum::<u64>())
///     .register(&mut registry);
/// workers[0].add(2);
/// workers[1].add(1);
/// assert!(encode(&registry).contains("requests_total{status=\"307\"} 3\n"));
/// ```
pub struct Family<R> {
    name: &'static str,
    help: &'static str,
    series: Vec<(Labels, Box<dyn Fn() -> R + Send + Sync>)>,
    changing: Option<Changing<R>>,
}

impl<R: MetricValue> Family<R> {
    /// A metric without series. A counter's `name` has no `_total`, which the exposition adds. Times are in seconds,
    /// and their names end in `_seconds`. `help` has no final full stop.
    pub fn new(name: &'static str, help: &'static str) -> Self {
        Self { name, help, series: Vec::new(), changing: None }
    }

    /// Adds a series with these labels, whose value `read` returns.
    #[must_use]
    pub fn with(
        mut self,
        labels: &[(&'static str, &str)],
        read: impl Fn() -> R + Send + Sync + 'static,
    ) -> Self {
        let labels = labels.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        self.series.push((labels, Box::new(read)));
        self
    }

    /// Adds the series that `read` returns, which may differ at every scrape.
    #[must_use]
    pub fn with_changing(self, read: impl Fn() -> Vec<(Labels, R)> + Send + Sync + 'static) -> Self {
        Self { changing: Some(Box::new(read)), ..self }
    }

    /// Shows the metric in `registry`.
    pub fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }
}

impl<R> fmt::Debug for Family<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<R: MetricValue> Collector for Family<R> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // The registry adds a full stop to the help of its own metrics, but not to a collector's.
        let help = format!("{}.", self.help);
        let mut metric = encoder.encode_descriptor(self.name, &help, None, R::TYPE)?;
        for (labels, read) in &self.series {
            let value = read();
            if labels.is_empty() {
                return value.encode(metric);
            }
            value.encode(metric.encode_family(labels)?)?;
        }
        for (labels, value) in self.changing.iter().flat_map(|read| read()) {
            value.encode(metric.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LocalHistogram, encode};
    use super::*;

    #[test]
    fn each_type_is_shown_as_openmetrics_has_it() {
        let mut registry = Registry::default();
        Family::new("hits", "Hits").with(&[], || 3_u64).register(&mut registry);
        Family::new("ratio", "Ratio")
            .with(&[("of", "a"), ("on", "b")], || 0.5)
            .with(&[("of", "c")], || 1.0)
            .register(&mut registry);
        let text = encode(&registry);
        assert_eq!(
            text,
            "# HELP hits Hits.\n# TYPE hits counter\nhits_total 3\n\
             # HELP ratio Ratio.\n# TYPE ratio gauge\nratio{of=\"a\",on=\"b\"} 0.5\nratio{of=\"c\"} 1.0\n# EOF\n"
        );
    }

    #[test]
    fn series_may_come_and_go() {
        let of = std::sync::Arc::new(std::sync::Mutex::new("a"));
        let now = std::sync::Arc::clone(&of);
        let mut registry = Registry::default();
        Family::new("left", "Left")
            .with_changing(move || vec![(vec![("of", (*now.lock().unwrap()).to_owned())], 1.0)])
            .register(&mut registry);
        assert!(encode(&registry).contains("left{of=\"a\"} 1.0\n"));
        *of.lock().unwrap() = "b";
        let text = encode(&registry);
        assert!(text.contains("left{of=\"b\"} 1.0\n") && !text.contains("\"a\""), "{text}");
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_at_infinity() {
        let mut registry = Registry::default();
        let histogram = LocalHistogram::new();
        [500, 1500, u64::from(u32::MAX)].into_iter().for_each(|time| histogram.record(time));
        Family::new("wait_seconds", "Waits").with(&[], move || histogram.snapshot()).register(&mut registry);
        let text = encode(&registry);
        for line in [
            "wait_seconds_count 3",
            "wait_seconds_bucket{le=\"0.000001024\"} 1",
            "wait_seconds_bucket{le=\"0.000002048\"} 2",
            "wait_seconds_bucket{le=\"1.073741824\"} 2",
            "wait_seconds_bucket{le=\"+Inf\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
    }
}
