//! Whole connections to the crate `listener` in this process. Each answer repeats its request with the body, which
//! shows that it belongs to that request. The answers are checked against the model of HTTP/1.1.
#![no_main]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use abuse::conversation::Conversation;
use abuse::model::{Body as BodyModel, Rules};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use libfuzzer_sys::fuzz_target;
use listener::{Body, Config, Endpoint, Limits, Listener};
use service::shutdown::Shutdown;
use service::socket::Address;

const RULES: Rules = Rules { head_bytes: 2048, fields: 16, body_bytes: 4096, bodies_close: true };

/// `/echo` sends back its request's body. The other targets answer before they have read it.
const TARGETS: [&str; 8] =
    ["/echo", "/echo?a=b", "/echo/more", "/ignore", "/ignore", "/%65cho", "http://h/echo", "*"];

#[derive(Clone)]
struct Echo;

impl tower_service::Service<Request<Body>> for Echo {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async move {
            let mut told = format!("{} {}\n", request.method(), request.uri()).into_bytes();
            if request.uri().path().starts_with("/echo") {
                match request.into_body().collect().await {
                    Ok(body) => told.extend_from_slice(&body.to_bytes()),
                    Err(error) => told = format!("broken: {error}").into_bytes(),
                }
            }
            Ok(Response::new(Full::from(told)))
        })
    }
}

/// The listener's address.
fn address() -> SocketAddr {
    static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();
    *ADDRESS.get_or_init(|| {
        let limits = Limits {
            head_bytes: RULES.head_bytes,
            fields: RULES.fields,
            body_bytes: RULES.body_bytes,
            ..Limits::default()
        };
        let config = Config {
            endpoints: vec![Endpoint::plain("127.0.0.1:0".parse().expect("an address"))],
            workers: NonZero::new(1),
            limits,
            ..Config::default()
        };
        let listener = Listener::new(config).expect("it listens");
        let Address::Tcp(address) = listener.addresses()[0].clone() else { panic!("no address") };
        std::thread::spawn(move || listener.serve(Echo, Shutdown::new()));
        address
    })
}

fuzz_target!(|program: &[u8]| {
    let conversation = Conversation::new(program, &TARGETS);
    let heard = conversation.hold_with(address(), &RULES).expect("the connection ends");
    let held = heard.hold(&conversation.bytes, &RULES, |asked, answer| {
        // The answer may write a target in another way, so only plain requests are compared.
        if asked.doubtful || asked.method == "HEAD" {
            return Ok(());
        }
        let mut told = format!("{} {}\n", asked.method, asked.target).into_bytes();
        if let (BodyModel::Whole(body), true) = (&asked.body, asked.target.starts_with("/echo")) {
            told.extend_from_slice(body);
        }
        if answer.status == 200 && answer.body == told { Ok(()) } else { Err("another's answer".to_owned()) }
    });
    if let Err(why) = held {
        panic!("{why}\nsent {:?}", String::from_utf8_lossy(&conversation.bytes));
    }
});
