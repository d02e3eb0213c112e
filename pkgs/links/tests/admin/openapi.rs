//! Compares the API's description with the routes in both directions, and checks the tokens that each route requires.

use std::collections::BTreeSet;

use links::admin::{openapi, pages::PAGES, routes::ENDPOINTS};
use links::store::Scope;
use serde_json::Value;
use ureq::SendBody;

use crate::server::Server;

/// The method, path and operation of each entry.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let methods = paths.iter().flat_map(|(path, item)| {
        let operations =
            item.as_object().unwrap().iter().filter(|(_, value)| value.get("responses").is_some());
        operations.map(|(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
    });
    methods.collect()
}

/// The method, path and required scope of each route.
fn served() -> impl Iterator<Item = (String, &'static str, Option<Scope>)> {
    let pages = PAGES.iter().map(|page| ("GET".to_owned(), page.path, None));
    pages.chain(ENDPOINTS.iter().map(|api| (api.method.to_string(), api.path, Some(api.scope))))
}

fn document() -> Value {
    serde_json::to_value(openapi::describe()).unwrap()
}

#[test]
fn what_is_described_is_routed_and_what_is_routed_is_described() {
    let described: BTreeSet<_> =
        operations(&document()).into_iter().map(|(method, path, _)| (method, path)).collect();
    let routed: BTreeSet<_> = served().map(|(method, path, _)| (method, path.to_owned())).collect();
    assert_eq!(described, routed);
}

#[test]
fn the_document_is_openapi_3_1_and_names_each_operation_once() {
    let server = Server::start();
    let reply = server.send("GET", "/api/v1/openapi.json", &[], SendBody::none());
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/json"));
    let document = reply.json();
    assert_eq!(document, self::document());
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let operations = operations(&document);
    let names: BTreeSet<_> =
        operations.iter().map(|(_, _, operation)| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(names.len(), operations.len());
    for (method, path, operation) in &operations {
        assert!(operation["summary"].is_string(), "{method} {path} has no summary");
        let templated = path.matches('{').count();
        let parameters = operation["parameters"]
            .as_array()
            .map_or(0, |parameters| parameters.iter().filter(|parameter| parameter["in"] == "path").count());
        assert_eq!(parameters, templated, "{method} {path}");
    }
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn follow(document: &Value, value: &Value, seen: &mut usize) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    *seen += 1;
                }
                fields.values().for_each(|value| follow(document, value, seen));
            }
            Value::Array(items) => items.iter().for_each(|value| follow(document, value, seen)),
            _ => {}
        }
    }
    let (document, mut seen) = (document(), 0);
    follow(&document, &document, &mut seen);
    assert!(seen > 20, "{seen} references");
}

#[test]
fn every_route_asks_for_the_token_its_description_names() {
    let server = Server::start();
    let read = format!("Bearer {}", server.read);
    let write = format!("Bearer {}", server.write);
    let mut checked = 0;
    for (method, path, operation) in operations(&document()) {
        let scope = operation["security"][0]["bearer"][0].as_str();
        let (.., routed) = served().find(|(known, at, _)| *at == path && *known == method).unwrap();
        let routed = routed.map(|scope| if scope == Scope::Read { "read" } else { "write" });
        assert_eq!(scope, routed, "{method} {path}");

        let path = path.replace("{code}", "none").replace("{host}", "none.example").replace("{id}", "0");
        let ask = |authorization: &str| {
            let headers = [("authorization", authorization)];
            let headers = if authorization.is_empty() { &[][..] } else { &headers[..] };
            server.send(&method, &path, headers, SendBody::none())
        };
        let Some(scope) = scope else {
            assert_eq!(ask("").status, 200, "{method} {path}");
            continue;
        };
        for (wrong, challenge) in [
            ("", "Bearer"),
            ("Basic YTpi", "Bearer"),
            ("Bearer ", "Bearer"),
            ("Bearer lr_unknown", "Bearer error=\"invalid_token\""),
        ] {
            let reply = ask(wrong);
            let told =
                if wrong == "Bearer lr_unknown" { "unknown or revoked" } else { "Authorization: Bearer" };
            let detail = reply.problem(401)["detail"].to_string();
            assert!(detail.contains(told), "{wrong:?}: {detail}");
            assert_eq!(reply.header("www-authenticate"), challenge, "{method} {path} {wrong:?}");
        }
        let with_read = ask(&read);
        if scope == "write" {
            assert!(with_read.problem(403)["detail"].to_string().contains("the scope read"));
            assert!(with_read.header("www-authenticate").contains("insufficient_scope"));
        } else {
            assert!(![401, 403].contains(&with_read.status), "{method} {path}: {}", with_read.text());
        }
        let with_write = ask(&write);
        assert!(![401, 403, 405].contains(&with_write.status), "{method} {path}: {}", with_write.text());
        checked += 1;
    }
    assert!(checked >= 12, "{checked} routes with a token");
}

#[test]
fn a_revoked_token_ends_at_once() {
    let server = Server::start();
    let (info, secret) = server.store.create_token("short".to_owned(), Scope::Read).wait().unwrap();
    let bearer = format!("bearer {secret}");
    let ask = || server.send("GET", "/api/v1/links", &[("authorization", &bearer)], SendBody::none());
    assert_eq!(ask().status, 200);
    server.store.revoke_token(info.id).wait().unwrap();
    ask().problem(401);
}

#[test]
fn the_page_for_people_needs_nothing_from_elsewhere() {
    let server = Server::start();
    let page = server.send("GET", "/", &[], SendBody::none());
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    let text = page.text();
    assert!(!text.contains("src=") && !text.contains("http://") && !text.contains("<script"));
    for (method, path, _) in served() {
        assert!(text.contains(&format!("<code>{method} {path}</code>")), "{path}");
    }
}
