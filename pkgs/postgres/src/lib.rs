//! PostgreSQL as the services use it.
//!
//! ```text
//!  Conninfo ─▶ Connector ─▶ host by host, TLS, role asked ─▶ Session
//!                              ▲          │
//!     password, iam ───────────┘          ├─ Pipelines ◀── reads by key, many in one question
//!                                         ├─ Pool ◀─────── writes, lists
//!                                         ├─ copy, Migrations
//!                                         └─ Feed ─▶ Heard: what other nodes wrote, and up to when all is known
//! ```
//!
//! - [`Conninfo`]: a connection string of libpq, with several hosts, TLS and files of passwords.
//! - [`Connector`]: connects to the host that has the role asked for; [`Session`] is a connection.
//! - [`Pool`]: sessions for writes and lists; [`Pipelines`]: reads by key that share round trips.
//! - [`Background`]: the runtime that they live on.
//! - [`Comment`]: what a request is known by, behind the statements that are made for it.
//! - [`Migrations`]: a schema that the generation before can still use.
//! - [`Feed`]: what other nodes write, heard of within a bound that is stated.
//! - [`copy`]: rows in bulk, both ways.
//! - [`iam`]: passwords that are made anew for each connection.
//!
//! It works through pgbouncer in transaction mode: nothing is set for a session there, nothing prepared, and
//! notifications only make things faster.
// More than a dozen files: each is a box or an arrow of the picture above.
#![forbid(unsafe_code)]

mod background;
mod changes;
mod comment;
mod connect;
mod conninfo;
pub mod copy;
mod error;
pub mod iam;
mod migrate;
mod password;
mod pipeline;
mod pool;
mod session;
mod socket;
mod tls;

pub use background::Background;
pub use changes::{Change, Feed, FeedOptions, Heard, SCHEMA as CHANGES_SCHEMA, Waker};
pub use comment::{Comment, carrying, comment, commented};
pub use connect::Connector;
pub use conninfo::{Conninfo, Host, InvalidConninfo, Role, TlsMode};
pub use error::{Attempt, ConnectError, Error, Kind, Reason};
pub use migrate::{Migration, Migrations};
pub use password::{Login, PasswordError, PasswordSource};
pub use pipeline::{KeyQuery, Pipelines};
pub use pool::{Pool, Pooled};
pub use session::{Parameter, Session, Transaction};
pub use tokio_postgres::Row;
pub use tokio_postgres::types;
