//! A file server whose bodies never pass through user space.
//!
//! ```text
//!  HTTP/1.1 ──▶ event_loop ◀── kTLS ── tls ◀── HTTPS, HTTP/2, HTTP/3 (through the crate `listener`)
//!                    │                  │
//!                    └──────┬───────────┘
//!                           ▼
//!         worker: WorkerContext, one for each thread; SharedState, one for all
//!                           │
//!                           ▼          auth: passwords
//!         response: a request becomes a head, and what is to follow it
//!          │        │       │          site: root, rules, error pages
//!          │        │       ▼
//!          │        │     cache: open files, copies, whole responses ◀── variants: codings made of files
//!          ▼        ▼       │
//!      listing,  pending    ▼
//!      archive      │     transfer: sendfile, tee and splice, blocks of io_uring ──▶ socket
//!                   ▼       │
//!                 disk: threads and io_uring, for what is not in memory
//! ```
//!
//! Each folder uses those below it, and none above:
//! - [`cli`]: the command line.
//! - [`event_loop`]: the plain listener, one epoll loop a core. [`tls`]: the other, where the process encrypts.
//! - [`worker`]: what a thread has on either, and what all share.
//! - [`response`]: from a request to a head and what follows it.
//! - [`transfer`]: the ways in which bytes of a file get into a socket.
//! - [`listing`]: directories as pages and as JSON. [`archive`]: the same as ZIP and tar. [`stream`]: bodies that are written as
//!   their clients take them.
//! - [`cache`]: what is kept between requests. [`variants`]: codings that are made of files.
//! - [`disk`]: reads that may wait. [`auth`]: passwords that are tried, and known.
//! - [`site`]: what is served: the root, the rules, the pages of errors. [`nginx`]: rules of its configuration.
//! - [`browse`]: what lies below the root and what would be answered for it, for operators.
//! - [`threads`]: pools for what takes long. [`metrics`]: what operators see.
//! - [`http`]: HTTP itself, without input or output.
#![deny(unsafe_code)]

pub mod archive;
pub mod auth;
pub mod browse;
pub mod cache;
pub mod cli;
pub mod disk;
pub mod event_loop;
#[cfg(test)]
mod faults;
pub mod http;
pub mod listing;
pub mod metrics;
pub mod nginx;
pub mod response;
pub mod site;
pub mod stream;
pub mod threads;
pub mod tls;
pub mod transfer;
pub mod variants;
pub mod worker;
