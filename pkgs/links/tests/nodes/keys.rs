//! Keys are valid on both servers: they are created on one, and used and revoked on the other.

use bench::postgres::Durability;
use serde_json::{Value, json};
use testkit::until;

use crate::http::{Answer, Client};
use crate::server::{Server, alone};
use crate::{node, start};

fn ask(server: &Server, key: &str, method: &str, path: &str, body: &str) -> Answer {
    let mut client = Client::connect(server.admin).expect("it listens");
    let fields = format!("Authorization: Bearer {key}\r\nContent-Type: application/json\r\n");
    client.request(method, path, &fields, body).expect("an answer")
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn a_key_that_one_server_makes_is_used_and_revoked_at_the_other() {
    let _alone = alone();
    let (postgres, place) = start(Durability::None);
    let servers = [node(&place, &[]), node(&place, &[])];
    let (one, other) = (&servers[0], &servers[1]);
    let body = json!({ "name": "ci", "scope": "read", "expires_at": "2130-01-31T00:00:00Z" }).to_string();
    let made = ask(one, &one.token, "POST", "/api/v1/keys", &body);
    assert_eq!((made.status, made.value("cache-control")), (201, Some("no-store")), "{}", made.text());
    let (secret, place) =
        (json_of(&made)["key"].as_str().expect("a secret").to_owned(), made.location().to_owned());
    let known = || json_of(&ask(one, &one.token, "GET", &place, ""));
    assert_eq!((&known()["expires_at"], known().get("last_used_at")), (&json!("2130-01-31T00:00:00Z"), None));
    let whoami = ask(other, &secret, "GET", "/api/v1/whoami", "");
    assert_eq!((whoami.status, &json_of(&whoami)["id"]), (200, &known()["id"]));
    // The use is recorded in the background, so the request does not wait for it.
    until("its use is noted", || known().get("last_used_at").is_some());
    let wrong = ask(
        one,
        &one.token,
        "POST",
        "/api/v1/keys",
        r#"{"name":"n","scope":"read","domains":["no.example"]}"#,
    );
    assert_eq!((wrong.status, &json_of(&wrong)["errors"][0]["pointer"]), (422, &json!("/domains/0")));
    assert_eq!(ask(other, &other.token, "DELETE", &place, "").status, 204);
    assert_eq!(ask(one, &secret, "GET", "/api/v1/whoami", "").status, 401);
    assert_eq!(ask(one, &one.token, "DELETE", &place, "").status, 404);
    let schema =
        "SELECT max(version) || ' ' || max(min_reader) FROM linerate_schema WHERE program = 'linerate-links'";
    assert_eq!(
        postgres.execute("postgres", schema).expect("it answers").trim(),
        "5 1",
        "the release before starts"
    );
}
