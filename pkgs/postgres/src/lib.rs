//! PostgreSQL as the services use it.
//!
//! ```text
//!  Conninfo ─▶ Connector ─▶ host by host, TLS, role asked ─▶ Session
//!                              ▲          │
//!     password, iam ───────────┘          ├─ Pipelines ◀── reads by key, many in one question
//!                                         ├─ Pool ◀─────── writes, lists
//!                                         ├─ copy, Migrations
//!                                         └─ Feed ─▶ Heard: what other nodes wrote, and up to when everything is known
//! ```
//!
//! - [`Conninfo`]: one of libpq's connection strings, with several hosts, TLS and password files.
//! - [`Connector`]: connects to a host with the requested role; [`Session`] is a connection.
//! - [`Pool`]: sessions for writes and lists; [`Pipelines`]: reads by key that share round trips.
//! - [`Background`]: the runtime of all of these.
//! - [`Comment`]: a request's identification, in a comment after each of its statements.
//! - [`Migrations`]: a schema that the previous generation can still use.
//! - [`Feed`]: other nodes' writes, reported within a stated bound.
//! - [`copy`]: bulk transfer of rows, in both directions.
//! - `iam`: passwords for RDS and Aurora, which are made for each connection.
//!
//! It works through pgbouncer in transaction mode. There it sets nothing for a session and prepares nothing, and
//! doesn't depend on notifications, which only make the feed faster.
// More than a dozen files: each is a box or an arrow of the picture above.
#![forbid(unsafe_code)]

mod background;
mod changes;
mod comment;
mod connect;
mod conninfo;
pub mod copy;
mod error;
mod iam;
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
pub use password::PasswordError;
pub use pipeline::{KeyQuery, Pipelines};
pub use pool::{Pool, Pooled};
pub use session::{Parameter, Session, Transaction};
pub use tokio_postgres::Row;
pub use tokio_postgres::types;
