//! Tests of the cache with a store in memory. The tests of `linerate-files` use a real gateway and cover what needs a
//! network.

use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path as Place;
use std::sync::mpsc::channel;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};

use super::*;
use crate::catalogue::Entry;

const MIB: u64 = BLOCK_BYTES;

fn settings(place: &Place) -> Settings {
    let seconds = Duration::from_secs;
    Settings {
        bucket: "s3://bucket/site".parse().expect("a bucket"),
        endpoint: None,
        allow_http: false,
        authorities: None,
        region: None,
        credentials: None,
        anonymous: true,
        directory: place.to_owned(),
        capacity: 64 * MIB,
        objects: 1000,
        ttl: seconds(60),
        missing_ttl: seconds(60),
        stale: seconds(3600),
        memory: 8 * MIB,
        connect_timeout: seconds(5),
        head_timeout: seconds(5),
        block_timeout: seconds(10),
    }
}

struct Fixture {
    store: Arc<InMemory>,
    origin: Origin,
    place: tempfile::TempDir,
    runtime: Runtime,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let place = tempfile::tempdir().expect("a directory");
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let store = Arc::new(InMemory::new());
        let origin = Self::start(&store, place.path(), change);
        Self { store, origin, place, runtime }
    }

    fn start(store: &Arc<InMemory>, place: &Place, change: impl FnOnce(&mut Settings)) -> Origin {
        let mut settings = settings(place);
        change(&mut settings);
        let remote = Remote::of(&settings, Arc::clone(store) as Arc<dyn ObjectStore>);
        Origin::of(settings, remote).expect("an origin")
    }

    /// Restarts as after a kill: nothing is told to end, and the lock is released with its descriptor.
    fn restart(self, change: impl FnOnce(&mut Settings)) -> Self {
        let Self { store, origin, place, runtime } = self;
        let inner = Arc::downgrade(&origin.inner);
        drop(origin);
        while inner.upgrade().is_some() {
            std::thread::yield_now();
        }
        let origin = Self::start(&store, place.path(), change);
        Self { store, origin, place, runtime }
    }

    fn put(&self, key: &str, bytes: Vec<u8>) {
        let path = Path::from(format!("site/{key}"));
        self.runtime.block_on(self.store.put(&path, PutPayload::from(bytes))).expect("room");
    }

    fn delete(&self, key: &str) {
        self.runtime.block_on(self.store.delete(&Path::from(format!("site/{key}")))).expect("it is there");
    }

    fn find(&self, key: &str) -> Result<Arc<Object>, Error> {
        self.runtime.block_on(self.origin.find(key, true))
    }

    fn fetch(&self, object: &Arc<Object>, wanted: Range<u64>) -> Result<Fetched, Error> {
        self.runtime.block_on(self.origin.fetch(object, wanted))
    }

    /// These bytes, fetched as a sender does it.
    fn read(&self, object: &Arc<Object>, range: Range<u64>) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = object.available(&(at..range.end));
            if end > at {
                let mut part = vec![0; (end - at) as usize];
                let read = rustix::io::pread(object.file().as_fd(), &mut part[..], at).expect("a file");
                assert_eq!(read, part.len());
                bytes.extend(part);
                at = end;
            } else if let Fetched::Passed(start, block) = self.fetch(object, at..range.end)? {
                let part = &block[(at - start) as usize..block.len().min((range.end - start) as usize)];
                bytes.extend_from_slice(part);
                at += part.len() as u64;
            }
        }
        Ok(bytes)
    }

    fn fetched(&self) -> u64 {
        self.origin.inner.metrics.blocks.get()
    }
}

fn bytes(length: u64, seed: u64) -> Vec<u8> {
    (0..length).map(|at| (at / 3 + at * seed + seed) as u8).collect()
}

#[test]
fn an_object_is_fetched_once_and_then_whole() {
    let fixture = Fixture::new(|_| ());
    let all = bytes(3 * MIB + 5, 1);
    fixture.put("a", all.clone());
    let object = fixture.find("a").expect("an object");
    assert!(fixture.read(&object, 0..all.len() as u64) == Ok(all.clone()));
    while !object.is_whole() {
        fixture.fetch(&object, 0..all.len() as u64).expect("a block");
    }
    assert_eq!(fixture.fetched(), 4);
    let again = fixture.find("a").expect("an object");
    assert!(Arc::ptr_eq(&object, &again));
    assert!(fixture.read(&again, 0..all.len() as u64) == Ok(all));
    assert_eq!(fixture.fetched(), 4);
}

