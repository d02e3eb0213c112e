//! Hearing of what other nodes write, and knowing when one does not.
//!
//! Every write that a cache may know of is notified in its transaction, and PostgreSQL delivers notifications in
//! the order of commits (postgresql.org/docs/current/sql-notify.html). So this node notifies itself every now and
//! then: once it hears what it sent at an instant, it has heard of every commit before that instant. That holds
//! whether the connection is lost, hangs, or lags.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls};
use uuid::Uuid;

use crate::store::{Change, Watch};
use crate::user::UserId;

use super::Options;
use super::failure::is_refusal;

/// Where writes are notified: `user` and an id, or `keys`.
pub const CHANNEL: &str = "linerate_api";

/// How often it is tried to connect again.
const RETRY: Duration = Duration::from_millis(100);

/// Signs to oneself within the staleness that is allowed: some may be late.
const SIGNS: u32 = 4;

/// What listens.
pub struct Listener {
    config: Config,
    staleness: Duration,
    cached_while_down: Duration,
    watch: Arc<dyn Watch>,
    begin: Instant,
    /// Where this node notifies itself.
    own: String,
}

impl Listener {
    pub fn new(mut config: Config, options: &Options, watch: Arc<dyn Watch>) -> Self {
        config.application_name("linerate-api listen");
        Self {
            config,
            staleness: options.staleness,
            cached_while_down: options.cached_while_down,
            watch,
            begin: Instant::now(),
            own: format!("{CHANNEL}_{}", Uuid::now_v7().simple()),
        }
    }

    /// Listens for as long as its runtime lives.
    pub async fn run(self) {
        let mut down_since: Option<Instant> = None;
        loop {
            match timeout(self.staleness, self.config.connect(NoTls)).await {
                Ok(Ok((client, connection))) => {
                    down_since = None;
                    if let Err(error) = self.listen(client, connection).await {
                        tracing::warn!(%error, "lost the connection that hears of other nodes' writes");
                    }
                    // At once: whether it is refused now tells whether PostgreSQL is down.
                    continue;
                }
                Ok(Err(error)) if is_refusal(&error) => {
                    let now = Instant::now();
                    let since = *down_since.get_or_insert(now);
                    if now - since < self.cached_while_down {
                        self.watch.heard_all_before(now);
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "cannot listen"),
                Err(_) => tracing::debug!("cannot listen: no answer"),
            }
            sleep(RETRY).await;
        }
    }

    /// Listens until the connection is lost, or seems to be.
    async fn listen<S, T>(
        &self,
        client: Client,
        mut connection: tokio_postgres::Connection<S, T>,
    ) -> Result<(), tokio_postgres::Error>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
        let mut hearing = std::pin::pin!(async {
            while let Some(message) = messages.next().await {
                let AsyncMessage::Notification(notification) = message? else { continue };
                if notification.channel() == self.own {
                    self.heard_sign(notification.payload());
                } else {
                    self.heard_change(notification.payload());
                }
            }
            Ok(())
        });
        let mut sending = std::pin::pin!(async {
            client.batch_execute(&format!("LISTEN {CHANNEL}; LISTEN {}", self.own)).await?;
            // What was written while nobody listened. Nothing can be missed from here on.
            self.watch.changed(Change::All);
            let statement = client.prepare("SELECT pg_notify($1, $2)").await?;
            let mut ticks = interval(self.staleness / SIGNS);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let now = self.begin.elapsed().as_nanos().to_string();
                // A connection that hangs is given up; its signs would come too late anyway.
                let sent = timeout(self.staleness, client.query(&statement, &[&self.own, &now])).await;
                let Ok(sent) = sent else { return Ok(()) };
                sent?;
            }
        });
        tokio::select! {
            heard = &mut hearing => heard,
            sent = &mut sending => sent,
        }
    }

    /// A sign to oneself: it says when it was sent.
    fn heard_sign(&self, payload: &str) {
        if let Ok(nanoseconds) = payload.parse() {
            self.watch.heard_all_before(self.begin + Duration::from_nanos(nanoseconds));
        }
    }

    fn heard_change(&self, payload: &str) {
        match payload.strip_prefix("user ").map(str::parse::<UserId>) {
            Some(Ok(id)) => self.watch.changed(Change::Users(&[id])),
            _ if payload == "keys" => self.watch.changed(Change::Keys),
            // Of a node that knows more than this one.
            _ => self.watch.changed(Change::All),
        }
    }
}
