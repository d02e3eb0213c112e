//! Old days of clicks, on a server that keeps only a few.

use std::sync::Arc;
use std::time::{Duration, Instant};

use links::agent::Agent;
use links::link::NewLink;
use links::store::{Click, ClickBatch, Options, Store};
use links::when::{Timestamp, format_day};
use serde_json::{Value, json};

use crate::server::{Place, alone};

#[test]
fn a_server_folds_days_that_are_older_than_it_is_told() {
    let _alone = alone();
    let place = Place::new();
    let store = Store::open(Options::new(&place.database)).unwrap();
    let target = "https://t.example/".to_owned();
    let link = NewLink { code: Some("abc".to_owned()), target, ..NewLink::default() };
    let link = store.create(link, None).wait().unwrap().link.id;
    let today = Timestamp::now().day();
    let click =
        |ago, count| Click { link, hour: 24 * (today - ago), referrer: 0, agent: Agent::Chrome, count };
    // A day may end before the server checks. So no click is near the limit of 30 days.
    let clicks = vec![click(500, 1), click(40, 2), click(25, 4), click(0, 8)];
    store
        .count(Arc::new(ClickBatch { referrers: vec![String::new()], clicks, ..ClickBatch::default() }))
        .wait()
        .unwrap();
    store.close();
    let stats = || -> Value {
        let output = place.command(&["stats", "abc", "--json"]).unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    assert_eq!(stats()["older"], Value::Null);
    for (flags, from, to, clicks, days) in
        [(&[][..], 500, 500, 1, 3), (&["--click-retention", "30"], 500, 40, 3, 2)]
    {
        let server = place.serve(flags);
        let older = json!({
            "from": format_day(today - from),
            "to": format_day(today - to),
            "clicks": clicks,
        });
        let hung = Instant::now() + Duration::from_secs(60);
        while stats()["older"] != older {
            assert!(Instant::now() < hung, "{flags:?}: {}", stats());
            std::thread::sleep(Duration::from_millis(50));
        }
        let stats = stats();
        assert_eq!((&stats["clicks"], stats["days"].as_array().unwrap().len()), (&json!(15), days));
        server.stop();
    }
    let said = place.command(&["stats", "abc"]).unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.starts_with("15 clicks\n3 of them from ") && said.contains("not told apart"), "{said}");
}
