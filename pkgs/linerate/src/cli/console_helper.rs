//! `console-helper`: does what the console may not do itself.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use service::socket::{Address, Listener, TcpOptions};

use super::{Error, doctor};
use crate::helper::Worker;
use crate::helper::serve::{User, serve};
use crate::system;

/// Where to listen, and who may connect.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where to listen: unix:PATH or systemd:NAME.
    #[arg(long, value_name = "ADDR", default_value = "unix:/run/linerate-console-helper/socket")]
    pub listen: Address,

    /// The user who may connect, by name or number: the console's. The kernel identifies users (SO_PEERCRED). May be
    /// repeated.
    #[arg(long, value_name = "USER", required = true)]
    pub user: Vec<User>,

    /// The profile for placing queues. Without one, they are placed as last requested.
    #[arg(long, value_name = "FILE", env = "LINERATE_PROFILE")]
    pub profile: Option<PathBuf>,
}

/// Serves until the process is ended.
pub fn run(args: &Args, recorded: Option<PathBuf>) -> Result<(), Error> {
    // Report files that can't be read now, and not to clients later.
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
    // The kernel identifies users, and other users get no answer.
    let _ = writeln!(std::io::stdout(), "helper    {}", args.listen);
    let users: BTreeSet<User> = args.user.iter().copied().collect();
    let log = |line: &str| {
        let _ = writeln!(std::io::stderr(), "{line}");
    };
    serve(&listener, &users, &Arc::new(Worker::new(args.profile.clone(), recorded)), log)
        .map_err(Error::Helper)
}
