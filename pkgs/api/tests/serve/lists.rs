//! Lists, searches and counts.

use serde_json::{Value, json};

use crate::place::{Place, Server, problem, user, value};

on_each_database! {
    pages_follow_each_other_in_every_order,
    users_are_found_by_what_they_are,
    a_cursor_is_good_for_its_list_alone,
    only_the_fields_asked_for_are_sent,
    a_query_that_makes_no_sense_is_refused,
}

/// A server with users a to h: the first half suspended, every other one with its own tag.
fn start(place: &Place) -> Server {
    let server = place.serve(&[]);
    let users: Vec<Value> = "dbhfaceg"
        .chars()
        .map(|letter| {
            let mut user = user(&format!("{letter}@example.org"));
            user["name"] = json!(format!("{} Person", letter.to_ascii_uppercase()));
            user["status"] = json!(if letter <= 'd' { "suspended" } else { "active" });
            user["tags"] = json!(if "aceg".contains(letter) { vec!["odd"] } else { vec![] });
            user
        })
        .collect();
    let answer = server.send("POST", "/v1/users:batchCreate", "", &json!({ "users": users }));
    assert_eq!(answer.status, 201, "{}", answer.text());
    server
}

/// The first letters of the emails on a page.
fn letters(page: &Value) -> String {
    let users = page["users"].as_array().expect("users");
    users
        .iter()
        .map(|user| user["email"].as_str().expect("an email").chars().next().expect("a letter"))
        .collect()
}

fn pages_follow_each_other_in_every_order(place: &Place) {
    let server = start(place);
    for (sort, expected) in [
        ("name", "abcdefgh"),
        ("-name", "hgfedcba"),
        ("email", "abcdefgh"),
        ("-email", "hgfedcba"),
        ("created_at", "dbhfaceg"),
        ("-created_at", "gecafhbd"),
        ("updated_at", "dbhfaceg"),
    ] {
        for limit in [1, 3, 8, 200] {
            let mut found = String::new();
            let mut target = format!("/v1/users?sort={sort}&limit={limit}");
            loop {
                let answer = server.get(&target);
                let page = value(&answer);
                assert!(page["users"].as_array().expect("users").len() <= limit);
                found += &letters(&page);
                let Some(next) = page["next"].as_str() else {
                    assert_eq!(answer.field("link"), None);
                    break;
                };
                let following = format!("/v1/users?sort={sort}&limit={limit}&cursor={next}");
                assert_eq!(answer.field("link"), Some(format!("<{following}>; rel=\"next\"")));
                target = following;
            }
            assert_eq!(found, expected, "{sort} by {limit}");
        }
    }
}

fn users_are_found_by_what_they_are(place: &Place) {
    let server = start(place);
    for (query, expected) in [
        ("", "dbhfaceg"),
        ("status=suspended", "dbac"),
        ("tag=odd", "aceg"),
        ("status=active&tag=odd", "eg"),
        ("tag=none", ""),
        ("email=A@EXAMPLE.ORG", "a"),
        ("email=x", ""),
        ("q=pers", "dbhfaceg"),
        ("q=ODD+pers", "aceg"),
        ("q=f", "f"),
        ("q=erson", ""),
        ("q=programs", "dbhfaceg"),
        ("q=%25", ""),
        ("created_after=2020-01-01T00:00:00Z", "dbhfaceg"),
        ("created_before=2020-01-01T00:00:00%2B01:00", ""),
    ] {
        let page = value(&server.get(&format!("/v1/users?{query}")));
        assert_eq!(letters(&page), expected, "{query}");
        let count = value(&server.get(&format!("/v1/users:count?{query}")));
        assert_eq!(count, json!({"count": expected.len()}), "{query}");
    }
}

fn a_cursor_is_good_for_its_list_alone(place: &Place) {
    let server = start(place);
    let page = value(&server.get("/v1/users?sort=name&limit=2&tag=odd"));
    let next = page["next"].as_str().expect("a next page");
    assert_eq!(letters(&value(&server.get(&format!("/v1/users?tag=odd&sort=name&cursor={next}")))), "eg");
    for query in ["sort=name", "sort=-name&tag=odd", "sort=email&tag=odd", "tag=odd"] {
        problem(&server.get(&format!("/v1/users?{query}&cursor={next}")), 400);
    }
    for cursor in ["x", "AAAA", &next[1..], ""] {
        problem(&server.get(&format!("/v1/users?tag=odd&sort=name&cursor={cursor}")), 400);
    }
}

fn only_the_fields_asked_for_are_sent(place: &Place) {
    let server = start(place);
    let page = value(&server.get("/v1/users?fields=email,version&limit=1"));
    assert_eq!(page["users"], json!([{"version": 1, "email": "d@example.org"}]));
    let id = server.create("z@example.org")["id"].as_str().expect("an id").to_owned();
    assert_eq!(
        value(&server.get(&format!("/v1/users/{id}?fields=id,tags"))),
        json!({"id": id, "tags": ["one", "two"]})
    );
    problem(&server.get(&format!("/v1/users/{id}?fields=id,x")), 400);
    problem(&server.get(&format!("/v1/users/{id}?x=1")), 400);
}

fn a_query_that_makes_no_sense_is_refused(place: &Place) {
    let server = place.serve(&[]);
    for query in [
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=1&limit=2",
        "sort=id",
        "status=gone",
        "tag=A%20b",
        "q=",
        "q=%00",
        "q=%ff",
        "created_after=yesterday",
        "created_after=2030-01-31",
        "page=2",
        "fields=",
        "cursor=%F0%9F%98%80",
    ] {
        problem(&server.get(&format!("/v1/users?{query}")), 400);
    }
}
