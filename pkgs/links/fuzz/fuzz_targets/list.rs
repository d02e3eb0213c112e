//! Input from outside that reaches the database: cursors, searches, tags and tokens. No input causes an SQLite error,
//! and an accepted cursor continues its list.
#![no_main]

use std::sync::{Mutex, OnceLock};

use libfuzzer_sys::fuzz_target;
use links::link::NewLink;
use links::store::{Error, ListQuery, Options, Reader, Sort, Store};

fn reader() -> &'static Mutex<(Store, Reader)> {
    static READER: OnceLock<Mutex<(Store, Reader)>> = OnceLock::new();
    READER.get_or_init(|| {
        let directory = std::env::temp_dir().join(format!("links-fuzz-{}", std::process::id()));
        let store = Store::open(Options::new(&directory.join("links.db"))).expect("a new database");
        for n in 0..20 {
            let target = format!("https://example.com/{n}");
            let link = NewLink { target, tags: vec![format!("t{}", n % 3)], ..NewLink::default() };
            store.create(link, None).wait().expect("a valid link");
        }
        let reader = store.reader().expect("a reader");
        assert!(!reader.is_empty().expect("it reads"));
        // A fuzzer ends without running destructors. Its files are already open, and disappear when it ends.
        std::fs::remove_dir_all(&directory).expect("it was made here");
        Mutex::new((store, reader))
    })
}

fuzz_target!(|input: (u8, &str)| {
    let (how, text) = input;
    let guard = reader().lock().expect("no check has failed");
    let reader = &guard.1;
    let sort = [Sort::Created, Sort::Updated, Sort::Clicks, Sort::Code][usize::from(how & 3)];
    let plain = ListQuery { sort, descending: how & 4 != 0, limit: 5, ..ListQuery::default() };
    let text = || Some(text.to_owned());
    for query in [
        ListQuery { cursor: text(), ..plain.clone() },
        ListQuery { search: text(), ..plain.clone() },
        ListQuery { tag: text(), ..plain.clone() },
    ] {
        match reader.list(&query) {
            Ok(page) => assert!(page.links.len() <= 5),
            Err(Error::Field { .. }) => {}
            Err(error) => panic!("{error}: {query:?}"),
        }
    }
    let token = text().unwrap_or_default();
    assert!(reader.authorize(&token).expect("no error").is_none(), "nobody has a token: {token:?}");
});
