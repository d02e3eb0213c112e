//! Counts clicks, from the visit to the store.
//!
//! Each worker counts in its own [`Counter`], which only its thread touches. A few times a second it adds its counts
//! to the single [`ClickBuffer`]. So the store updates a popular link once per flush, not once per worker.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::agent::Agent;
use crate::country::Country;
use crate::geoip::GeoIp;
use crate::store::{Click, ClickBatch, CountryClick, OTHER};
use crate::when::HOURS;

/// Distinct referrers between two flushes. Further ones are counted as [`OTHER`].
const MAX_REFERRERS: usize = 1024;

/// Distinct counts that the buffer holds while the store cannot write: some 64 MiB. Counts beyond that are lost.
const MAX_ENTRIES: usize = 1 << 20;

/// Memory for the referrers of these counts, in bytes. Further ones are counted as [`OTHER`].
const MAX_REFERRER_BYTES: usize = 16 << 20;

/// What the buffer holds for a referrer besides its text, in bytes: two entries of a table that is half full.
const REFERRER_BYTES: usize = 2 * size_of::<(String, u32)>();

/// Distinct pairs of link and address, per worker, that wait for their country. Further visits count for an unknown
/// country.
const MAX_ADDRESSES: usize = 1 << 16;

/// The longest host name (RFC 1035, section 2.3.4), in bytes.
const MAX_HOST_BYTES: usize = 253;

/// Slots of the table that remembers the classification of recent `User-Agent` values.
const AGENT_SLOTS: usize = 64;

/// A worker's clicks since they were last taken. Its size is limited by what a worker can answer between two ticks.
pub struct Counter {
    hour: i32,
    counts: HashMap<(i64, u32, Agent), u32, foldhash::fast::RandomState>,
    referrers: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    agents: Box<[(Box<[u8]>, Agent)]>,
    /// Visits by link and address, if countries are counted.
    addresses: HashMap<(i64, Option<IpAddr>), u32, foldhash::fast::RandomState>,
}

/// A worker's counts.
#[derive(Debug, Default)]
pub struct Counted {
    /// The clicks.
    pub clicks: ClickBatch,
    /// The visits' addresses; empty unless countries are counted.
    pub visits: Vec<Visits>,
}

/// Visits of one link, within one hour, from one address.
#[derive(Clone, Copy, Debug)]
pub struct Visits {
    link: i64,
    hour: i32,
    address: Option<IpAddr>,
    count: u32,
}

impl Counter {
    /// Counts for an hour, in hours since the Unix epoch.
    pub fn new(hour: i32) -> Self {
        Self {
            hour,
            counts: HashMap::default(),
            referrers: HashMap::default(),
            agents: (0..AGENT_SLOTS).map(|_| (Box::default(), Agent::None)).collect(),
            addresses: HashMap::default(),
        }
    }

    /// Counts one click. `referrer` and `agent` are the `Referer` and `User-Agent` fields as received.
    pub fn count(&mut self, link: i64, referrer: Option<&[u8]>, agent: Option<&[u8]>) {
        let referrer = referrer.and_then(host).map_or(0, |host| self.referrer(host));
        let agent = agent.map_or(Agent::None, |agent| self.agent(agent));
        *self.counts.entry((link, referrer, agent)).or_insert(0) += 1;
    }

    /// Counts a click for the country of this address, which is looked up later.
    pub fn locate(&mut self, link: i64, address: Option<IpAddr>) {
        let known = self.addresses.len() < MAX_ADDRESSES || self.addresses.contains_key(&(link, address));
        *self.addresses.entry((link, address.filter(|_| known))).or_insert(0) += 1;
    }

    /// Returns the counts and starts over, in `hour`. Returns `None` if nothing was counted.
    pub fn take(&mut self, hour: i32) -> Option<Counted> {
        let counted = std::mem::replace(&mut self.hour, hour);
        if self.counts.is_empty() {
            return None;
        }
        let mut referrers = vec![String::new(); self.referrers.len() + 1];
        for (host, index) in self.referrers.drain() {
            referrers[index as usize] = host.into_string();
        }
        let clicks = self
            .counts
            .drain()
            .map(|((link, referrer, agent), count)| Click { link, hour: counted, referrer, agent, count })
            .collect();
        let visits = self
            .addresses
            .drain()
            .map(|((link, address), count)| Visits { link, hour: counted, address, count })
            .collect();
        Some(Counted { clicks: ClickBatch { referrers, clicks, countries: Vec::new() }, visits })
    }

