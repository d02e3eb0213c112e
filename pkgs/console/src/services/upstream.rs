//! A client for a service's admin listener. It opens a connection for each request, which costs almost nothing on the
//! same machine.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use service::exit;
use service::problem::Problem;
use service::socket::Address;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a service may take to answer. links itself ends a query after 5 s.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer, in bytes: enough for a page of links that use all their limits, and for all metrics.
const ANSWER_BYTES: usize = 8 << 20;

/// A service's admin listener.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its address.
    pub(crate) address: Address,
}

/// Why a service didn't perform a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The service can't be reached.
    #[error("{name} does not answer at {address}: {why}")]
    Down {
        /// The service's name.
        name: &'static str,
        /// Its address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The service refuses, with a reason.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// The answer can't be understood.
    #[error("{name} answers what this console does not understand: {why}")]
    Strange {
        /// The service's name.
        name: &'static str,
        /// What is wrong with the answer.
        why: String,
    },
}

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: &'a str,
    /// The key.
    pub(crate) token: Option<&'a str>,
    /// Other headers.
    pub(crate) fields: &'a [(&'static str, &'a str)],
    /// A body and its media type.
    pub(crate) body: Option<(&'static str, Vec<u8>)>,
}

impl<'a> Ask<'a> {
    /// `GET`.
    pub(crate) fn get(path: &'a str) -> Self {
        Self { path, ..Self::default() }
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: Bytes,
}

impl Upstream {
    /// Sends a request, and returns the response with any status.
    ///
    /// # Errors
    /// When there is no response in time.
    pub(crate) async fn ask(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        match timeout(PATIENCE, self.answer(ask)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.down(exit::chain(&*error))),
            Err(_) => Err(self.late(PATIENCE)),
        }
    }

    /// Sends a request. A response with an error status is an error.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and when the response has an error status.
    pub(crate) async fn ask_well(&self, ask: Ask<'_>) -> Result<Answer, Error> {
        let answer = self.ask(ask).await?;
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(Error::Refused(Box::new(serde_json::from_slice(&answer.body).unwrap_or_else(|_| {
            Problem::new(answer.status.as_u16(), format!("{} answers {}", self.name, answer.status))
        }))))
    }

    /// Sends a request, and returns the response with its body as a stream. This is for responses of any length, such
    /// as exports.
    ///
    /// # Errors
    /// As [`ask_well`](Self::ask_well).
    pub(crate) async fn pass_on(&self, ask: Ask<'_>) -> Result<Response<Incoming>, Error> {
        let begun = async {
            match &self.address {
                Address::Tcp(address) => begin(TcpStream::connect(address).await?, ask).await,
                Address::Unix(path) => begin(UnixStream::connect(path).await?, ask).await,
                Address::Activated(_) => Err("there is nobody to connect to".into()),
            }
        };
        let response = match timeout(PATIENCE, begun).await {
            // A task drives the connection until the response is complete or dropped.
            Ok(Ok((response, _))) => response,
            Ok(Err(error)) => return Err(self.down(exit::chain(&*error))),
            Err(_) => return Err(self.late(PATIENCE)),
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let why = format!("{} answers {}", self.name, response.status());
        Err(Error::Refused(Box::new(Problem::new(response.status().as_u16(), why))))
    }

    /// The error that it didn't answer within this time.
    pub(crate) fn late(&self, patience: Duration) -> Error {
        self.down(format!("nothing came within {} s", patience.as_secs()))
    }

    fn down(&self, why: String) -> Error {
        Error::Down { name: self.name, address: self.address.to_string(), why }
    }

    async fn answer(&self, ask: Ask<'_>) -> Result<Answer, Failure> {
        match &self.address {
            Address::Tcp(address) => over(TcpStream::connect(address).await?, ask).await,
            Address::Unix(path) => over(UnixStream::connect(path).await?, ask).await,
            // Such an address was already refused at start.
            Address::Activated(_) => Err("there is nobody to connect to".into()),
        }
    }
}

/// What goes wrong on the way to a service.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends a request. Returns the head of its response and the task that drives the connection.
async fn begin<S>(stream: S, ask: Ask<'_>) -> Result<(Response<Incoming>, JoinHandle<()>), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let mut request = Request::builder()
        .method(ask.method)
        .uri(ask.path)
        // A host name that admin listeners on loopback always accept.
        .header(header::HOST, HeaderValue::from_static("localhost"))
        .header(header::CONNECTION, HeaderValue::from_static("close"));
    if let Some(token) = ask.token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))?;
        value.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, value);
    }
    for (name, value) in ask.fields {
        request = request.header(*name, *value);
    }
    let body = match ask.body {
        Some((media_type, body)) => {
            request = request.header(header::CONTENT_TYPE, media_type);
            Full::new(Bytes::from(body))
        }
        None => Full::default(),
    };
    Ok((sender.send_request(request.body(body)?).await?, connection))
}

async fn over<S>(stream: S, ask: Ask<'_>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (response, connection) = begin(stream, ask).await?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES).collect().await;
    connection.abort();
    Ok(Answer { status: parts.status, fields: parts.headers, body: body?.to_bytes() })
}
