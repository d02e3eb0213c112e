//! The document as in a first version: everything is owned, and is cloned wherever that is easiest.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A user, 2 KB as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct User {
    pub id: i64,
    pub email: String,
    pub name: String,
    pub phone: String,
    pub active: bool,
    pub age: u32,
    pub score: f64,
    pub address: Address,
    pub tags: Vec<String>,
    pub roles: Vec<Role>,
    pub preferences: HashMap<String, String>,
    pub sign_ins: Vec<SignIn>,
    pub bio: String,
}

/// Where a user lives.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Address {
    pub street: String,
    pub city: String,
    pub postcode: String,
    pub country: String,
    pub latitude: f64,
    pub longitude: f64,
}

/// What a user may do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Role {
    pub name: String,
    pub scope: String,
    pub since: i64,
}

/// When and from where a user came.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct SignIn {
    pub at: i64,
    pub address: String,
    pub agent: String,
    pub ok: bool,
}

/// The answer to a POST.
#[derive(Debug, Serialize)]
pub struct Accepted {
    /// How many tags there are.
    pub tag_count: usize,
    /// Each role as `name:scope`.
    pub roles: Vec<String>,
    /// The document, with its address and tags in lower case.
    pub user: User,
}

impl Accepted {
    /// Changes a copy.
    pub fn of(user: &User) -> Self {
        let mut stored = user.clone();
        stored.email = user.email.to_lowercase();
        stored.tags = user.tags.iter().map(|tag| tag.to_lowercase()).collect();
        let roles = user.roles.iter().map(|role| format!("{}:{}", role.name, role.scope)).collect();
        Self { tag_count: stored.tags.len(), roles, user: stored }
    }
}

/// A row: id, address, name, creation time (Unix time), and the document as JSON.
pub type Row = (i64, String, String, i64, String);

/// The answer to a GET.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields say it")]
pub struct Found {
    pub id: i64,
    pub email: String,
    pub name: String,
    pub created_at: i64,
    pub user: User,
}

impl Found {
    /// Copies the shown values, so that the row stays intact.
    pub fn of(row: &Row, user: &User) -> Self {
        let (id, email, name, created_at, _) = row;
        Self {
            id: *id,
            email: email.clone(),
            name: name.clone(),
            created_at: *created_at,
            user: user.clone(),
        }
    }
}