#[test]
fn a_range_takes_no_more_blocks_than_it_lies_in() {
    let fixture = Fixture::new(|_| ());
    let all = bytes(9 * MIB, 2);
    fixture.put("a", all.clone());
    let object = fixture.runtime.block_on(fixture.origin.find("a", false)).expect("an object");
    let range = 4 * MIB + 7..5 * MIB + 9;
    assert!(
        fixture.read(&object, range.clone()).as_deref() == Ok(&all[range.start as usize..range.end as usize])
    );
    let there: Vec<u32> = (0..9).filter(|index| object.has(*index)).collect();
    assert_eq!(there, [4, 5]);
}

#[test]
fn an_empty_object_is_whole_and_a_missing_one_is_remembered() {
    let fixture = Fixture::new(|_| ());
    fixture.put("empty", Vec::new());
    // S3 answers this with 416. This store refuses it too, but with another message.
    let object = fixture.find("empty").expect("an object");
    assert!(object.is_whole());
    assert_eq!(fixture.find("none").err(), Some(Error::Missing));
    fixture.put("none", vec![1]);
    assert_eq!(fixture.find("none").err(), Some(Error::Missing), "it was asked for lately");
    assert!(matches!(fixture.origin.known("none"), Known::Failed(Error::Missing)));
    assert_eq!(fixture.find(&"x".repeat(1025)).err(), Some(Error::Missing), "no key is so long");
    assert_eq!(fixture.find("a/../b").err(), Some(Error::Missing));
}

#[test]
fn a_version_that_is_replaced_is_never_mixed_with_the_next() {
    let fixture = Fixture::new(|settings| (settings.ttl, settings.stale) = (Duration::ZERO, Duration::ZERO));
    let (old, new) = (bytes(3 * MIB, 3), bytes(3 * MIB, 4));
    fixture.put("a", old.clone());
    let object = fixture.runtime.block_on(fixture.origin.find("a", false)).expect("an object");
    assert!(fixture.read(&object, 0..100).as_deref() == Ok(&old[..100]));
    fixture.put("a", new.clone());
    assert_eq!(fixture.read(&object, 2 * MIB..3 * MIB), Err(Error::Changed));
    assert!(fixture.read(&object, 0..100).as_deref() == Ok(&old[..100]), "what is there stays");
    let next = fixture.find("a").expect("an object");
    assert!(fixture.read(&next, 0..3 * MIB) == Ok(new));
    assert!(object.is_gone() && !next.is_gone());
    fixture.delete("a");
    assert_eq!(fixture.find("a").err(), Some(Error::Missing));
    assert!(next.is_gone());
}

#[test]
fn what_was_stored_is_found_after_a_restart() {
    let mut fixture = Fixture::new(|_| ());
    let all = bytes(5 * MIB, 5);
    fixture.put("a", all.clone());
    let object = fixture.runtime.block_on(fixture.origin.find("a", false)).expect("an object");
    fixture.fetch(&object, 3 * MIB..4 * MIB).expect("a block");
    drop(object);
    fixture = fixture.restart(|_| ());
    assert_eq!(fixture.origin.size().1, 1);
    let object = fixture.find("a").expect("an object");
    assert!(object.has(3) && !object.has(1));
    assert_eq!(fixture.fetched(), 0, "it is as it was");
    assert!(fixture.read(&object, 0..5 * MIB) == Ok(all));
    drop(object);
    let (before, _) = fixture.origin.size();
    fixture = fixture.restart(|settings| settings.capacity = 3 * MIB);
    let (after, objects) = fixture.origin.size();
    assert!(before > 5 * MIB && (after, objects) == (0, 0), "{before} {after}");
    let left = std::fs::read_dir(fixture.place.path()).expect("the directory").count();
    assert_eq!(left, 1, "the lock alone");
}

#[test]
fn bytes_and_objects_are_bounded_and_what_is_open_is_counted() {
    let fixture = Fixture::new(|settings| {
        settings.capacity = 10 * MIB;
        settings.objects = 50;
    });
    let kept = {
        fixture.put("kept", bytes(2 * MIB, 9));
        let object = fixture.find("kept").expect("an object");
        fixture.read(&object, 0..2 * MIB).expect("bytes");
        object
    };
    for number in 0..60_u64 {
        let key = number.to_string();
        fixture.put(&key, bytes(MIB / 2, number));
        let object = fixture.find(&key).expect("an object");
        assert!(fixture.read(&object, 0..MIB / 2) == Ok(bytes(MIB / 2, number)), "{number}");
        let (used, objects) = fixture.origin.size();
        assert!(used <= 10 * MIB && objects <= 50, "{used} {objects}");
    }
    assert!(fixture.origin.evictions() > 40);
    assert!(fixture.read(&kept, 0..2 * MIB) == Ok(bytes(2 * MIB, 9)), "it is open");
}

