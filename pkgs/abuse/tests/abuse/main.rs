//! The real services, under attack from outside.
//!
//! - [`crowds`]: clients that drip, stall, never read or say nothing, on every listener, while others are served.
//! - [`sums`]: bodies that are each within their limits, but too large together.
//! - [`nesting`]: deep, wide and long documents, for everything that parses.
//! - [`names`]: files with unusual names and dates.
//! - [`local`]: a page from elsewhere, in a browser on this machine.
//! - [`refused`]: what follows a refused or closing request.
//! - [`conversations`]: whole connections, checked against the model.
//! - [`ports`]: two processes that should listen on the same port.
//! - [`operators`]: crowds on the admin listeners, which have few slots.
//! - [`watchdog`]: workers that hang or end; [`standstill`] makes them hang.

mod conversations;
mod crowds;
mod local;
mod names;
mod nesting;
mod operators;
mod ports;
mod refused;
mod services;
mod standstill;
mod sums;
mod watchdog;
