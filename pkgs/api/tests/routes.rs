//! The table of routes: a single match gives everything about a request.
#![forbid(unsafe_code)]

use api::http::metrics::Operation;
use api::http::routes::{describe, router};
use api::json::object::Unknown;
use api::store::Scope;
use http::Method;
use router::Lookup;

const OPEN: Option<Scope> = None;
const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);

#[test]
fn one_match_tells_operation_scope_and_id() {
    let router = router();
    for (method, path, operation, scope, id) in [
        (Method::GET, "/v1/users/x", Operation::Get, READ, Some("x")),
        (Method::HEAD, "/v1/users/x", Operation::Get, READ, Some("x")),
        (Method::PUT, "/v1/users/x", Operation::Change, WRITE, Some("x")),
        (Method::PATCH, "/v1/users/x", Operation::Change, WRITE, Some("x")),
        (Method::DELETE, "/v1/users/x", Operation::Delete, WRITE, Some("x")),
        (Method::POST, "/v1/users", Operation::Create, WRITE, None),
        (Method::GET, "/v1/users", Operation::List, READ, None),
        (Method::HEAD, "/v1/users", Operation::List, READ, None),
        (Method::GET, "/v1/users:count", Operation::Count, READ, None),
        (Method::POST, "/v1/users:validate", Operation::Validate, READ, None),
        (Method::POST, "/v1/users:batchCreate", Operation::Batch, WRITE, None),
        (Method::POST, "/v1/users:batchGet", Operation::Batch, READ, None),
        (Method::POST, "/v1/users:batchDelete", Operation::Batch, WRITE, None),
        (Method::GET, "/v1/keys", Operation::Other, WRITE, None),
        (Method::POST, "/v1/keys", Operation::Other, WRITE, None),
        (Method::GET, "/v1/keys/1", Operation::Other, WRITE, Some("1")),
        (Method::DELETE, "/v1/keys/1", Operation::Other, WRITE, Some("1")),
        (Method::GET, "/openapi.json", Operation::Other, OPEN, None),
        (Method::GET, "/", Operation::Other, OPEN, None),
    ] {
        let found = router.find(&method, path).matched().expect(path);
        let told = (found.value.operation, found.value.scope, found.param("id"));
        assert_eq!(told, (operation, scope, id), "{method} {path}");
    }
}

#[test]
fn what_is_not_served_is_told_apart_by_its_path() {
    let router = router();
    for (method, path, allow) in [
        ("DELETE", "/v1/users", Some("POST,GET,HEAD")),
        ("OPTIONS", "/v1/users", Some("POST,GET,HEAD")),
        ("POST", "/v1/users/x", Some("GET,HEAD,PUT,PATCH,DELETE")),
        ("GET", "/v1/users:validate", Some("POST")),
        ("TRACE", "/v1/users:count", Some("GET,HEAD")),
        ("BREW", "/", Some("GET,HEAD")),
        ("GET", "/v1/users/", None),
        ("GET", "/v1/users/x/y", None),
        ("POST", "/v1/users:batch", None),
        ("PUT", "/v1/usersx", None),
        ("OPTIONS", "*", None),
        ("CONNECT", "", None),
    ] {
        let method = Method::from_bytes(method.as_bytes()).expect("a token");
        let told = match router.find(&method, path) {
            Lookup::Match(found) => panic!("{method} {path} is {}", found.pattern()),
            Lookup::MethodNotAllowed(allow) => Some(allow.to_str().expect("text")),
            Lookup::NotFound => None,
        };
        assert_eq!(told, allow, "{method} {path}");
    }
}

#[test]
fn whatever_needs_a_key_says_so_in_the_description() {
    let description = serde_json::to_value(describe(Unknown::Refuse)).expect("JSON");
    let router = router();
    let mut operations = 0;
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
            let route = *router.find(&method, path).matched().expect(path).value;
            let told = operation.get("security").cloned();
            let expected = route.scope.map(|scope| serde_json::json!([{"key": [scope.name()]}]));
            assert_eq!(told, expected, "{method} {path}");
            assert_eq!(route.scope.is_some(), path.starts_with("/v1"), "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 17);
}