#[test]
fn a_block_evicts_as_many_open_objects_as_it_takes_and_no_more() {
    let fixture = Fixture::new(|settings| settings.capacity = 10 * MIB);
    let read = |key: &str, size: u64| {
        let object = fixture.find(key).expect("an object");
        fixture.read(&object, 0..size).expect("bytes");
        object
    };
    let open: Vec<_> = (0..9_u64)
        .map(|number| {
            fixture.put(&number.to_string(), bytes(MIB, number));
            read(&number.to_string(), MIB)
        })
        .collect();
    fixture.put("new", bytes(2 * MIB, 9));
    let new = read("new", 2 * MIB);
    let gone = open.iter().filter(|object| object.is_gone()).count();
    assert!((1..=3).contains(&gone) && fixture.origin.evictions() == gone as u64, "{gone} were evicted");
    assert!(fixture.origin.size().0 <= 10 * MIB);
    // Their room is free once they are closed.
    drop(open);
    while !new.is_whole() {
        fixture.fetch(&new, 0..2 * MIB).expect("a block");
        fixture.fetch(&new, MIB..2 * MIB).expect("a block");
    }
    let (used, objects) = fixture.origin.size();
    assert!(used <= 10 * MIB && objects >= 7, "{used} {objects}");
}

#[test]
fn what_is_evicted_and_stays_open_does_not_keep_others_out_of_the_cache() {
    let fixture = Fixture::new(|settings| settings.capacity = 10 * MIB);
    let read = |key: &str| {
        fixture.put(key, bytes(MIB, 1));
        let object = fixture.find(key).expect("an object");
        fixture.read(&object, 0..MIB).expect("bytes");
        object
    };
    let gone = |open: &[Arc<Object>]| open.iter().filter(|object| object.is_gone()).count();
    let mut open: Vec<_> = (0..9).map(|number| read(&number.to_string())).collect();
    assert!(gone(&open) == 0 && open.iter().all(|object| object.is_whole()));
    // Each that comes while nobody closes what was evicted is passed on, and evicts what it would have taken.
    for number in 1..=4 {
        assert!(!read(&format!("new {number}")).is_whole());
        // Its block may be refused twice: when it is looked up, and when it is read.
        assert!((number..=2 * number).contains(&gone(&open)), "{} were evicted for {number}", gone(&open));
    }
    // A slow client keeps one of them. The others' room is free.
    let slow = open.iter().position(|object| object.is_gone()).expect("one was evicted");
    let _slow = open.swap_remove(slow);
    open.retain(|object| !object.is_gone());
    for number in 1..=8 {
        let newer = read(&format!("newer {number}"));
        let mut tries = 0;
        while !newer.is_whole() {
            // Closed, too, by whoever evicted it and by a fetch that ends.
            std::thread::sleep(Duration::from_millis(10));
            open.retain(|object| !object.is_gone());
            fixture.fetch(&newer, 0..MIB).expect("a block");
            tries += 1;
            assert!(tries < 500, "no room for {number}");
        }
        open.push(newer);
    }
    assert!(fixture.origin.size().0 <= 10 * MIB);
}

#[test]
fn nobody_waits_for_the_room_of_a_large_object_that_a_slow_client_has() {
    let fixture = Fixture::new(|settings| settings.capacity = 16 * MIB);
    let read = |key: &str, size: u64| {
        fixture.put(key, bytes(size, 1));
        let object = fixture.find(key).expect("an object");
        fixture.read(&object, 0..size).expect("bytes");
        object
    };
    let _slow = read("slow", 12 * MIB);
    let mut open: Vec<_> = (0..3).map(|number| read(&number.to_string(), MIB)).collect();
    let inner = &fixture.origin.inner;
    let Entry::Record(record) = inner.catalogue.get("slow") else { panic!("it is stored") };
    inner.drop_now(&record);
    // Its client might end soon, so nothing is evicted at first. Each file needs a try, and one for which there is room.
    let (mut stored, mut passed) = (0, 0);
    while stored < 4 {
        let newer = read(&format!("newer {stored} {passed}"), MIB);
        if newer.is_whole() {
            stored += 1;
            open.push(newer);
        } else {
            passed += 1;
            assert!(passed <= 10, "{stored} were stored");
            std::thread::sleep(Duration::from_millis(300));
        }
        open.retain(|object| !object.is_gone());
    }
    assert!(fixture.origin.size().0 <= 16 * MIB);
}

