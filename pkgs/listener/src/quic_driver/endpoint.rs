//! The endpoint's handle, and connection attempts.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use quinn::AsyncUdpSocket;
use quinn_proto::{ConnectionError, EndpointConfig, ServerConfig, VarInt};

use super::connection::{self, Connection};
use super::{Driver, Queue, Shared, State, lock, wait, wake};

/// A QUIC endpoint of a server.
pub(crate) struct Endpoint(Arc<Shared>);

impl Endpoint {
    /// An endpoint on this socket, and the driver that must run for it.
    pub(crate) fn new(
        config: EndpointConfig,
        server: ServerConfig,
        socket: Arc<dyn AsyncUdpSocket>,
    ) -> (Self, Driver) {
        let may_probe = !socket.may_fragment();
        let endpoint = quinn_proto::Endpoint::new(config.into(), Some(server.into()), may_probe, None);
        let state = State {
            endpoint,
            connections: HashMap::default(),
            incoming: VecDeque::new(),
            accepting: None,
            idle: None,
            closed: false,
            failed: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), queue: Arc::<Queue>::default(), socket });
        let driver = Driver::new(Arc::clone(&shared));
        (Self(shared), driver)
    }

    /// The next connection attempt. None once the endpoint is closed or its socket has failed.
    pub(crate) async fn accept(&self) -> Option<Incoming> {
        poll_fn(|cx| {
            let mut state = lock(&self.0.state);
            if let Some(incoming) = state.incoming.pop_front() {
                return Poll::Ready(Some(Incoming { of: Arc::clone(&self.0), incoming: Some(incoming) }));
            }
            if state.closed || state.failed {
                return Poll::Ready(None);
            }
            wait(&mut state.accepting, cx);
            Poll::Pending
        })
        .await
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// Closes all connections, and refuses new ones.
    pub(crate) fn close(&self, code: VarInt, reason: &'static [u8]) {
        let mut state = lock(&self.0.state);
        state.closed = true;
        wake(&mut state.accepting);
        for connection in state.connections.values() {
            connection.close(code, Bytes::from_static(reason));
        }
    }

    /// Waits until the last packets of all connections are sent, and nothing more is expected.
    pub(crate) async fn wait_idle(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.0.state);
            if state.connections.is_empty() || state.failed {
                return Poll::Ready(());
            }
            wait(&mut state.idle, cx);
            Poll::Pending
        })
        .await;
    }
}

/// A client that wants to connect. Dropping it refuses the client.
pub(crate) struct Incoming {
    of: Arc<Shared>,
    incoming: Option<quinn_proto::Incoming>,
}

impl Incoming {
    /// Starts the handshake. The future is the connection after it.
    ///
    /// # Errors
    /// When the client's first packet is not acceptable.
    pub(crate) fn accept(
        mut self,
    ) -> Result<impl Future<Output = Result<Connection, ConnectionError>> + Send, ConnectionError> {
        let incoming = self.take();
        let mut answer = Vec::new();
        let mut state = lock(&self.of.state);
        match state.endpoint.accept(incoming, Instant::now(), &mut answer, None) {
            Ok((handle, connection)) => {
                let shared = connection::Shared::new(handle, connection, Arc::clone(&self.of.queue));
                state.connections.insert(handle, Arc::clone(&shared));
                // It may have something to send and to wait for.
                shared.queue();
                let connection = Connection::new(shared);
                Ok(async move { connection.established().await.map(|()| connection) })
            }
            Err(error) => {
                drop(state);
                if let Some(transmit) = error.response {
                    self.of.answer(&transmit, &answer);
                }
                Err(error.cause)
            }
        }
    }

    pub(crate) fn refuse(mut self) {
        self.refuse_now();
    }

    /// Asks the client to prove its address. Only possible if it has not yet.
    pub(crate) fn retry(mut self) {
        let incoming = self.take();
        let mut answer = Vec::new();
        let retried = lock(&self.of.state).endpoint.retry(incoming, &mut answer);
        match retried {
            Ok(transmit) => self.of.answer(&transmit, &answer),
            // Refused when it is dropped.
            Err(error) => self.incoming = Some(error.into_incoming()),
        }
    }

    /// Leaves the client without an answer.
    pub(crate) fn ignore(mut self) {
        let incoming = self.take();
        lock(&self.of.state).endpoint.ignore(incoming);
    }

    pub(crate) fn remote_address(&self) -> SocketAddr {
        self.get().remote_address()
    }

    /// Whether the client has proved that it receives what is sent to its address.
    pub(crate) fn remote_address_validated(&self) -> bool {
        self.get().remote_address_validated()
    }

    fn get(&self) -> &quinn_proto::Incoming {
        self.incoming.as_ref().expect("only taken with the whole")
    }

    fn take(&mut self) -> quinn_proto::Incoming {
        self.incoming.take().expect("only taken with the whole")
    }

    fn refuse_now(&mut self) {
        if let Some(incoming) = self.incoming.take() {
            let mut answer = Vec::new();
            let transmit = lock(&self.of.state).endpoint.refuse(incoming, &mut answer);
            self.of.answer(&transmit, &answer);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.refuse_now();
    }
}
