//! The audit log: a line for each write, with who wrote what, and digests from before and after.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use serde::Serialize;
use tokio::time::Instant;

use super::line::timestamp;
use super::options::AuditLogArgs;
use super::shown::Shown;
use super::sink::{Loss, OpenError, Sink};
use crate::metrics::{Family, Registry};
use crate::request_id::RequestId;

/// How long a write waits for room for its line.
const WAIT: Duration = Duration::from_secs(1);

/// How often it checks for room meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// A log of a service's writes. Clones share it.
///
/// A write's line is handed on after its transaction and before its answer. If the disk takes no lines, up to 2 MiB of
/// them wait; then writers wait, for a second at most. A line that still has no room goes to the service's own log
/// instead, and is counted. So a full disk stops no service, and no line is lost silently.
#[derive(Clone, Debug)]
pub struct AuditLog {
    sink: Sink,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    waited: AtomicU64,
}

/// The client that writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The id of its key or token; none if no key is required.
    pub key: Option<i64>,
    /// The key's name.
    pub name: Option<String>,
    /// The client's address.
    pub client: Option<IpAddr>,
}

/// A write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditRecord<'r> {
    /// What was done, such as `link.edit`.
    pub action: &'r str,
    /// What it was done to: an id or a code. None if it was done to many.
    pub target: Option<&'r str>,
    /// The digest before the write; none if there was nothing, or for many.
    pub before: Option<&'r str>,
    /// The digest after the write; none if nothing is left, or for many.
    pub after: Option<&'r str>,
    /// How many items were written; usually one.
    pub count: u64,
}

/// One line of the log. README.md describes its fields for people.
#[derive(Serialize)]
struct Line<'l> {
    kind: &'static str,
    time: &'l str,
    id: &'l str,
    client: Option<IpAddr>,
    key: Option<i64>,
    name: Option<Shown<'l>>,
    action: &'l str,
    target: Option<Shown<'l>>,
    before: Option<&'l str>,
    after: Option<&'l str>,
    count: u64,
}

/// A digest as text, such as of SHA-256: its name, a colon and hexadecimal digits.
#[must_use]
pub fn digest(name: &str, bytes: &[u8]) -> String {
    format!("{name}:{}", HEXLOWER.encode(bytes))
}

impl AuditLog {
    /// Opens the log that these arguments request, for a service of this short name. None if they request none.
    ///
    /// # Errors
    /// When the file cannot be written, or no thread can be started.
    pub fn open(args: &AuditLogArgs, service: &str) -> Result<Option<Self>, OpenError> {
        let Some(to) = &args.audit_log else { return Ok(None) };
        let sink = Sink::open(to, &format!("{service}-audit"), Loss::Avoided)?;
        Ok(Some(Self { sink, counts: Arc::default() }))
    }

    /// Reopens the file before the next write, for when it was renamed.
    pub fn reopen(&self) {
        self.sink.reopen();
    }

    /// Waits until everything handed on is written, but not for a disk that takes nothing.
    pub fn finish(&self) {
        self.sink.finish();
    }

    /// Registers three counters of lines in `registry`, by these names: written, made to wait, and lost.
    pub fn register(&self, registry: &mut Registry, [written, waited, lost]: [&'static str; 3]) {
        let counts = Arc::clone(&self.counts);
        Family::new(written, "Writes that were logged")
            .with(&[], move || counts.written.load(Relaxed))
            .register(registry);
        let counts = Arc::clone(&self.counts);
        Family::new(waited, "Writes whose answers waited for room in the audit log")
            .with(&[], move || counts.waited.load(Relaxed))
            .register(registry);
        Family::new(lost, "Lines of the audit log that found no room, and are in the service's own log")
            .with(&[], self.sink.lost())
            .register(registry);
    }

    /// Logs a write of the request with this id.
    pub async fn write<'r>(
        &self,
        id: &RequestId,
        actor: &Actor,
        records: impl IntoIterator<Item = AuditRecord<'r>>,
    ) {
        let (mut lines, time) = (Vec::new(), timestamp(SystemTime::now()));
        for record in records {
            let line = Line {
                kind: "audit",
                time: &time,
                id: id.as_str(),
                client: actor.client,
                key: actor.key,
                name: actor.name.as_ref().map(|name| Shown(name.as_bytes())),
                action: record.action,
                target: record.target.map(|target| Shown(target.as_bytes())),
                before: record.before,
                after: record.after,
                count: record.count,
            };
            // Serialising text and numbers into a vector cannot fail.
            let _ = serde_json::to_writer(&mut lines, &line);
            lines.push(b'\n');
            self.counts.written.fetch_add(1, Relaxed);
        }
        if lines.is_empty() {
            return;
        }
        let Err(mut lines) = self.sink.offer(lines) else { return };
        self.counts.waited.fetch_add(1, Relaxed);
        let deadline = Instant::now() + WAIT;
        while Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
            match self.sink.offer(lines) {
                Ok(()) => return,
                Err(again) => lines = again,
            }
        }
        self.sink.lose(&lines);
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            tracing::error!(line = %String::from_utf8_lossy(line), "the audit log has no room for a line");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sink::BLOCKS;
    use super::super::sink::tests::until;
    use super::*;

    fn open(to: &str) -> AuditLog {
        let args = AuditLogArgs { audit_log: Some(to.parse().expect("a destination")) };
        AuditLog::open(&args, "test").expect("it opens").expect("it is asked for")
    }

    #[tokio::test]
    async fn a_line_says_who_wrote_what() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("audit");
        let log = open(&path.display().to_string());
        let actor = Actor { key: Some(7), name: Some("de\nploy".into()), client: "192.0.2.1".parse().ok() };
        let id = RequestId::generate();
        let record = AuditRecord {
            action: "link.edit",
            target: Some("a\"b"),
            before: Some("sha256:00"),
            after: None,
            count: 1,
        };
        log.write(&id, &actor, [record]).await;
        log.finish();
        until(|| std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        let text = std::fs::read_to_string(&path).expect("a log");
        let mut line: serde_json::Value = serde_json::from_str(&text).expect("one line of JSON");
        assert!(line["time"].take().is_string());
        assert_eq!(
            line,
            serde_json::json!({
                "kind": "audit", "time": null, "id": id.as_str(), "client": "192.0.2.1", "key": 7, "name": "de\\x0aploy",
                "action": "link.edit", "target": "a\"b", "before": "sha256:00", "after": null, "count": 1,
            })
        );
        assert_eq!(digest("sha256", &[0, 0xab]), "sha256:00ab");
    }

    #[tokio::test]
    async fn writes_wait_for_a_full_disk_but_not_for_ever_and_are_counted() {
        let log = open("/dev/full");
        let (id, actor) = (RequestId::generate(), Actor::default());
        let record = AuditRecord { action: "link.delete", count: 1, ..AuditRecord::default() };
        // Fill the queue, the thread's own block, and one more.
        for _ in 0..BLOCKS + 2 {
            log.write(&id, &actor, [record]).await;
        }
        let mut registry = Registry::default();
        log.register(&mut registry, ["written", "waited", "lost"]);
        let text = crate::metrics::encode(&registry);
        let count = |name: &str| -> usize {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}_total ")));
            line.and_then(|count| count.parse().ok()).expect("a counter")
        };
        assert_eq!(count("written"), BLOCKS + 2);
        // A line that waits finds room once the thread takes its first.
        assert!(
            (1..=2).contains(&count("waited")) && (1..=count("waited")).contains(&count("lost")),
            "{text}"
        );
    }
}
