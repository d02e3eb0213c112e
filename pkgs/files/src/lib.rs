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
//! Each folder uses only those below it in this list:
//! - [`cli`]: the command line.
//! - [`event_loop`]: the plain listener, one epoll loop per core. [`tls`]: the TLS listener, where this process
//!   encrypts.
//! - [`worker`]: the state of a thread of either, and the shared state.
//! - [`response`]: turns a request into a head and what follows it.
//! - [`transfer`]: sends a file's bytes to a socket.
//! - [`listing`]: directories as pages and JSON. [`archive`]: directories as ZIP and tar. [`stream`]: bodies that are
//!   written as clients take them.
//! - [`cache`]: state that is kept between requests. [`variants`]: compressed versions of files.
//! - [`disk`]: reads that may wait. [`auth`]: passwords.
//! - [`site`]: the root, the rules and error pages. [`nginx`]: converts nginx's configuration to rules.
//! - [`browse`]: what lies below the root, and how it is answered, for operators.
//! - [`threads`]: thread pools for long work. [`metrics`]: counters.
//! - [`http`]: HTTP itself, without I/O.
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
