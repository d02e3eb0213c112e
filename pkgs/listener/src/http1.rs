//! HTTP/1.1.

use std::pin::pin;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::body::Body;
use crate::peer::{Peer, Protocol};
use crate::service_trait::HttpService;
use crate::worker::Worker;

/// Serves a connection to its end.
pub async fn serve(
    worker: &Worker,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    service: impl HttpService,
) {
    let _open = worker.metrics.open(worker.index, Protocol::Http1);
    let limits = &worker.config.limits;
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut service = service.clone();
        let mut request = request.map(|body| Body::hyper(body, limits));
        request.extensions_mut().insert(peer.clone());
        async move {
            std::future::poll_fn(|context| service.poll_ready(context)).await?;
            service.call(request).await
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .half_close(false)
            .pipeline_flush(true)
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service)
    );
    let mut drain = worker.drain.clone();
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = drain.draining() => connection.as_mut().graceful_shutdown(),
    }
    // What the client did wrong is the client's to know.
    let _ = connection.await;
}
