//! What every bench is compared with. All peers answer any request with the same `Location` and no body; nginx uses
//! another status ([`Nginx::STATUS`]).

#[cfg(feature = "actix")]
mod actix;
mod floor;
mod newest;
mod nginx;

use std::env;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use crate::error::Error;
use crate::server::{Placement, Server, free_address};

pub use newest::Newest;
pub use nginx::Nginx;

/// Where the peers redirect to.
const TARGET: &str = "https://example.com/some/landing/page?id=1&ref=shortlink";

/// The word that turns a bench's executable into a peer: `peer NAME ADDRESS WORKERS`.
const PEER: &str = "peer";

type Serve = fn(SocketAddr, usize) -> io::Result<()>;

/// The peers in the bench's own executable.
const BUILT_IN: &[(&str, Serve)] = &[
    (FLOOR, floor::serve),
    #[cfg(feature = "actix")]
    (ACTIX, actix::serve),
];

const FLOOR: &str = "floor";
#[cfg(feature = "actix")]
const ACTIX: &str = "actix-web const";

/// Serves as a peer if the command line says so. A bench calls this before anything else.
pub fn serve_if_asked() -> Option<ExitCode> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [word, name, address, workers] = arguments.as_slice() else { return None };
    let (_, serve) = BUILT_IN.iter().find(|(built_in, _)| word == PEER && built_in == name)?;
    let (address, workers) = (address.parse().ok()?, workers.parse().ok()?);
    Some(match serve(address, workers) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// A minimal actix-web handler with a constant answer.
#[cfg(feature = "actix")]
pub fn actix(placement: Placement) -> Result<Server, Error> {
    start(ACTIX, placement)
}

/// The least that the kernel's TCP path costs: a thread per worker that waits, receives, finds where each request ends
/// and sends a constant. It parses nothing and knows no limits, so no server can be cheaper.
pub fn floor(placement: Placement) -> Result<Server, Error> {
    start(FLOOR, placement)
}

fn start(name: &'static str, placement: Placement) -> Result<Server, Error> {
    let address = free_address()?;
    let mut command = placement.command(env::current_exe()?);
    command.args([PEER, name, &address.to_string(), &placement.workers.to_string()]);
    Server::start(name, address, &mut command)
}
