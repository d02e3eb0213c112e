//! The real services, and what is done to them from outside.
//!
//! - [`crowds`]: clients that drip, stall, never read or say nothing, on every listener, while others are served.
//! - [`sums`]: bodies that are within their bounds one by one.
//! - [`nesting`]: documents that are deep, wide and long, for everything that parses.
//! - [`names`]: files that are called and dated as files are not.
//! - [`local`]: a page of elsewhere, in a browser of this machine.
//! - [`refused`]: what follows a refused or closing request.
//! - [`conversations`]: whole connections, against the model.
//! - [`ports`]: two processes, one port.
//! - [`operators`]: crowds at the admin listeners, which have few places.
//! - [`watchdog`]: workers that stand still, and such as end; [`standstill`]: how they come to.

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
