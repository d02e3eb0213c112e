//! A real admin listener on a loopback port, with its own database, and a client for it.

use std::net::SocketAddr;
use std::thread::JoinHandle;

use links::admin::{self, Requests, State, Timeouts};
use links::store::{Options, Scope, Store};
use listener::Listener;
use serde_json::Value;
use service::metrics::Registry;
use service::ready::Readiness;
use service::shutdown::Shutdown;
use service::socket::Address;
use ureq::SendBody;
use ureq::http::{HeaderMap, Request};

pub struct Server {
    pub address: SocketAddr,
    pub store: Store,
    pub readiness: Readiness,
    /// A token that may only read.
    pub read: String,
    /// A token that may write.
    pub write: String,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
    agent: ureq::Agent,
    _directory: tempfile::TempDir,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(|state| state)
    }

    /// Starts a server whose state `adjust` has changed.
    pub fn start_with(adjust: impl FnOnce(State) -> State) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Options::new(&directory.path().join("links.db"))).unwrap();
        let token = |scope| store.create_token("test".to_owned(), scope).wait().unwrap().1;
        let (read, write) = (token(Scope::Read), token(Scope::Write));
        let requests = Requests::default();
        let config = admin::config("127.0.0.1:0".parse().unwrap(), Timeouts::default(), &requests);
        let listener = Listener::new(config).unwrap();
        let Address::Tcp(address) = listener.addresses()[0] else { panic!("an address of TCP") };
        let (readiness, shutdown) = (Readiness::new(), Shutdown::new());
        readiness.set_ready();
        let base = "https://go.example/";
        let state = State::new(store.clone(), base, readiness.clone(), requests, Registry::default());
        let service = admin::service(adjust(state.unwrap()));
        let thread = listener.start("links-admin", service, &shutdown).unwrap();
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let thread = Some(thread);
        Self { address, store, readiness, read, write, shutdown, thread, agent, _directory: directory }
    }

    /// Sends a request unchanged, without adding a token.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: SendBody) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = self.agent.run(request.body(body).unwrap()).unwrap();
        let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec().unwrap();
        Reply { status: response.status().as_u16(), headers: response.headers().clone(), body }
    }

    /// Sends a request with the token that may write, and with the body unless it is empty.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let bearer = format!("Bearer {}", self.write);
        let mut all = vec![("authorization", bearer.as_str())];
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            all.push(("content-type", "application/json"));
        }
        all.extend(headers);
        let body = if body.is_empty() {
            SendBody::none()
        } else {
            SendBody::from_owned_reader(std::io::Cursor::new(body.to_owned()))
        };
        self.send(method, path, &all, body)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        self.ask("POST", path, &[], body)
    }

    /// Creates a link, which must succeed.
    pub fn create(&self, code: &str) {
        let reply = self
            .post("/api/v1/links", &format!(r#"{{"code":"{code}","target":"https://example.com/{code}"}}"#));
        assert_eq!(reply.status, 201, "{}", reply.text());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.trigger();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
            self.shutdown.outcome().unwrap();
        }
        self.store.close();
    }
}

pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// Asserts that the reply is a problem with this status, and returns it.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.header("content-type"), "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        problem
    }
}
