//! The description compared with the service: what it says, and what schemathesis finds.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{Place, value};
use crate::tools;

#[test]
fn the_description_is_openapi_3_1_and_complete_in_itself() {
    let place = Place::new();
    let server = place.serve(&[]);
    let answer = server.get("/openapi.json");
    assert_eq!((answer.status, answer.field("content-type").as_deref()), (200, Some("application/json")));
    let description = value(&answer);
    assert!(description["openapi"].as_str().expect("a version").starts_with("3.1."));
    let mut names = BTreeSet::new();
    for (path, item) in description["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            assert!(names.insert(operation["operationId"].as_str().expect("an id").to_owned()));
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
        }
    }
    assert_eq!(names.len(), 17, "{names:?}");
    let mut seen = 0;
    follow(&description, &description, &mut seen);
    assert!(seen > 20, "{seen} references");
    assert_eq!(description["components"]["schemas"]["Document"]["additionalProperties"], false);
    let page = server.get("/");
    assert_eq!(page.field("content-type").as_deref(), Some("text/html; charset=utf-8"));
    assert!(page.text().contains("PATCH /v1/users/{id}") && !page.text().contains("<script"));
}

/// Follows every reference.
fn follow(description: &Value, value: &Value, seen: &mut usize) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let pointer = reference.strip_prefix('#').expect("a reference within");
                assert!(description.pointer(pointer).is_some(), "{reference}");
                *seen += 1;
            }
            members.values().for_each(|value| follow(description, value, seen));
        }
        Value::Array(items) => items.iter().for_each(|value| follow(description, value, seen)),
        _ => {}
    }
}

#[test]
fn a_patch_may_remove_what_the_description_says() {
    let place = Place::new();
    let server = place.serve(&[]);
    let description = value(&server.get("/openapi.json"));
    let patch = &description["components"]["schemas"]["UserPatch"]["properties"];
    let (mut removed, mut kept) = (0, 0);
    for (name, schema) in patch.as_object().expect("properties") {
        let user = server.create(&format!("{name}@example.org"));
        let path = format!("/v1/users/{}", user["id"].as_str().expect("an id"));
        let answer = server.send("PATCH", &path, "", &json!({ name: null }));
        assert_eq!(answer.status == 200, allows_null(&description, schema), "{name}: {}", answer.text());
        *if answer.status == 200 { &mut removed } else { &mut kept } += 1;
    }
    assert_eq!((removed, kept), (5, 2));
}

/// Whether a value may be null.
fn allows_null(description: &Value, schema: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').expect("a reference within");
        return allows_null(description, description.pointer(pointer).expect("it is there"));
    }
    let is_null = |of: &Value| of == "null";
    let is_named = schema["type"].as_array().map_or(is_null(&schema["type"]), |all| all.iter().any(is_null));
    let mut others = ["anyOf", "oneOf"].iter().filter_map(|kind| schema[kind].as_array()).flatten();
    is_named || others.any(|schema| allows_null(description, schema))
}

#[test]
fn unknown_members_that_are_kept_can_be_selected_as_the_description_says() {
    let place = Place::new();
    let server = place.serve(&["--unknown-fields", "keep"]);
    let description = value(&server.get("/openapi.json"));
    for path in ["/v1/users", "/v1/users/{id}"] {
        let parameters = description["paths"][path]["get"]["parameters"].as_array().expect("parameters");
        let fields = parameters.iter().find(|parameter| parameter["name"] == "fields").expect("fields");
        let pattern = fields["schema"]["pattern"].as_str().expect("a pattern");
        assert!(!pattern.contains("preferences"), "{path}: {pattern}");
    }
    assert_eq!(server.get("/v1/users?fields=id,nick").status, 200);
}

#[test]
fn schemathesis_finds_nothing() {
    let programs = tools::python("schemathesis", include_str!("schemathesis.txt"));
    let place = Place::new();
    let key = place.key("write", &["--rate", "0"]);
    let server = place.serve(&["--auth", "keys"]);
    let config = place.path("schemathesis.toml");
    fs::write(&config, include_str!("schemathesis.toml")).expect("a file");
    // One worker: if two threads parse Python, some Pythons (such as 3.11.7) fail in one of them with "AST constructor
    // recursion depth mismatch" (CPython's issue 106905), and modules are parsed as late as at a first request.
    let output = Command::new(programs.join("st"))
        .arg("--config-file")
        .arg(&config)
        .args(["run", "--checks", "all", "--max-examples", "40", "--seed", "1", "--workers", "1"])
        .args(["--suppress-health-check", "all", "--continue-on-failure", "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {key}")])
        .arg(format!("http://{}/openapi.json", server.public))
        .current_dir(place.path(""))
        .output()
        .expect("schemathesis runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}\n{}", text(&output.stdout), text(&output.stderr), server.log());
}
