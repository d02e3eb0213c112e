//! Answers with a directory's content as one file.

use std::borrow::Cow;
use std::sync::Arc;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::builder::ResponseBuilder;
use super::built::{BuiltResponse, Payload};
use super::file::{allow_origin, without};
use super::pending::PendingWork;
use crate::archive::name;
use crate::archive::plan::{ArchiveRequest, PlanError};
use crate::archive::writer::ArchiveWriter;
use crate::cache::open_files::{CacheEntry, EntryKind};
use crate::http::head::{Method, Request};
use crate::site::errors::HttpError;
use crate::site::root::{self, INDEX, names_directory};
use crate::site::signature::unsigned;

impl ResponseBuilder<'_> {
    /// The answer to a request for an archive; none if the request is for something else.
    pub(super) fn archive(
        &mut self,
        entry: &CacheEntry,
        path: &[u8],
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<BuiltResponse>, PendingWork> {
        let Some(query) = request.query.filter(|_| self.site.has_archives() && names_directory(path)) else {
            return Ok(None);
        };
        // What rules lead to may be another directory than the requested one.
        let directory: &[u8] = match &entry.kind {
            EntryKind::Listing(found) => found,
            EntryKind::File(index, _) if index.path() == [path, INDEX.as_bytes()].concat() => path,
            EntryKind::File(..) | EntryKind::Directory => return Ok(None),
        };
        if request.method == Method::Options {
            return Ok(None);
        }
        // The rules for the directory, whether it has an index or not.
        let policy = self.site.policy_of(path, directory);
        let is_signed = policy.access.as_ref().is_some_and(|access| access.is_signed());
        let query = if is_signed { Cow::Owned(unsigned(query)) } else { Cow::Borrowed(query) };
        let format = match policy.archive.asked(&query) {
            None => return Ok(None),
            Some(Err(_)) => return Ok(Some(self.refuse(HttpError::Archive, request, "", out))),
            Some(Ok(format)) => format,
        };
        let plan = match self.planned.take() {
            None => {
                let (path, policy) = (directory.to_vec(), policy.archive);
                let (max_entries, max_bytes) = (policy.max_entries, policy.max_bytes);
                return Err(PendingWork::PlanArchive(Box::new(ArchiveRequest {
                    path,
                    format,
                    max_entries,
                    max_bytes,
                })));
            }
            Some(Ok(plan)) => *plan,
            Some(Err(error)) => {
                let refusal = match error {
                    PlanError::TooLarge => HttpError::ArchiveTooLarge,
                    PlanError::Busy => HttpError::ArchivesBusy,
                    PlanError::Failed(root::Error::Missing) => HttpError::Missing,
                    PlanError::Failed(root::Error::Denied) => HttpError::Denied,
                    PlanError::Failed(root::Error::Exhausted) => HttpError::Exhausted,
                    PlanError::Failed(error) => {
                        let path = String::from_utf8_lossy(directory);
                        tracing::warn!(%path, %error, "cannot look into a directory");
                        HttpError::Failed
                    }
                };
                return Ok(Some(self.refuse(refusal, request, "", out)));
            }
        };
        let Ok(archive) = ArchiveWriter::new(Arc::clone(self.site), plan, !request.old) else {
            return Ok(Some(self.refuse(HttpError::Exhausted, request, "", out)));
        };
        // This policy is that of the requested path too, and has them.
        self.access_fields = "";
        // For clients that don't know chunks, the archive ends with the connection.
        let chunked = if request.old { "" } else { "transfer-encoding: chunked\r\n" };
        let described = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {}\r\n{chunked}accept-ranges: none\r\n{}\
             x-content-type-options: nosniff\r\n{}",
            format.media_type(),
            disposition(&format!("{}.{}", name::of_directory(directory), format.name())),
            without(&policy.fields, "x-content-type-options: ")
        );
        out.extend_from_slice(described.as_bytes());
        allow_origin(&policy, request, out);
        let payload = match request.method {
            Method::Head => Payload::None,
            _ => Payload::Stream(Box::new(archive)),
        };
        self.last |= request.old;
        Ok(Some(self.end(200, request, payload, out)))
    }
}

/// The header that tells a client a file's name (RFC 6266): the name in ASCII, and in full.
fn disposition(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|one| if matches!(one, ' '..='~') && !"\"%".contains(one) { one } else { '_' })
        .collect();
    let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC);
    format!("content-disposition: attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_as_it_is_and_in_ascii() {
        for (name, told) in [
            ("a.zip", "filename=\"a.zip\"; filename*=UTF-8''a%2Ezip"),
            ("ä\"b%41", "filename=\"__b_41\"; filename*=UTF-8''%C3%A4%22b%2541"),
        ] {
            assert_eq!(disposition(name), format!("content-disposition: attachment; {told}\r\n"));
        }
    }
}
