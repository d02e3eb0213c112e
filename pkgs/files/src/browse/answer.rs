//! What would be answered for a path: the head that a stranger's `GET` is sent, made by the code that makes all of them.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde::Serialize;
use service::problem::Problem;

use super::{Browser, Kept, escaped, rules};
use crate::cache::open_files::OpenFileCache;
use crate::http::head;
use crate::response::builder::ResponseBuilder;
use crate::response::built::Payload;
use crate::response::common_headers::CommonHeaders;
use crate::response::pending::{MAX_PENDING, PendingWork, WorkOutcome};
use crate::site::Site;
use crate::site::root::{CodingLookup, LookupMode};

/// What a browser says that it takes.
const ASKED: &str = "host: localhost\r\naccept: text/html,*/*\r\naccept-encoding: gzip, br, zstd\r\n";

/// What would be answered for a path.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    path: String,
    status: u16,
    /// The fields of the answer, in order.
    fields: Vec<(String, String)>,
    /// The path of the file that is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    /// Bytes of the body, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Whether a coding is made of it first, which is kept then.
    compressed: bool,
    kept: Kept,
    /// The rules that are for the path, as their file has them.
    rules: Vec<serde_json::Value>,
    /// Those that are for the file that is sent, where that is another.
    rules_of_sent: Vec<serde_json::Value>,
}

/// What would be answered for a path below the root.
pub(super) fn of(browser: &Browser, site: &Arc<Site>, path: &[u8]) -> Result<Told, Box<Problem>> {
    let text = format!("GET /{} HTTP/1.1\r\n{ASKED}\r\n", escaped(path));
    let request = match head::parse(text.as_bytes()) {
        Ok(Some((request, _))) => request,
        _ => return Err(Problem::unprocessable("this path is too long to be asked for").into()),
    };
    let now = SystemTime::now();
    let tail = CommonHeaders::at(now);
    let mut cache = OpenFileCache::new(4, 1, 0, None);
    let mut builder = ResponseBuilder {
        site,
        cache: &mut cache,
        tick: 1,
        now,
        memory_max: 0,
        tail: &tail,
        more: b"",
        id: None,
        last: false,
        defers_lookups: false,
        auth: &browser.shared.auth,
        variants: &browser.shared.variants,
        unencoded: false,
        client: None,
        waiting_since: None,
        began: site.has_server_timing().then(Instant::now),
        is_timed: false,
        missed: false,
        planned: None,
        checked: None,
    };
    let (mut outcome, mut head, mut compressed) = (None, Vec::new(), false);
    let built = (0..MAX_PENDING).find_map(|_| match builder.answer(&request, outcome.take(), &mut head) {
        Ok(built) => Some(built),
        Err(PendingWork::Lookup(path, _)) => {
            let found = site.find(&path, LookupMode::MayBlock, CodingLookup::Wanted);
            outcome = Some(WorkOutcome::Found(path, found));
            None
        }
        Err(PendingWork::LookupFirst { paths, asked }) => {
            let (path, found) = site.first(paths, &asked, LookupMode::MayBlock);
            outcome = Some(WorkOutcome::Found(path, found));
            None
        }
        // Asking does no work that a client would have done.
        Err(PendingWork::Encode { .. }) => {
            compressed = true;
            outcome = Some(WorkOutcome::Encoded);
            None
        }
        // Those come of what this request does not have: a query, or credentials.
        Err(PendingWork::PlanArchive(_) | PendingWork::Password(_)) => None,
    });
    let built = built.ok_or_else(|| Box::new(Problem::internal("this cannot be told")))?;
    let sent = match &built.payload {
        Payload::File { file, .. } => Some(file.path().to_vec()),
        _ => None,
    };
    let opened = sent.as_ref().and_then(|sent| site.root.file(sent, LookupMode::MayBlock).ok());
    let other = sent.as_ref().filter(|sent| sent.as_slice() != path);
    let rules_of_sent = other.map_or_else(Vec::new, |sent| rules(site, sent));
    let fields = String::from_utf8_lossy(&head).into_owned();
    // A refusal's body follows its head at once.
    let lines = fields.split("\r\n").skip(1).take_while(|line| !line.is_empty());
    let fields = lines.filter_map(|line| line.split_once(": "));
    Ok(Told {
        path: format!("/{}", escaped(path)),
        status: built.status,
        fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        bytes: built.length(),
        kept: opened.as_ref().map_or_else(Kept::default, |file| browser.kept(file)),
        sent: sent.map(|sent| format!("/{}", escaped(&sent))),
        compressed,
        rules: rules(site, path),
        rules_of_sent,
    })
}
