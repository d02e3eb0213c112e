//! The operator's tool for a machine that should run at its line rate.
//!
//! ```text
//!             ┌▶ nic: plan ─▶ apply, verify, watch, undo ─┐
//!  cli, ──────┼▶ doctor: rules ◀── profile                ├─▶ system ─▶ /proc, /sys, ethtool, systemd,
//!  console    ├▶ measured ◀── metrics of the services     │             or a recorded machine
//!             ├▶ update ─▶ systemd-sysupdate              │
//!             └▶ up ─▶ links, files, api, console         ┘ topology, cpus: what they reckon with
//! ```
//!
//! - [`system`]: the machine behind one small interface, real or recorded.
//! - [`cpus`]: sets of CPUs as the kernel writes them.
//! - [`topology`]: which CPUs share a core or a NUMA node.
//! - [`nic`]: which CPU serves which queue of a network interface.
//! - [`profile`]: how a machine should be.
//! - [`doctor`]: what keeps it from reaching its line rate.
//! - [`up`]: runs the services together, to try them out.
//! - [`update`]: versions of a machine that runs an image.
//! - [`measured`]: what a request costs the services, measured on this machine.
//! - [`samples`]: what processes do, from samples of their call stacks.
//! - [`helper`]: does what the console may not do itself.
//! - [`writer`]: writes below the root that files are served from.
//! - [`console`]: the machine as the console shows it.
//! - [`fleet`]: many machines: waves, and the service address.
//! - [`cli`]: the command line.
#![deny(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod cli;
pub mod console;
pub mod cpus;
pub mod doctor;
pub mod fleet;
pub mod helper;
pub mod measured;
pub mod nic;
pub mod profile;
pub mod samples;
pub mod system;
pub mod topology;
pub mod up;
pub mod update;
pub mod writer;
