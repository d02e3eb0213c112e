//! Decides whether a node is healthy: all of its services are ready, run their wave's generation and have few errors,
//! and its doctor finds nothing critical.

use super::node::{Facts, Machine, Report, Service};

/// The shortest prefix that identifies a commit, in characters; git's own default is 7.
const SHORT: usize = 7;
/// With fewer requests than this, an error rate means nothing: one failure out of three requests isn't a rate of one
/// third.
const MIN_REQUESTS: f64 = 100.0;

/// What is expected of a node.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    /// The commit of its wave; none if it is unknown.
    pub commit: Option<&'a str>,
    /// The percentage of its requests that may be answered with 5xx.
    pub max_error_percent: f64,
}

/// Whether a node that reports this generation was built from a commit.
pub fn is_of(generation: &str, commit: &str) -> bool {
    // A build from uncommitted changes, such as `COMMIT-dirty`, belongs to no commit.
    generation.len() >= SHORT && commit.starts_with(generation)
}

/// The percentage of requests between two reports that were answered with 5xx; none if there were no requests.
pub fn error_percent(before: Option<&Report>, now: &Report) -> Option<f64> {
    let (requests, errors) = between(before, now);
    (requests > 0.0).then(|| errors / requests * 100.0)
}

/// What is wrong with a node, each in words that name the service; empty if the node is healthy. `before` is its first
/// report.
pub fn problems(before: Option<&Report>, now: &Report, expected: &Expected<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (at, service) in &now.services {
        match service {
            Service::Silent(why) => found.push(format!("{at} does not report: {why}")),
            Service::Reports(facts) => of_service(facts, expected, &mut found),
        }
    }
    match &now.machine {
        Some(Machine::Silent(why)) => found.push(format!("its machine does not report: {why}")),
        Some(Machine::Findings { critical, .. }) if *critical > 0.0 => {
            found.push(format!("its doctor has {critical} critical findings: linerate doctor there"));
        }
        _ => {}
    }
    let (requests, errors) = between(before, now);
    let percent = errors / requests * 100.0;
    if requests >= MIN_REQUESTS && percent > expected.max_error_percent {
        let max = expected.max_error_percent;
        found.push(format!("{percent:.1} % of {requests} requests were answered 5xx, and {max} % may be"));
    }
    found
}

fn of_service(facts: &Facts, expected: &Expected<'_>, found: &mut Vec<String>) {
    let Facts { service, generation, not_ready, .. } = facts;
    if let Some(why) = not_ready {
        found.push(format!("{service} is not ready: {why}"));
    }
    if let Some(commit) = expected.commit
        && !is_of(generation, commit)
    {
        let runs = if generation.is_empty() { "names no generation" } else { generation };
        found.push(format!(
            "{service} is of another generation: {runs}, and its wave is at {}",
            short(commit)
        ));
    }
}

/// A commit, shortened for display.
pub fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// The number of requests, and how many of them were answered with 5xx.
fn between(before: Option<&Report>, now: &Report) -> (f64, f64) {
    let mut sum = (0.0, 0.0);
    for (at, service) in &now.services {
        let Service::Reports(facts) = service else { continue };
        let earlier = before.and_then(|report| report.services.get(at));
        let (requests, errors) = match earlier {
            // The counters of a restarted service start at zero.
            Some(Service::Reports(earlier))
                if earlier.requests <= facts.requests && earlier.errors <= facts.errors =>
            {
                (facts.requests - earlier.requests, facts.errors - earlier.errors)
            }
            _ => (facts.requests, facts.errors),
        };
        sum = (sum.0 + requests, sum.1 + errors);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "4f2a90c1b2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7";

    fn facts(requests: f64, errors: f64) -> Facts {
        Facts {
            service: "links".into(),
            version: "0.1.0".into(),
            generation: COMMIT.into(),
            not_ready: None,
            requests,
            errors,
        }
    }

    fn report(service: Service, machine: Option<Machine>) -> Report {
        let services = [("http://a:1".to_owned(), service)].into();
        Report { node: "a".into(), wave: "canary".into(), services, machine }
    }

    fn found(before: Option<&Report>, now: &Report) -> Vec<String> {
        problems(before, now, &Expected { commit: Some(COMMIT), max_error_percent: 1.0 })
    }

    #[test]
    fn each_problem_of_a_node_is_named() {
        let healthy = || report(Service::Reports(facts(5.0, 0.0)), None);
        let of = |facts: Facts| report(Service::Reports(facts), None);
        let findings = |critical| Some(Machine::Findings { critical, warning: 9.0 });
        let cases = [
            (healthy(), None),
            (report(Service::Reports(facts(0.0, 0.0)), findings(0.0)), None),
            (report(Service::Reports(facts(0.0, 0.0)), findings(1.0)), Some("1 critical findings")),
            (
                report(Service::Reports(facts(0.0, 0.0)), Some(Machine::Silent("x".into()))),
                Some("its machine does not"),
            ),
            (report(Service::Silent("timeout".into()), None), Some("http://a:1 does not report: timeout")),
            (
                of(Facts { not_ready: Some("stopping".into()), ..facts(0.0, 0.0) }),
                Some("links is not ready: stopping"),
            ),
            (of(Facts { generation: String::new(), ..facts(0.0, 0.0) }), Some("names no generation")),
            (
                of(Facts { generation: "4f2a90".into(), ..facts(0.0, 0.0) }),
                Some("another generation: 4f2a90,"),
            ),
            (of(Facts { generation: "4f2a90c".into(), ..facts(0.0, 0.0) }), None),
            (of(Facts { generation: format!("{COMMIT}-dirty"), ..facts(0.0, 0.0) }), Some("-dirty")),
            // Below 100 requests, errors mean nothing; from 100 on, at most 1 % may fail.
            (of(facts(99.0, 99.0)), None),
            (of(facts(100.0, 1.0)), None),
            (of(facts(100.0, 2.0)), Some("2.0 % of 100 requests")),
        ];
        for (now, expected) in cases {
            let found = found(None, &now);
            assert_eq!(found.len(), usize::from(expected.is_some()), "{found:?}");
            assert!(expected.is_none_or(|expected| found[0].contains(expected)), "{found:?}");
        }
    }

    #[test]
    fn errors_count_from_the_first_report_on_or_from_a_restart() {
        let at = |requests, errors| report(Service::Reports(facts(requests, errors)), None);
        let before = at(1000.0, 1000.0);
        for (now, unhealthy) in [
            (at(2000.0, 1005.0), false),
            (at(2000.0, 1100.0), true),
            // It was restarted in between.
            (at(500.0, 400.0), true),
            (at(500.0, 1.0), false),
        ] {
            assert_eq!(!found(Some(&before), &now).is_empty(), unhealthy, "{now:?}");
        }
        assert_eq!(error_percent(Some(&before), &before), None);
    }
}
