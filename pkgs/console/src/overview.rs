//! What the services do, second by second. They are only asked while somebody watches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::metrics::{Metrics, quantile};
use crate::upstream::{Ask, Upstream};

/// A reading that is younger than this is shared by all viewers.
const FRESH: Duration = Duration::from_millis(900);

/// If two readings are further apart than this, nobody was watching in between, so they don't give a current rate.
const LATELY: Duration = Duration::from_secs(10);

/// How long a service may take to answer. All cards wait for the slowest, and readings have to stay closer than
/// [`LATELY`].
const PATIENCE: Duration = Duration::from_secs(2);

/// How many readings are kept for the charts.
const KEPT: usize = 61;

/// Asks the services, and stores their answers.
pub(crate) struct Sampler {
    services: Vec<Upstream>,
    readings: Mutex<VecDeque<Arc<Moment>>>,
}

/// The answers of all services at one time.
struct Moment {
    at: Instant,
    services: Vec<Said>,
}

/// The answer of one service.
enum Said {
    /// There was no answer, for this reason.
    Nothing(String),
    /// When it answered, whether it is ready, or why not, and its counters.
    Counts { at: Instant, unready: Option<String>, counts: Box<Counts> },
}

/// A service's counters since it was started.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    requests: f64,
    failed: f64,
    hits: Option<(f64, f64)>,
    sent: Option<f64>,
    times: Vec<(f64, f64)>,
    open: Option<f64>,
    memory: Option<f64>,
    cpu: Option<f64>,
    started: Option<f64>,
}

/// A service as the page shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    pub(crate) state: State,
    /// Requests per second.
    pub(crate) rate: Option<f64>,
    /// Responses per second that failed because of the service itself (5xx).
    pub(crate) failures: Option<f64>,
    /// Bytes sent per second.
    pub(crate) sent: Option<f64>,
    /// The median and the 99th percentile of request times.
    pub(crate) times: Option<(Duration, Duration)>,
    /// The share of requests answered from the cache, from 0 to 1.
    pub(crate) hits: Option<f64>,
    /// Open connections.
    pub(crate) open: Option<f64>,
    /// Its memory, in bytes.
    pub(crate) memory: Option<f64>,
    /// How many CPUs it keeps busy.
    pub(crate) cpu: Option<f64>,
    /// When it was started, in seconds since 1970.
    pub(crate) started: Option<f64>,
    /// Requests since it was started.
    pub(crate) requests: Option<f64>,
    /// Requests per second, oldest first; none while nobody was watching.
    pub(crate) curve: Vec<Option<f64>>,
}

/// Whether a service answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// It is ready.
    #[default]
    Ready,
    /// It runs, but isn't ready for this reason.
    NotReady(String),
    /// It can't be reached, for this reason.
    Down(String),
}

impl Sampler {
    /// Samples these services, in this order.
    pub(crate) fn new(services: Vec<Upstream>) -> Self {
        Self { services, readings: Mutex::default() }
    }

    /// The current state of the services.
    pub(crate) async fn now(&self) -> Vec<Service> {
        let mut readings = self.readings.lock().await;
        if readings.back().is_none_or(|last| last.at.elapsed() >= FRESH) {
            let asked = self.services.iter().map(said);
            let services = futures_util::future::join_all(asked).await;
            readings.push_back(Arc::new(Moment { at: Instant::now(), services }));
            if readings.len() > KEPT {
                readings.pop_front();
            }
        }
        let readings: Vec<_> = readings.iter().cloned().collect();
        let all = self.services.iter().enumerate();
        all.map(|(index, service)| shown(service.name, index, &readings)).collect()
    }
}

/// Asks a service.
async fn said(service: &Upstream) -> Said {
    let asked =
        async { tokio::join!(service.ask(Ask::get("/readyz")), service.ask_well(Ask::get("/metrics"))) };
    match timeout(PATIENCE, asked).await {
        Ok((Ok(ready), Ok(metrics))) => {
            let at = Instant::now();
            let unready = (ready.status != StatusCode::OK).then(|| reason(&ready.body));
            let text = String::from_utf8_lossy(&metrics.body);
            let counts = counts(service.name, &Metrics::parse(&text));
            Said::Counts { at, unready, counts: Box::new(counts) }
        }
        Ok((Err(error), _) | (_, Err(error))) => Said::Nothing(error.to_string()),
        Err(_) => Said::Nothing(service.late(PATIENCE).to_string()),
    }
}

/// The reason that a service gives for not being ready.
fn reason(body: &[u8]) -> String {
    let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let why = ["reason", "detail", "status"].into_iter().find_map(|name| said.get(name)?.as_str());
    why.unwrap_or("it does not say why").to_owned()
}

fn counts(name: &str, metrics: &Metrics) -> Counts {
    let of = |rest: &str| metrics.sum(&format!("linerate_{name}_{rest}"));
    let requests = format!("linerate_{name}_requests_total");
    let failed = |label: &str, value: &str| label != "status" || value.starts_with('5');
    let lookups = |wanted: &'static str| {
        metrics.sum_where("linerate_links_cache_lookups_total", move |_, value| value == wanted)
    };
    let (hits, times) = match name {
        "links" => (lookups("hit").zip(lookups("miss")), "linerate_links_sampled_read_seconds"),
        "api" => (of("cache_hits_total").zip(of("cache_misses_total")), "linerate_api_request_seconds"),
        _ => (None, ""),
    };
    Counts {
        requests: metrics.sum(&requests).unwrap_or(0.0),
        failed: metrics.sum_where(&requests, failed).unwrap_or(0.0),
        hits,
        sent: of("sent_bytes_total"),
        times: metrics.buckets(times),
        open: of("listener_open"),
        memory: metrics.sum("process_resident_memory_bytes"),
        cpu: metrics.sum("process_cpu_seconds_total"),
        started: metrics.sum("process_start_time_seconds"),
    }
}