    /// The index of a host, from 1; 0 means no referrer.
    fn referrer(&mut self, host: &str) -> u32 {
        if let Some(index) = self.referrers.get(host) {
            return *index;
        }
        // The last index is for all further hosts.
        let lower: Box<str> = if self.referrers.len() + 1 < MAX_REFERRERS {
            host.to_ascii_lowercase().into_boxed_str()
        } else {
            OTHER.into()
        };
        let next = self.referrers.len() as u32 + 1;
        *self.referrers.entry(lower).or_insert(next)
    }

    /// The kind of program with this `User-Agent`. Remembered, since browsers repeat the same long value.
    pub fn agent(&mut self, value: &[u8]) -> Agent {
        // Length and last byte distinguish common agents well enough. A collision only costs another classification.
        let slot = (value.len() ^ usize::from(value.last().copied().unwrap_or(0)) << 2) % AGENT_SLOTS;
        let (known, agent) = &mut self.agents[slot];
        if known.as_ref() != value {
            *agent = Agent::classify(value);
            *known = value.into();
        }
        *agent
    }
}

/// The clicks of all workers that are not in the store yet.
#[derive(Debug, Default)]
pub struct ClickBuffer(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    counts: HashMap<(i64, i32, u32, Agent), u32, foldhash::fast::RandomState>,
    /// Index of each host in a batch, from 1; 0 is none.
    referrers: HashMap<String, u32, foldhash::fast::RandomState>,
    /// The memory that they take.
    referrer_bytes: usize,
    clicks: u64,
    /// Visits whose countries still have to be looked up.
    visits: Vec<Visits>,
    countries: Countries,
}

/// Clicks by link, day and country.
type Countries = HashMap<(i64, i32, Country), u64, foldhash::fast::RandomState>;

impl ClickBuffer {
    /// Adds a worker's counts. Returns how many of its clicks found no room.
    pub fn enter_counted(&self, counted: Counted) -> u64 {
        let mut entries = self.lock();
        // Visits wait for the next flush only. If it fails, their countries come back as part of the batch.
        let room = MAX_ENTRIES.saturating_sub(entries.visits.len());
        entries.visits.extend(counted.visits.into_iter().take(room));
        entries.enter(counted.clicks)
    }

    /// Adds back a batch that the store did not accept. Returns how many clicks found no room.
    pub fn enter(&self, batch: ClickBatch) -> u64 {
        // Workers wait for the lock. So the batch, which grows while the store is away, is entered without it, and then
        // the few clicks that came meanwhile.
        let mut all = Entries::default();
        let lost = all.enter(batch);
        let mut entries = self.lock();
        std::mem::swap(&mut *entries, &mut all);
        entries.visits = std::mem::take(&mut all.visits);
        let newer = all.batch(|_| Country::UNKNOWN);
        lost + newer.map_or(0, |newer| entries.enter(newer))
    }

    /// Takes everything for the store, with the visits' countries. The caller adds back what the store does not accept.
    pub fn take(&self, geoip: Option<&GeoIp>) -> Option<ClickBatch> {
        let taken = std::mem::take(&mut *self.lock());
        // The look-ups happen here, since no client waits for this call.
        let country = |address: Option<IpAddr>| match (geoip, address) {
            (Some(geoip), Some(address)) => geoip.country(address),
            _ => Country::UNKNOWN,
        };
        taken.batch(country)
    }

