//! Queries of listings: one that is taken says nothing that another way of saying it would not.
#![no_main]

use files::listing::Order;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|query: &str| {
    let Some(order) = Order::parse(query) else { return };
    assert_eq!(Order::parse(&format!("&{query}&")), Some(order), "empty parameters are none");
    let reversed = Order::parse(&format!("{query}&order=desc")).expect("a query");
    assert!(reversed.descending && reversed.key == order.key && reversed.json == order.json);
    assert_eq!(Order::parse(&format!("{query}&page=2")), None);
});
