//! The audit log: a line for each write, with who wrote what, and digests from before and after.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

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

/// How often it is looked for room meanwhile.
const LOOK: Duration = Duration::from_millis(10);

/// Where a service's writes are logged. Clones share.
///
/// The line of a write is handed on after its transaction and before its answer. Where the disk takes no lines they wait,
/// up to 2 MiB of them, and then whoever writes does, for a second at most; what then still has no room is in the service's
/// own log in place of this one, and counted. So a full disk stops nobody, and no line goes in silence.
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

/// Who writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Actor {
    /// The id of the key or token; none where no key is asked for.
    pub key: Option<i64>,
    /// What the key is called.
    pub name: Option<String>,
    /// From where.
    pub client: Option<IpAddr>,
}

/// A write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuditRecord<'r> {
    /// What was done, such as `link.edit`.
    pub action: &'r str,
    /// To what: the id or the code; none where it was done to many.
    pub target: Option<&'r str>,
    /// The digest from before; none where there was nothing, or it is of many.
    pub before: Option<&'r str>,
    /// The digest from after; none where there is nothing any more, or it is of many.
    pub after: Option<&'r str>,
    /// How many were written; one most often.
    pub count: u64,
}

/// A line. README.md describes its fields to people.
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

/// The text of a digest, such as of SHA-256: its name, a colon and hexadecimal digits.
#[must_use]
pub fn digest(name: &str, bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(format!("{name}:"), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl AuditLog {
    /// The log that these arguments ask for, of a service of this short name; none where they ask for none.
    ///
    /// # Errors
    /// When the file cannot be written, or there are no more threads.
    pub fn open(args: &AuditLogArgs, service: &str) -> Result<Option<Self>, OpenError> {
        let Some(to) = &args.audit_log else { return Ok(None) };
        let sink = Sink::open(to, &format!("{service}-audit"), Loss::Avoided)?;
        Ok(Some(Self { sink, counts: Arc::default() }))
    }

    /// Opens the file anew before the next write, so that it can have been renamed.
    pub fn reopen(&self) {
        self.sink.reopen();
    }

    /// Waits until what was handed on is written, but not for a disk that takes none of it.
    pub fn finish(&self) {
        self.sink.finish();
    }

    /// Shows in `registry`, by these names, how many lines there were, had to wait, and found no room.
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

    /// Logs writes of one request, of this id.
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
            // Texts and numbers are JSON, and a vector takes all that is written.
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
        // As many as have room, the one that the thread has in hand, and one more.
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
        // Who waits while the thread takes its first line finds room.
        assert!(
            (1..=2).contains(&count("waited")) && (1..=count("waited")).contains(&count("lost")),
            "{text}"
        );
    }
}