    /// Clicks that were added and not taken.
    pub fn pending(&self) -> u64 {
        self.lock().clicks
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn enter(&mut self, batch: ClickBatch) -> u64 {
        for CountryClick { link, day, country, count } in batch.countries {
            let key = (link, day, country);
            if self.countries.len() < MAX_ENTRIES || self.countries.contains_key(&key) {
                *self.countries.entry(key).or_insert(0) += count;
            }
        }
        let mut hosts = batch.referrers;
        let mut indices: Vec<Option<u32>> = hosts.iter().map(|host| self.known(host)).collect();
        let mut lost = 0;
        for click in batch.clicks {
            let at = click.referrer as usize;
            let full = self.counts.len() >= MAX_ENTRIES;
            // A host is added along with a count, so there are never more hosts than counts.
            if !full && indices.get(at) == Some(&None) {
                indices[at] = Some(self.referrer(std::mem::take(&mut hosts[at])));
            }
            let referrer = indices.get(at).copied().unwrap_or(Some(0));
            let key = referrer.map(|referrer| (click.link, click.hour, referrer, click.agent));
            match key.filter(|key| !full || self.counts.contains_key(key)) {
                Some(key) => {
                    *self.counts.entry(key).or_insert(0) += click.count;
                    self.clicks += u64::from(click.count);
                }
                None => lost += u64::from(click.count),
            }
        }
        lost
    }

    /// The index of a host, if it has one.
    fn known(&self, host: &str) -> Option<u32> {
        if host.is_empty() { Some(0) } else { self.referrers.get(host).copied() }
    }

    /// The index of a host that may be new.
    fn referrer(&mut self, mut host: String) -> u32 {
        let bytes = REFERRER_BYTES + host.len();
        if self.referrer_bytes + bytes > MAX_REFERRER_BYTES {
            host = OTHER.to_owned();
        }
        let next = self.referrers.len() as u32 + 1;
        *self.referrers.entry(host).or_insert_with(|| {
            self.referrer_bytes += bytes;
            next
        })
    }

    /// Everything as a batch, with the country of each address.
    fn batch(self, country: impl Fn(Option<IpAddr>) -> Country) -> Option<ClickBatch> {
        let Self { counts, referrers, visits, mut countries, .. } = self;
        if counts.is_empty() {
            return None;
        }
        for Visits { link, hour, address, count } in visits {
            let key = (link, hour.div_euclid(HOURS), country(address));
            *countries.entry(key).or_insert(0) += u64::from(count);
        }
        let mut hosts = vec![String::new(); referrers.len() + 1];
        for (host, index) in referrers {
            hosts[index as usize] = host;
        }
        let clicks = counts
            .into_iter()
            .map(|((link, hour, referrer, agent), count)| Click { link, hour, referrer, agent, count })
            .collect();
        let countries = countries
            .into_iter()
            .map(|((link, day, country), count)| CountryClick { link, day, country, count })
            .collect();
        Some(ClickBatch { referrers: hosts, clicks, countries })
    }
}

/// The host of a `Referer` value (RFC 9110, section 10.1.3), without port or user.
fn host(referrer: &[u8]) -> Option<&str> {
    let text = str::from_utf8(referrer).ok()?;
    let (_, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (_, authority) = authority.rsplit_once('@').unwrap_or(("", authority));
    let host = match authority.strip_prefix('[') {
        Some(literal) => literal.split(']').next()?,
        None => authority.split(':').next()?,
    };
    let fits = !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.bytes().all(|b| b.is_ascii_graphic());
    fits.then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_found_in_a_referrer() {
        for (referrer, expected) in [
            ("https://example.com/a/b?c", Some("example.com")),
            ("http://example.com", Some("example.com")),
            ("https://user:secret@example.com:8443/", Some("example.com")),
            ("https://[2001:db8::1]:443/x", Some("2001:db8::1")),
            ("https://example.com?q=http://other.org/", Some("example.com")),
            ("android-app://com.slack/", Some("com.slack")),
            ("about:blank", None),
            ("https:///path", None),
            ("", None),
            ("https://exa mple.com/", None),
        ] {
            assert_eq!(host(referrer.as_bytes()), expected, "{referrer}");
        }
        assert_eq!(host(&[b'a', b':', b'/', b'/', 0xff]), None);
    }

    #[test]
    fn clicks_are_summed_by_link_referrer_and_agent() {
        let mut counter = Counter::new(7);
        for _ in 0..3 {
            counter.count(1, Some(b"https://News.Example/x"), Some(b"curl/8.0"));
        }
        counter.count(1, Some(b"https://news.example/y"), Some(b"curl/8.0"));
        counter.count(1, None, Some(b"curl/8.0"));
        counter.count(2, None, None);
        let batch = counter.take(8).expect("clicks were counted").clicks;
        assert_eq!(batch.total(), 6);
        assert_eq!(batch.clicks.len(), 3);
        assert!(batch.clicks.iter().all(|click| click.hour == 7));
        let news = batch.clicks.iter().find(|click| click.count == 4).expect("four came from one host");
        assert_eq!(batch.referrers[news.referrer as usize], "news.example");
        assert_eq!(news.agent, Agent::Tool);
        assert!(counter.take(8).is_none());
    }

    #[test]
    fn the_ledger_adds_workers_up_and_gives_each_click_once() {
        let click_buffer = ClickBuffer::default();
        let mut workers = [Counter::new(7), Counter::new(7)];
        workers[0].count(1, Some(b"https://a.example/"), None);
        for worker in &mut workers {
            worker.count(1, Some(b"https://b.example/"), None);
            worker.count(2, None, None);
            assert_eq!(worker.take(7).map_or(0, |counted| click_buffer.enter_counted(counted)), 0);
        }
        assert_eq!(click_buffer.pending(), 5);
        let batch = click_buffer.take(None).expect("clicks were entered");
        let mut counts: Vec<_> = batch
            .clicks
            .iter()
            .map(|click| (click.link, batch.referrers[click.referrer as usize].as_str(), click.count))
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [(1, "a.example", 1), (1, "b.example", 2), (2, "", 2)]);
        assert_eq!((click_buffer.take(None).is_none(), click_buffer.pending()), (true, 0));
        click_buffer.enter(batch);
        assert_eq!(click_buffer.pending(), 5, "what the store refused is there again");
    }

    #[test]
    fn referrers_past_the_bound_share_one_name() {
        let mut counter = Counter::new(0);
        for n in 0..2 * MAX_REFERRERS {
            counter.count(1, Some(format!("https://h{n}.example/").as_bytes()), None);
        }
        let batch = counter.take(0).expect("clicks were counted").clicks;
        assert_eq!(batch.referrers.len(), MAX_REFERRERS + 1);
        let other = batch.referrers.iter().position(|name| name == OTHER).expect("the rest has a name");
        let rest =
            batch.clicks.iter().find(|click| click.referrer as usize == other).expect("it was counted");
        assert_eq!(rest.count as usize, MAX_REFERRERS + 1);
    }

    #[test]
    fn a_lost_click_leaves_no_referrer_behind() {
        let click = |link, referrer| Click { link, hour: 7, referrer, agent: Agent::None, count: 1 };
        let batch = |hosts: u32, clicks| {
            let hosts = (0..hosts).map(|n| if n == 0 { String::new() } else { format!("h{n}.example") });
            ClickBatch { referrers: hosts.collect(), clicks, ..ClickBatch::default() }
        };
        let click_buffer = ClickBuffer::default();
        let full = batch(2, (0..MAX_ENTRIES as i64).map(|link| click(link, 1)).collect());
        assert_eq!(click_buffer.enter(full), 0);
        for _ in 0..2 {
            let new = batch(1_001, (1..=1_000).map(|n| click(0, n)).collect());
            // The first host is known, and so is the count.
            assert_eq!(click_buffer.enter_counted(Counted { clicks: new, visits: Vec::new() }), 999);
            let batch = click_buffer.take(None).expect("clicks were entered");
            assert_eq!((batch.referrers.len(), batch.clicks.len()), (2, MAX_ENTRIES));
            assert_eq!(click_buffer.enter(batch), 0);
        }
        assert_eq!(click_buffer.pending(), MAX_ENTRIES as u64 + 2);
    }

    #[test]
    fn referrers_past_the_memory_share_one_name() {
        let host = |n: usize| format!("{n:0>width$}", width = MAX_HOST_BYTES);
        let fits = MAX_REFERRER_BYTES / (REFERRER_BYTES + MAX_HOST_BYTES);
        let clicks = (0..2 * fits as u32)
            .map(|referrer| Click { link: 1, hour: 7, referrer, agent: Agent::None, count: 1 })
            .collect();
        let batch =
            ClickBatch { referrers: (0..2 * fits).map(host).collect(), clicks, ..ClickBatch::default() };
        let click_buffer = ClickBuffer::default();
        assert_eq!(click_buffer.enter(batch), 0);
        let batch = click_buffer.take(None).expect("clicks were entered");
        assert_eq!(batch.referrers.len(), fits + 2, "with none, and with the other ones");
        let other = batch.clicks.iter().find(|click| batch.referrers[click.referrer as usize] == OTHER);
        assert_eq!(other.map(|click| click.count as usize), Some(fits));
    }

    #[test]
    fn what_came_while_the_store_refused_a_batch_is_added_to_it() {
        let counted = |links: &[i64]| {
            let mut counter = Counter::new(30);
            for &link in links {
                counter.count(link, Some(b"https://a.example/"), None);
                counter.locate(link, None);
            }
            counter.take(31).expect("clicks were counted")
        };
        let click_buffer = ClickBuffer::default();
        click_buffer.enter_counted(counted(&[1, 2]));
        let refused = click_buffer.take(None).expect("clicks were entered");
        click_buffer.enter_counted(counted(&[2, 3]));
        click_buffer.enter(refused);
        assert_eq!(click_buffer.pending(), 4);
        let batch = click_buffer.take(None).expect("clicks were entered");
        let mut counts: Vec<_> = batch.clicks.iter().map(|click| (click.link, click.count)).collect();
        let mut countries: Vec<_> = batch.countries.iter().map(|click| (click.link, click.count)).collect();
        counts.sort_unstable();
        countries.sort_unstable();
        assert_eq!((counts, batch.referrers.len()), (vec![(1, 1), (2, 2), (3, 1)], 2));
        assert_eq!(countries, [(1, 1), (2, 2), (3, 1)]);
    }

    #[test]
    fn countries_are_looked_up_when_clicks_are_taken_and_entered_again_as_they_are() {
        let mut counter = Counter::new(30);
        for (link, address) in [(1, "192.0.2.1"), (1, "192.0.2.1"), (1, "192.0.2.2"), (2, "198.51.100.1")] {
            counter.count(link, None, None);
            counter.locate(link, address.parse().ok());
        }
        counter.count(2, None, None);
        counter.locate(2, None);
        let click_buffer = ClickBuffer::default();
        click_buffer.enter_counted(counter.take(31).expect("clicks were counted"));
        let entries = std::mem::take(&mut *click_buffer.0.lock().expect("nobody panicked"));
        let country = |address: Option<IpAddr>| match address {
            Some(IpAddr::V4(address)) if address.octets()[0] == 192 => Country::of("DE"),
            _ => Country::UNKNOWN,
        };
        let batch = entries.batch(country).expect("clicks were entered");
        let told = |batch: &ClickBatch| {
            let mut told: Vec<_> = (batch.countries.iter())
                .map(|one| (one.link, one.day, one.country.code().to_owned(), one.count))
                .collect();
            told.sort_unstable();
            told
        };
        let expected = [(1, 1, "DE".to_owned(), 3), (2, 1, String::new(), 2)];
        assert_eq!(told(&batch), expected);
        click_buffer.enter(batch);
        assert_eq!(told(&click_buffer.take(None).expect("they are there again")), expected);
    }

    #[test]
    fn addresses_past_the_bound_are_nowhere() {
        let mut counter = Counter::new(0);
        for n in 0..2 * MAX_ADDRESSES as u32 {
            counter.count(1, None, None);
            counter.locate(1, Some(IpAddr::from(n.to_be_bytes())));
        }
        let visits = counter.take(0).expect("clicks were counted").visits;
        assert_eq!(visits.len(), MAX_ADDRESSES + 1);
        let nowhere = visits.iter().find(|visits| visits.address.is_none()).expect("the rest is somewhere");
        assert_eq!(nowhere.count as usize, MAX_ADDRESSES);
    }
}
