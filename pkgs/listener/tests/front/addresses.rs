//! The addresses that a listener may use.

use std::num::NonZero;

use listener::{Config, Endpoint, Listener};
use service::socket::Address;

use crate::server::{Client, Server};

fn config(address: &str, workers: usize) -> Config {
    let address: Address = address.parse().expect("an address");
    Config { endpoints: vec![Endpoint::plain(address)], workers: NonZero::new(workers), ..Config::default() }
}

#[test]
fn two_listeners_do_not_share_an_address() {
    let server = Server::run(config("127.0.0.1:0", 2));
    for workers in [1, 2] {
        let error = Listener::new(config(&server.address.to_string(), workers)).expect_err("it is taken");
        let text = service::exit::chain(&error).to_lowercase();
        assert!(text.contains(&format!("{}: address already in use", server.address)), "{text}");
        assert_eq!(text.matches("in use").count(), 1, "{text}");
    }
    assert_eq!(server.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").answer().0, 200);
    let address = server.address;
    drop(server);
    let next = Server::run(config(&address.to_string(), 2));
    assert_eq!(next.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n").answer().0, 200);
}

#[test]
fn the_address_of_an_endpoint_that_is_every_address_is_asked_for_where_it_is_wanted() {
    for (local_addresses, ip) in [(true, "127.0.0.1"), (false, "0.0.0.0")] {
        let server = Server::run(Config { local_addresses, ..config("0.0.0.0:0", 1) });
        let mut client = Client::connect(([127, 0, 0, 1], server.address.port()).into());
        let told = client.send("GET /who HTTP/1.1\r\nHost: h\r\n\r\n").answer().1;
        assert!(told.contains(&format!(" Some({ip}:{}) ", server.address.port())), "{told}");
    }
}

#[test]
fn an_address_may_come_later() {
    // In a network for documentation (RFC 5737).
    let server = Server::run(config("192.0.2.1:0", 2));
    assert_eq!(server.address.ip().to_string(), "192.0.2.1");
}
