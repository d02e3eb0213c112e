//! What lies below the root, and the answer for each path: for operators, on the admin listener, with `--admin-browse`.
//!
//! ```text
//! GET /browse?path=/a/            the entries of a directory by name, a page of them; &after=NAME goes on behind that
//! GET /answer?path=/a/b.html      what a stranger's GET is answered, by which rules, and what is kept of it in memory
//! ```
//!
//! Paths are escaped as in URLs, so names may have any bytes. Both pages use the code that serves files, and report
//! what a rule or a symbolic link prevents.
//!
//! - `directory`: a page of entries. `answer`: the answer for a path.

mod answer;
mod directory;

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::Serialize;
use service::health::Answer;
use service::problem::Problem;
use tokio::sync::Semaphore;

use crate::http::path;
use crate::site::Site;
use crate::site::root::Error;
use crate::worker::shared::SharedState;

/// Requests at once, since each may read a whole directory.
const AT_ONCE: usize = 2;

/// The escaped characters of paths: everything with a meaning in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Answers operators. Clones share its state.
#[derive(Clone, Debug)]
pub struct Browser {
    shared: Arc<SharedState>,
    places: Arc<Semaphore>,
}

/// Where a file is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Kept {
    /// Whether the kernel's page cache has all of it.
    page_cache: bool,
    /// Whether there is a copy in pipes, since it is requested often.
    pipe: bool,
    /// Whether there is a copy for TLS, likewise.
    tls: bool,
}

impl Browser {
    /// Answers for the server with this state.
    pub fn new(shared: Arc<SharedState>) -> Self {
        Self { shared, places: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The answer to a `GET` of this path and query; none if the path is neither of the two pages.
    pub async fn answer(self, target: String) -> Option<Answer> {
        let (page, query) = target.split_once('?').unwrap_or((&target, ""));
        let browses = match page {
            "/browse" => true,
            "/answer" => false,
            _ => return None,
        };
        let field = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        let (raw, after) = (field("path").to_owned(), field("after").to_owned());
        let Ok(_place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Some(Answer::problem(Problem::unavailable("others are looking; ask again")));
        };
        let looked = tokio::task::spawn_blocking(move || self.look(browses, &raw, &after)).await;
        let looked = looked.unwrap_or_else(|_| Err(Problem::internal("the look ended in a panic").into()));
        Some(looked.map_or_else(|problem| Answer::problem(*problem), Answer::json))
    }

    fn look(&self, browses: bool, raw: &str, after: &str) -> Result<String, Box<Problem>> {
        let site = self.shared.site();
        if site.origin.is_some() {
            return Err(
                Problem::conflict("files are of object storage here, which has no directories").into()
            );
        }
        let path = path::decode(raw, site.hidden)
            .map_err(|_| Box::new(Problem::unprocessable("this path leads to nothing that is served")))?;
        let told = if browses {
            let after = decoded_name(after)?;
            serde_json::to_string(&directory::page(self, &site, &path, &after).map_err(problem)?)
        } else {
            serde_json::to_string(&answer::of(self, &site, &path)?)
        };
        told.map_err(|error| Problem::internal(error.to_string()).into())
    }

    /// Where an open file is in memory.
    fn kept(&self, file: &crate::site::root::OpenedFile) -> Kept {
        let size = file.identity.size;
        Kept {
            page_cache: size == 0 || crate::disk::resident::is_resident(&file.fd, &(0..size)),
            pipe: self.shared.pipe_copies.has(&file.identity),
            tls: self.shared.memory_copies.has(&file.identity),
        }
    }
}

/// The name of a directory's entry, which need not be one that clients can ask for; or nothing.
fn decoded_name(raw: &str) -> Result<Vec<u8>, Box<Problem>> {
    let name: Vec<u8> = percent_decode_str(raw).collect();
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Problem::unprocessable("there can be no entry of this name").into());
    }
    Ok(name)
}

/// Escapes a path for a query.
fn escaped(path: &[u8]) -> String {
    percent_encode(path, ESCAPED).to_string()
}

fn problem(error: Error) -> Box<Problem> {
    Box::new(match error {
        Error::Missing => Problem::not_found("there is no such directory, or it is none that is served"),
        Error::Denied => Problem::forbidden("the server may not read it"),
        error => Problem::unavailable(error.to_string()),
    })
}

/// The rules that match a path, as in their file.
fn rules(site: &Site, path: &[u8]) -> Vec<serde_json::Value> {
    let path = [b"/", path].concat();
    let told = site.rules_for(&path).map(|(number, rule)| {
        let mut told = serde_json::to_value(rule).unwrap_or_default();
        if let Some(fields) = told.as_object_mut() {
            let says_nothing = |value: &serde_json::Value| {
                value.is_null()
                    || value == false
                    || value == ""
                    || value.as_object().is_some_and(|map| map.is_empty())
            };
            // An empty value means something if it cancels an earlier rule, but not as a pattern or a flag.
            fields.retain(|name, value| !says_nothing(value) || (value == "" && name != "path"));
            fields.insert("rule".into(), number.into());
        }
        told
    });
    told.collect()
}