/// The growth per second; none if the value has fallen, because the service was restarted.
fn rate(before: f64, after: f64, time: Duration) -> Option<f64> {
    (after >= before && !time.is_zero()).then(|| (after - before) / time.as_secs_f64())
}

fn shown(name: &'static str, index: usize, readings: &[Arc<Moment>]) -> Service {
    let counted = |moment: &Moment| match &moment.services[index] {
        Said::Counts { at, counts, .. } => Some((*at, (**counts).clone())),
        Said::Nothing(_) => None,
    };
    let pair = |pair: &[Arc<Moment>]| {
        let ((begin, before), (end, after)) = (counted(&pair[0])?, counted(&pair[1])?);
        let time = end.saturating_duration_since(begin);
        (time <= LATELY).then_some((before, after, time))
    };
    let pairs: Vec<_> = readings.windows(2).map(pair).collect();
    let curve = pairs.iter().map(|pair| {
        let (before, after, time) = pair.as_ref()?;
        rate(before.requests, after.requests, *time)
    });
    let mut service = Service { name, curve: curve.collect(), ..Service::default() };
    match readings.last().map(|last| &last.services[index]) {
        None => return service,
        Some(Said::Nothing(why)) => {
            service.state = State::Down(why.clone());
            return service;
        }
        Some(Said::Counts { unready, counts, .. }) => {
            if let Some(why) = unready {
                service.state = State::NotReady(why.clone());
            }
            service.open = counts.open;
            service.memory = counts.memory;
            service.started = counts.started;
            service.requests = Some(counts.requests);
            service.hits = counts.hits.and_then(part);
        }
    }
    if let Some(Some((before, after, time))) = pairs.last() {
        service.rate = rate(before.requests, after.requests, *time);
        service.failures = rate(before.failed, after.failed, *time);
        service.sent = before.sent.zip(after.sent).and_then(|(before, after)| rate(before, after, *time));
        service.cpu = before.cpu.zip(after.cpu).and_then(|(before, after)| rate(before, after, *time));
    }
    // Use the whole time that somebody has been watching: on a quiet machine, one second has few requests.
    if let (Some((before, _, _)), Some((_, after, _))) =
        (pairs.iter().flatten().next(), pairs.iter().flatten().last())
    {
        let time = |share| quantile(&before.times, &after.times, share);
        service.times = time(0.5).zip(time(0.99));
    }
    service
}

fn part((hits, misses): (f64, f64)) -> Option<f64> {
    (hits + misses > 0.0).then(|| hits / (hits + misses))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use service::socket::Address;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    fn moment(at: Instant, requests: Option<f64>) -> Arc<Moment> {
        let said = match requests {
            Some(requests) => Said::Counts {
                at,
                unready: None,
                counts: Box::new(Counts { requests, hits: Some((3.0, 1.0)), ..Counts::default() }),
            },
            None => Said::Nothing("nobody".into()),
        };
        Arc::new(Moment { at, services: vec![said] })
    }

    #[test]
    fn rates_are_of_the_last_two_readings_that_are_near_each_other() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        for (readings, rate, curve) in [
            (&[(0, Some(5.0))][..], None, &[][..]),
            (&[(0, Some(5.0)), (2, Some(25.0))], Some(10.0), &[Some(10.0)]),
            (&[(0, Some(5.0)), (2, Some(25.0)), (3, Some(26.0))], Some(1.0), &[Some(10.0), Some(1.0)]),
            (&[(0, Some(5.0)), (60, Some(25.0))], None, &[None]),
            (&[(0, Some(50.0)), (1, Some(1.0))], None, &[None]),
            (&[(0, Some(50.0)), (1, None), (2, Some(51.0))], None, &[None, None]),
        ] {
            let moments: Vec<_> = readings.iter().map(|(time, count)| moment(at(*time), *count)).collect();
            let service = shown("links", 0, &moments);
            assert_eq!((service.rate, service.curve.as_slice()), (rate, curve), "{readings:?}");
            assert_eq!(service.hits, Some(0.75));
        }
        let down = shown("links", 0, &[moment(at(0), None)]);
        assert_eq!(down.state, State::Down("nobody".into()));
    }

    /// A service at a Unix socket that gives every request this answer or, without one, never answers.
    fn serve(place: &Path, name: &'static str, answer: Option<&'static str>) -> Upstream {
        let socket = place.join(name);
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                if let Some(answer) = answer {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.expect("a head"));
                    }
                    let length = answer.len();
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{answer}");
                    stream.write_all(answer.as_bytes()).await.expect("a client");
                }
                open.push(stream);
            }
        });
        Upstream { name, address: Address::Unix(socket) }
    }

    #[tokio::test]
    async fn a_service_that_never_answers_does_not_hide_the_rates_of_the_others() {
        let place = tempfile::tempdir().expect("a directory");
        let links = serve(place.path(), "links", Some("linerate_links_requests_total 7\n"));
        let sampler = Sampler::new(vec![links, serve(place.path(), "files", None)]);
        let begun = Instant::now();
        sampler.now().await;
        tokio::time::sleep(FRESH).await;
        let services = sampler.now().await;
        // With the patience of a page, it would be twenty seconds.
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        assert_eq!((&services[0].state, services[0].rate), (&State::Ready, Some(0.0)));
        let State::Down(why) = &services[1].state else { panic!("{services:?}") };
        assert!(why.ends_with("nothing came within 2 s"), "{why}");
    }
}
