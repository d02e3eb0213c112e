//! Stage 7: kernel settings.
//!
//! The article: 32,000 to 45,000 requests/s. Its list wasn't available, so these are the settings that such lists have
//! in common, as far as a network namespace has its own, and what the program must do for them: a backlog as long as
//! `somaxconn` allows, and no delay of small segments. Settings of the whole machine (`fs.file-max`,
//! `net.core.netdev_max_backlog`) matter for thousands of connections and for network cards, neither of which is used
//! here.

use std::net::SocketAddr;

use axum::Router;
use axum::serve::ListenerExt;
use sqlx::PgPool;
use tokio::net::{TcpListener, TcpSocket};

use super::s5_runtime::runtime;
use super::s6_shared::router;
use crate::Error;
use crate::stage::{Options, Stage};

/// The stage.
pub const STAGE: Stage = Stage {
    name: "kernel",
    claimed_qps: 45_000,
    change: "Queues for connections that come at once, ports for connections that go out, and buffers for long \
             distances: kept-alive connections over loopback need none of them.",
    serve,
};

/// The operator's settings, with `sysctl`'s names. The bench sets them around each load of this stage.
pub const SETTINGS: [(&str, &str); 9] = [
    ("net.core.somaxconn", "65535"),
    ("net.ipv4.tcp_max_syn_backlog", "65535"),
    ("net.ipv4.ip_local_port_range", "1024 65535"),
    ("net.ipv4.tcp_tw_reuse", "1"),
    ("net.ipv4.tcp_fin_timeout", "15"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.tcp_notsent_lowat", "131072"),
    ("net.ipv4.tcp_rmem", "4096 131072 16777216"),
    ("net.ipv4.tcp_wmem", "4096 65536 16777216"),
];

/// As long as the `net.core.somaxconn` above allows. Without it that setting does nothing, since the kernel uses the
/// smaller value.
const BACKLOG: u32 = 65_535;

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
    let bound = socket.and_then(|socket| {
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    });
    bound.map_err(Error::serve(address))
}

async fn serve_tuned(address: SocketAddr, router: Router) -> Result<(), Error> {
    let listener = listen(address)?.tap_io(|stream| {
        // The connection also works without it.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await.map_err(Error::serve(address))
}

pub(super) fn serve(options: &Options) -> Result<(), Error> {
    runtime()?.block_on(async {
        let pool = PgPool::connect(&options.database).await?;
        serve_tuned(options.listen, router(pool)).await
    })
}
