//! The real `linerate-files serve --origin` with a real S3 gateway, and faults on the way between them.
#![forbid(unsafe_code)]

mod bounds;
mod faults;
mod fixture;
mod meddler;
// Shared with the other tests of serving, which need more of it.
#[allow(dead_code)]
#[path = "../serve/place.rs"]
mod place;
mod refused;
mod restart;
mod serving;
#[allow(dead_code)]
#[path = "../../../listener/tests/interop/tools.rs"]
mod tools;

use testkit::client;
