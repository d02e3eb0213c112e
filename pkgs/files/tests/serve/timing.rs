//! How long answers took, according to themselves.

use std::fs;

use crate::place::{Place, forget};
use crate::secure::secure;
use crate::versions::{self, ALL};

/// The metrics in a `Server-Timing`: names, and what follows them.
fn metrics(field: &str) -> Vec<(String, String)> {
    let parts = field.split(", ").map(|metric| metric.split_once(';').expect("a parameter"));
    parts.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect()
}

#[test]
fn answers_say_how_long_they_took_where_a_rule_has_them() {
    let place = Place::new();
    place.file("timed/a.txt", "a");
    place.file("timed/cold", vec![1; 3_000_000]);
    place.file("b.txt", "b");
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '/timed/*'\nserver-timing = true\nlisting = true\n")
        .expect("written");
    let server = secure(&place, &["--rules", rules.to_str().expect("UTF-8"), "--revalidate", "600000"]);
    for version in ALL {
        for (target, status) in [("/timed/a.txt", 200), ("/timed/", 200)] {
            // From the second request on, a thread has it open; which thread answers is random.
            let mut answers = (0..20).map(|_| versions::get(&server, version, target, &[]));
            let has_hit = answers.any(|answer| {
                assert_eq!(answer.status, status, "{version} {target}");
                let timing = answer.field("server-timing").expect("a timing");
                let metrics = metrics(&timing);
                let total = metrics.last().expect("a metric");
                assert_eq!(total.0, "total", "{timing}");
                let took: f64 = total.1.strip_prefix("dur=").expect("a duration").parse().expect("a number");
                assert!((0.0..60_000.0).contains(&took), "{timing}");
                assert_eq!(metrics[0].0, "cache", "{timing}");
                assert_eq!(metrics.len() == 3, metrics.iter().any(|(name, _)| name == "wait"), "{timing}");
                metrics[0].1 == "desc=hit"
            });
            assert!(has_hit, "{version} {target}");
        }
        let tag = versions::get(&server, version, "/timed/a.txt", &[]).field("etag").expect("a tag");
        let known = versions::get(&server, version, "/timed/a.txt", &[("if-none-match", &tag)]);
        assert!(known.status == 304 && known.field("server-timing").is_some(), "{version}");
        assert_eq!(versions::get(&server, version, "/b.txt", &[]).field("server-timing"), None, "{version}");
        let missing = versions::get(&server, version, "/timed/missing", &[]);
        assert!(missing.status == 404 && missing.field("server-timing").is_none(), "{version}");
    }
}

#[test]
fn what_is_not_open_yet_is_a_miss() {
    let place = Place::new();
    for number in 0..8 {
        place.file(&format!("{number}"), "text");
        forget(&fs::File::open(place.root(&number.to_string())).expect("a file"));
    }
    let rules = place.beside("rules.toml");
    fs::write(&rules, "[[rule]]\npath = '*'\nserver-timing = true\n").expect("written");
    let server = secure(&place, &["--rules", rules.to_str().expect("UTF-8")]);
    for (number, version) in ALL.into_iter().enumerate() {
        let timing = versions::get(&server, version, &format!("/{number}"), &[]).field("server-timing");
        let timing = timing.expect("a timing");
        assert!(timing.starts_with("cache;desc=miss, "), "{version}: {timing}");
    }
}
