//! Clients for the services, and their audit logs.

pub mod audit;
pub mod fields;
pub mod files;
pub mod links;
pub mod metrics;
pub mod sent_file;
pub mod upstream;
pub mod users;
