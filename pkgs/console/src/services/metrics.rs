//! Reads the services' counters from `/metrics` (the Prometheus text format).

use std::time::Duration;

/// The samples of one response.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(Vec<Sample>);

#[derive(Clone, Debug, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Metrics {
    /// Parses a text. Skips malformed lines.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// The sum of all samples with this name whose labels `wanted` accepts; none if there is no sample with this name.
    pub fn sum_where(&self, name: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<f64> {
        let of_name = self.0.iter().filter(|sample| sample.name == name);
        of_name.fold(None, |sum, sample| {
            let counts = sample.labels.iter().all(|(label, value)| wanted(label, value));
            Some(sum.unwrap_or(0.0) + if counts { sample.value } else { 0.0 })
        })
    }

    /// The sum of all samples with this name.
    pub fn sum(&self, name: &str) -> Option<f64> {
        self.sum_where(name, |_, _| true)
    }

    /// The value of a label of the first sample with this name.
    pub fn label(&self, name: &str, label: &str) -> Option<&str> {
        let sample = self.0.iter().find(|sample| sample.name == name)?;
        sample.labels.iter().find(|(known, _)| known == label).map(|(_, value)| value.as_str())
    }

    /// A histogram's buckets, summed up over all other labels: their bounds in ascending order, and the count up to
    /// each.
    pub fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let name = format!("{name}_bucket");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.0.iter().filter(|sample| sample.name == name) {
            let bound = sample.labels.iter().find(|(label, _)| label == "le");
            let Some(bound) = bound.and_then(|(_, bound)| number(bound)) else { continue };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets
    }
}

/// `name{label="value",…} value [time]`.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(behind) = rest.strip_prefix('}') {
                rest = behind;
                break;
            }
            let (label, value) = rest.split_once("=\"")?;
            let close = closing(value)?;
            labels.push((label.to_owned(), unescaped(&value[..close])));
            rest = &value[close + 1..];
        }
    }
    let value = number(rest.split_whitespace().next()?)?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The position of the quote that ends a value.
fn closing(value: &str) -> Option<usize> {
    let mut escaped = false;
    value.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn unescaped(value: &str) -> String {
    value.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\")
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse::<f64>().ok().filter(|value| !value.is_nan()),
    }
}

/// The quantile of a histogram between two readings: the time below which `share` of the values lie, if the values of
/// each bucket are spread evenly. None if there are no values.
pub fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> Option<Duration> {
    let earlier =
        |bound: f64| before.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count);
    // The counters of a restarted service start at zero.
    let anew = after.last().is_some_and(|(bound, count)| *count < earlier(*bound));
    let grown: Vec<(f64, f64)> = after
        .iter()
        .map(|(bound, count)| (*bound, if anew { *count } else { (count - earlier(*bound)).max(0.0) }))
        .collect();
    let all = grown.last().filter(|(_, all)| *all > 0.0)?.1;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in grown {
        if count >= share * all {
            let within = if count > below { (share * all - below) / (count - below) } else { 1.0 };
            // The last bucket has no upper bound, so take its lower one.
            let seconds = if bound.is_finite() { low + (bound - low) * within } else { low };
            return Duration::try_from_secs_f64(seconds).ok();
        }
        (low, below) = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP requests Answers.
# TYPE requests counter
requests_total{operation="get",status="2xx"} 3
requests_total{operation="list",status="2xx"} 4
requests_total{operation="get",status="5xx"} 1
memory_bytes 1024.5
odd{what="a \"b\", {c}"} 7 1700000000
broken{what=} 1
nothing NaN
times_bucket{operation="get",le="0.001"} 50
times_bucket{operation="get",le="0.01"} 90
times_bucket{operation="get",le="+Inf"} 100
times_bucket{operation="list",le="0.001"} 0
times_bucket{operation="list",le="0.01"} 100
times_bucket{operation="list",le="+Inf"} 100
"#;

    #[test]
    fn samples_are_summed_by_name_and_label() {
        let metrics = Metrics::parse(TEXT);
        assert_eq!(metrics.sum("requests_total"), Some(8.0));
        let failed = |label: &str, value: &str| label != "status" || value.starts_with('5');
        assert_eq!(metrics.sum_where("requests_total", failed), Some(1.0));
        assert_eq!(metrics.sum("memory_bytes"), Some(1024.5));
        let odd = |_: &str, value: &str| value == "a \"b\", {c}";
        assert_eq!(metrics.sum_where("odd", odd), Some(7.0));
        assert_eq!([metrics.sum("broken"), metrics.sum("nothing"), metrics.sum("absent")], [None; 3]);
    }

    #[test]
    fn quantiles_are_of_what_came_between() {
        let after = Metrics::parse(TEXT).buckets("times");
        assert_eq!(after, [(0.001, 50.0), (0.01, 190.0), (f64::INFINITY, 200.0)]);
        let millis = |before: &[(f64, f64)], share| {
            quantile(before, &after, share).map(|time| (time.as_secs_f64() * 1e4).round() / 10.0)
        };
        assert_eq!(millis(&[], 0.25), Some(1.0));
        assert_eq!(millis(&[], 0.5), Some(4.2));
        assert_eq!(millis(&[], 0.999), Some(10.0), "beyond the last bound");
        assert_eq!(millis(&[(0.001, 50.0), (0.01, 50.0), (f64::INFINITY, 60.0)], 0.5), Some(5.5));
        assert_eq!(millis(&after, 0.5), None, "nothing came");
        assert_eq!(millis(&[(f64::INFINITY, 1e9)], 0.25), Some(1.0), "it has started anew");
        assert_eq!(quantile(&[], &[], 0.5), None);
    }
}
