//! Many users at once.

use serde_json::{Value, json};

use crate::place::{Place, problem, user, value};

on_each_database! {
    many_are_created_read_and_deleted_at_once,
    all_are_created_or_none,
    a_user_of_a_batch_is_no_larger_than_one_alone,
    a_user_of_a_batch_has_no_more_values_than_one_alone,
}

fn many_are_created_read_and_deleted_at_once(place: &Place) {
    let server = place.serve(&[]);
    let sent: Vec<Value> = (0..30).map(|number| user(&format!("u{number}@example.org"))).collect();
    let answer = server.send("POST", "/v1/users:batchCreate", "", &json!({ "users": sent }));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let created = value(&answer)["users"].as_array().expect("users").clone();
    assert_eq!(created.len(), 30);
    assert!(created.iter().zip(&sent).all(|(created, sent)| created["email"] == sent["email"]));

    let unknown = "019aa5a3-7f6e-7000-8000-000000000001";
    let mut ids: Vec<Value> = created.iter().rev().map(|user| user["id"].clone()).collect();
    ids.push(json!(unknown));
    ids.push(ids[0].clone());
    let answer = value(&server.send("POST", "/v1/users:batchGet", "", &json!({ "ids": ids })));
    let mut expected = created.clone();
    expected.reverse();
    assert_eq!(answer, json!({"users": expected, "missing": [unknown]}));

    let answer = value(&server.send("POST", "/v1/users:batchDelete", "", &json!({"ids": [ids[0], unknown]})));
    assert_eq!(answer, json!({"deleted": [ids[0]], "missing": [unknown]}));
    problem(&server.get(&format!("/v1/users/{}", ids[0].as_str().expect("an id"))), 404);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 29}));
}

fn all_are_created_or_none(place: &Place) {
    let server = place.serve(&["--max-batch", "3"]);
    server.create("taken@example.org");
    let create =
        |users: &[Value]| server.send("POST", "/v1/users:batchCreate", "", &json!({ "users": users }));
    let (a, b, taken) = (user("a@example.org"), user("b@example.org"), user("taken@example.org"));
    assert_eq!(problem(&create(&[a.clone(), taken]), 409), ["/users/1/email"]);
    assert_eq!(problem(&create(&[a.clone(), b.clone(), user("A@example.org")]), 409), ["/users/2/email"]);
    let mut bad = b.clone();
    bad["addresses"][0]["country"] = json!("Austria");
    assert_eq!(problem(&create(&[a.clone(), bad]), 422), ["/users/1/addresses/0/country"]);
    assert_eq!(problem(&create(&[]), 422), ["/users"]);
    assert_eq!(problem(&create(&vec![a.clone(); 4]), 422), ["/users"]);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 1}));
    assert_eq!(
        problem(&server.send("POST", "/v1/users:batchGet", "", &json!({"ids": ["x"]})), 422),
        ["/ids/0"]
    );
    let keyed = |users: &Value| server.send("POST", "/v1/users:batchCreate", "Idempotency-Key: k\r\n", users);
    let users = json!({ "users": [a, b] });
    let (first, again) = (keyed(&users), keyed(&users));
    assert_eq!((first.status, again.status), (201, 201), "{}", first.text());
    assert_eq!(again.field("idempotency-replayed").as_deref(), Some("true"));
    assert_eq!(first.body, again.body);
}

fn a_user_of_a_batch_is_no_larger_than_one_alone(place: &Place) {
    let server = place.serve(&["--max-user-bytes", "1024"]);
    let mut large = user("b@example.org");
    large["profile"]["bio"] = json!("b".repeat(1500));
    let users = json!({ "users": [user("a@example.org"), large] });
    problem(&server.send("POST", "/v1/users", "", &users["users"][1]), 413);
    assert_eq!(problem(&server.send("POST", "/v1/users:batchCreate", "", &users), 413), ["/users/1"]);
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 0}));
}

fn a_user_of_a_batch_has_no_more_values_than_one_alone(place: &Place) {
    let server = place.serve(&[]);
    let with = |lists: usize| {
        let lists = (0..lists).map(|number| (format!("l{number}"), json!(vec![1; 64])));
        let mut user = user("b@example.org");
        user["preferences"] = json!({"g": lists.collect::<serde_json::Map<_, _>>()});
        user
    };
    let many = with(64);
    let alone = problem(&server.send("POST", "/v1/users", "", &many), 422);
    assert_eq!(alone.len(), 1, "{alone:?}");
    let batch = json!({ "users": [user("a@example.org"), many] });
    let refused = problem(&server.send("POST", "/v1/users:batchCreate", "", &batch), 422);
    assert!(refused.len() == 1 && refused[0].starts_with("/users/1/preferences/g/l"), "{refused:?}");
    assert_eq!(value(&server.get("/v1/users:count")), json!({"count": 0}));
    // What a batch stores can be changed.
    let batch = json!({ "users": [with(60)] });
    let answer = server.send("POST", "/v1/users:batchCreate", "", &batch);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let path = format!("/v1/users/{}", value(&answer)["users"][0]["id"].as_str().expect("an id"));
    assert_eq!(server.send("PATCH", &path, "", &json!({"name": "B"})).status, 200);
}
