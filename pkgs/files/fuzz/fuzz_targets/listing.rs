//! Queries of listings: an accepted query means the same as its other spellings.
#![no_main]

use files::http::listing_query::ListingQuery;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|query: &str| {
    let Some(order) = ListingQuery::parse(query) else { return };
    assert_eq!(ListingQuery::parse(&format!("&{query}&")), Some(order), "empty parameters are none");
    let reversed = ListingQuery::parse(&format!("{query}&order=desc")).expect("a query");
    assert!(reversed.descending && reversed.key == order.key && reversed.json == order.json);
    assert_eq!(ListingQuery::parse(&format!("{query}&page=2")), None);
});
