//! A client for the issuer: it opens a connection for each request, limits time and size, and follows no redirects.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

/// How long the issuer may take to answer, including the time to connect.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer, in bytes: about a hundred keys, or a token with every group of a large company.
const ANSWER_BYTES: usize = 256 << 10;

/// The client.
pub(crate) struct Client {
    tls: TlsConnector,
}

/// Why the authorities that must have signed the issuer's certificate cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum InvalidRoots {
    /// The file can't be used.
    #[error("cannot read authorities of {file}: {why}")]
    File {
        /// The path.
        file: String,
        /// The reason.
        why: String,
    },
    /// The certificates in the file can't be used.
    #[error("cannot speak TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// An answer with any status.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// An error during a request.
type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Client {
    /// Makes a client that trusts the authorities in this PEM file, or those of the system.
    pub(crate) fn new(authorities: Option<&Path>) -> Result<Self, InvalidRoots> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(file) => {
                let wrong = |why: String| InvalidRoots::File { file: file.display().to_string(), why };
                let read =
                    CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                for certificate in read.map_err(|error| wrong(error.to_string()))? {
                    roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
                }
                if roots.is_empty() {
                    return Err(wrong("it has no certificate".to_owned()));
                }
            }
            // Even if the system has no authorities, an issuer on this machine can still be asked without TLS.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots).with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Fetches a document from the issuer. The error is the reason why there is none.
    pub(crate) async fn document<T: DeserializeOwned>(&self, url: &Url) -> Result<T, String> {
        let answer = self.ask(Method::GET, url, None, String::new()).await?;
        if answer.status != StatusCode::OK {
            return Err(format!("{url} answers {}", answer.status));
        }
        serde_json::from_slice(&answer.body).map_err(|error| format!("{url}: {error}"))
    }

    /// Sends a form.
    pub(crate) async fn form(
        &self,
        url: &Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Answer, String> {
        self.ask(Method::POST, url, authorization, form).await
    }

    /// The future is boxed, so that the client is compiled here and not in every crate that uses it.
    fn ask<'a>(
        &'a self,
        method: Method,
        url: &'a Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, String>> + Send + 'a>> {
        Box::pin(self.asked(method, url, authorization, form))
    }

    async fn asked(
        &self,
        method: Method,
        url: &Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Answer, String> {
        match timeout(PATIENCE, self.answer(method, url, authorization, form)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(format!("{}: {error}", url.origin().ascii_serialization())),
            Err(_) => Err(format!("{url} did not answer within {} s", PATIENCE.as_secs())),
        }
    }

    async fn answer(
        &self,
        method: Method,
        url: &Url,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> Result<Answer, Failure> {
        let host = url.host_str().ok_or("there is no host")?;
        let port = url.port_or_known_default().ok_or("there is no port")?;
        let authority = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let target = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let mut request = Request::builder()
            .method(&method)
            .uri(target)
            .header(header::HOST, authority)
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, "linerate")
            .header(header::CONNECTION, "close");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.body(Full::new(Bytes::from(form)))?;
        // Only URLs put an IPv6 address in brackets.
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((name, port)).await?;
        stream.set_nodelay(true)?;
        if url.scheme() == "https" {
            let name = ServerName::try_from(name.to_owned())?;
            over(self.tls.connect(name, stream).await?, request).await
        } else {
            over(stream, request).await
        }
    }
}

async fn over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        Ok::<_, Failure>(Answer { status: parts.status, body })
    };
    tokio::pin!(exchange, connection);
    // The connection does the work. If it ends first, what has arrived is still used.
    tokio::select! {
        answer = &mut exchange => answer,
        _ = &mut connection => exchange.await,
    }
}
