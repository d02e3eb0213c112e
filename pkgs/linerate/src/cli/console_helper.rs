//! `console-helper`: what the console may not do itself.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use service::socket::{Address, Listener, TcpOptions};

use super::{Error, doctor};
use crate::helper::Worker;
use crate::helper::serve::{User, serve};
use crate::system;

/// Where to be asked, and by whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where it is asked: unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "unix:/run/linerate-console-helper/socket")]
    pub listen: Address,

    /// Who may ask, by name or number: the console's user. The kernel says who does (SO_PEERCRED). May be repeated.
    #[arg(long, value_name = "USER", required = true)]
    pub user: Vec<User>,

    /// The profile that queues are placed by; without one, as was last asked for.
    #[arg(long, value_name = "FILE", env = "LINERATE_PROFILE")]
    pub profile: Option<PathBuf>,
}

/// Serves until the process is ended.
pub fn run(args: &Args, recorded: Option<PathBuf>) -> Result<(), Error> {
    // What cannot be read is said now, and not to who asks.
    system::open(recorded.as_deref())?;
    if let Some(profile) = &args.profile {
        doctor::read(profile.clone())?;
    }
    if matches!(args.listen, Address::Tcp(_)) {
        return Err(Error::HelperAddress);
    }
    let Listener::Unix(listener) = args.listen.listen(&TcpOptions::default())? else {
        return Err(Error::HelperAddress);
    };
    listener.set_nonblocking(false).map_err(Error::Helper)?;
    // Who may is decided by who it is; whoever can connect is told nothing otherwise.
    let _ = writeln!(std::io::stdout(), "helper    {}", args.listen);
    let users: BTreeSet<User> = args.user.iter().copied().collect();
    let log = |line: &str| {
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    serve(&listener, &users, &Arc::new(Worker::new(args.profile.clone(), recorded)), log)
        .map_err(Error::Helper)
}