#[test]
fn nobody_waits_where_an_object_is_being_opened() {
    let fixture = Fixture::new(|_| ());
    fixture.put("a", bytes(MIB, 1));
    drop(fixture.find("a").expect("an object"));
    let (origin, inner) = (&fixture.origin, &fixture.origin.inner);
    let Entry::Record(record) = inner.catalogue.get("a") else { panic!("it is stored") };
    while record.live().is_some() {
        std::thread::yield_now();
    }
    std::thread::scope(|scope| {
        let (opens, opening) = channel();
        let (opened, done) = channel::<()>();
        let record = &record;
        scope.spawn(move || {
            let slow = || {
                opens.send(()).expect("somebody waits");
                let _ = done.recv();
                Err(Error::Busy)
            };
            assert_eq!(inner.catalogue.open(record, true, slow).err(), Some(Error::Busy));
        });
        opening.recv().expect("it is being opened");
        let (tell, told) = channel();
        scope.spawn(move || {
            let is_unknown = matches!(origin.known("a"), Known::Unknown);
            tell.send((record.is_fresh(), is_unknown)).expect("somebody waits");
        });
        let told = told.recv_timeout(Duration::from_secs(60));
        drop(opened);
        assert_eq!(told, Ok((true, true)));
    });
    assert!(fixture.find("a").is_ok());
}

#[test]
fn what_is_larger_than_the_cache_is_passed_on() {
    let fixture = Fixture::new(|settings| settings.capacity = 2 * MIB);
    let all = bytes(5 * MIB + 1, 6);
    fixture.put("a", all.clone());
    let object = fixture.find("a").expect("an object");
    assert!(fixture.read(&object, 0..all.len() as u64) == Ok(all));
    assert!(!object.is_whole());
    assert!(fixture.origin.size().0 == 0);
    let again = fixture.find("a").expect("an object");
    assert!(Arc::ptr_eq(&object, &again), "it is remembered while somebody has it");
}

#[test]
fn many_at_once_have_one_lookup_and_one_fetch() {
    let fixture = Fixture::new(|_| ());
    fixture.put("a", bytes(MIB, 7));
    fixture.runtime.block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let origin = fixture.origin.clone();
            all.spawn(async move {
                let object = origin.find("a", true).await?;
                origin.fetch(&object, 0..MIB).await
            });
        }
        while let Some(done) = all.join_next().await {
            assert_eq!(done.expect("no panic"), Ok(Fetched::Stored));
        }
    });
    let metrics = &fixture.origin.inner.metrics;
    assert_eq!((metrics.looks.get(), metrics.blocks.get()), (1, 1));
}

#[test]
fn two_processes_share_a_directory_until_one_ends() {
    let fixture = Fixture::new(|_| ());
    fixture.put("a", bytes(MIB, 8));
    let object = fixture.find("a").expect("an object");
    fixture.read(&object, 0..MIB).expect("bytes");
    let next = Fixture::start(&fixture.store, fixture.place.path(), |_| ());
    assert!(!next.inner.alone.load(Ordering::Relaxed));
    fixture.put("b", bytes(MIB, 9));
    let (a, b) = fixture.runtime.block_on(async {
        (next.find("a", true).await.expect("an object"), next.find("b", true).await.expect("an object"))
    });
    assert!(a.has(0), "what the other has stored is read");
    assert!(!b.is_stored(), "and nothing is written");
    let Fixture { origin, place, runtime, .. } = fixture;
    drop((object, origin));
    let files = || std::fs::read_dir(place.path()).expect("the directory").count();
    runtime.block_on(async {
        while !next.inner.alone.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(files(), 3, "the files of a, and the lock");
}

#[test]
fn blocks_that_cannot_be_stored_are_fetched_ahead_once() {
    let fixture = Fixture::new(|_| ());
    fixture.put("a", bytes(9 * MIB, 3));
    let object = fixture.runtime.block_on(fixture.origin.find("a", false)).expect("an object");
    fixture.fetch(&object, 0..MIB).expect("a block");
    // The first one keeps the directory.
    let next = Fixture::start(&fixture.store, fixture.place.path(), |_| ());
    let object = fixture.runtime.block_on(next.find("a", true)).expect("an object");
    assert!(object.has(0) && object.is_stored());
    for index in 1..9 {
        let fetched = fixture.runtime.block_on(next.fetch(&object, index * MIB..9 * MIB)).expect("a block");
        assert!(matches!(fetched, Fetched::Passed(start, _) if start == index * MIB), "{index}");
        // For a slow client, all that was fetched ahead is there before it asks for more.
        while (0..9).any(|index| object.is_under_way(index)) {
            std::thread::yield_now();
        }
    }
    let fetched = next.inner.metrics.blocks.get();
    assert!(fetched <= 8 + 4, "{fetched} fetches of 8 blocks");
}
