//! The answer for a path: the head that an unauthenticated `GET` would get, from the code that makes all heads.

use std::sync::Arc;
use std::time::SystemTime;

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
use crate::site::root::LookupMode;
use crate::worker::shared::SharedState;

/// The fields that a browser sends.
const ASKED: &str = "host: localhost\r\naccept: text/html,*/*\r\naccept-encoding: gzip, br, zstd\r\n";

/// The answer for a path.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    path: String,
    status: u16,
    /// Its fields, in order.
    fields: Vec<(String, String)>,
    /// The path of the file that is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<String>,
    /// The length of the body, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Whether the file is compressed first, and the result kept.
    compressed: bool,
    kept: Kept,
    /// The rules that match the path, as in their file.
    rules: Vec<serde_json::Value>,
    /// The rules that match the file that is sent, if it is a different one.
    rules_of_sent: Vec<serde_json::Value>,
}

/// The answer for a path below the root.
pub(super) fn of(browser: &Browser, site: &Arc<Site>, path: &[u8]) -> Result<Told, Box<Problem>> {
    let text = format!("GET /{} HTTP/1.1\r\n{ASKED}\r\n", escaped(path));
    let request = match head::parse(text.as_bytes()) {
        Ok(Some((request, _))) => request,
        _ => return Err(Problem::unprocessable("this path is too long to be asked for").into()),
    };
    let now = SystemTime::now();
    let tail = CommonHeaders::at(now);
    let mut cache = OpenFileCache::new(4, 1, (0, 0), None);
    let SharedState { auth, variants, .. } = &*browser.shared;
    let mut builder = ResponseBuilder::new(site, &mut cache, (1, now), &tail, auth, variants);
    let (mut outcome, mut head, mut compressed) = (None, Vec::new(), false);
    let of_site = |outcome| (outcome, Arc::clone(site));
    let attempt = |_| match builder.answer(&request, outcome.take().map(of_site), &mut head) {
        Ok(built) => Some(built),
        Err(PendingWork::Lookup(lookup)) => {
            let (path, found) = lookup.into_found(site, LookupMode::MayBlock);
            outcome = Some(WorkOutcome::Found(path, found));
            None
        }
        // This query does no work that a real request would cause.
        Err(PendingWork::Encode { .. }) => {
            compressed = true;
            outcome = Some(WorkOutcome::Encoded);
            None
        }
        // These require a query or credentials, which this request does not have.
        Err(PendingWork::PlanArchive(_) | PendingWork::Password(_)) => None,
    };
    let built = (0..MAX_PENDING).find_map(attempt);
    let built = built.ok_or_else(|| Box::new(Problem::internal("this cannot be told")))?;
    let sent = match &built.payload {
        Payload::File { file, .. } => Some(file.path().to_vec()),
        _ => None,
    };
    let opened = sent.as_ref().and_then(|sent| site.root.file(sent, LookupMode::MayBlock).ok());
    let other = sent.as_ref().filter(|sent| sent.as_slice() != path);
    let rules_of_sent = other.map_or_else(Vec::new, |sent| rules(site, sent));
    let fields = String::from_utf8_lossy(&head).into_owned();
    // A refusal's body directly follows its head.
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
