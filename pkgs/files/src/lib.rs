//! A file server whose bodies never pass through user space.
//!
//! The tree, from the socket inwards:
//! - [`front`]: the plain listener; one epoll loop a core.
//! - [`desk`]: what a thread answers from, on either listener.
//! - [`answer`]: from a request to a head and what follows it.
//! - [`engine`]: the ways in which bytes of a file get into a socket; [`shelf`], [`copies`]: copies to send them out of;
//!   [`whole`]: the same with their heads; [`pipes`]: what they are sent through.
//! - [`ring`]: reads of what is cold, by io_uring; [`stream`]: files on their way by it; [`admission`]: which of them the page
//!   cache is to have.
//! - [`cache`]: files kept open; [`watch`]: what inotify says of them.
//! - [`site`]: what is served: the root, the rules, the pages of errors.
//! - [`wait`]: what answers wait for. [`disk`]: the threads that wait for the disk; [`resident`]: whether they have to.
//! - [`guard`]: passwords that are tried, and known; [`pool`]: the threads that try them.
//! - [`listing`], [`listing_pool`], [`parts`]: directories, the threads that write them, and several ranges of a file.
//! - [`http`]: HTTP itself, without input or output.
//! - [`secure`], [`body`]: the same over TLS, through `listener`.
//! - [`variants`]: codings that are made of files.
//! - [`metrics`]: what operators see.
//! - [`nginx`]: rules of its configuration.
//! - [`cli`]: the command line.
#![deny(unsafe_code)]

pub mod admission;
pub mod answer;
pub mod body;
pub mod cache;
pub mod cli;
pub mod copies;
pub mod desk;
pub mod disk;
pub mod engine;
#[cfg(test)]
mod faults;
pub mod front;
pub mod guard;
pub mod http;
pub mod listing;
pub mod listing_pool;
pub mod metrics;
pub mod nginx;
pub mod parts;
pub mod pipes;
pub mod pool;
// cachestat(2) has no safe binding.
#[allow(unsafe_code)]
pub mod resident;
// The kernel writes to memory of ours while we do something else.
#[allow(unsafe_code)]
pub mod ring;
pub mod secure;
pub mod shelf;
pub mod site;
pub mod stream;
pub mod variants;
pub mod wait;
pub mod watch;
pub mod whole;
