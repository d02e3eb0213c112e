//! Whole connections to each listener of the real services, drawn at random and split anywhere, and checked against the
//! model.
//!
//! Two seeds are always the same. `LINERATE_ABUSE_SEED` adds a third: a number, or `random`, which draws one and prints
//! it. `make test-abuse` sets `random`.

use std::sync::atomic::{AtomicUsize, Ordering};

use abuse::conversation::Conversation;
use abuse::random::Random;

use crate::refused::{converse, everywhere};
use crate::services::{Listener, api, files, links};

/// Conversations with each listener, for each seed.
const COUNT: usize = 400;

/// The second seed once found answers that a reset discarded.
const SEEDS: [u64; 2] = [1, 10_722_771_948_966_887_576];

/// How many bytes a conversation is made from.
const LENGTH: usize = 60;

/// What is wrong with a conversation.
fn wrong(listener: &Listener, program: &[u8]) -> Option<String> {
    let conversation = Conversation::new(program, listener.targets);
    let held = converse(listener, &conversation).map_err(|error| error.to_string()).and_then(|received| {
        received
            .hold(&conversation.bytes, &listener.rules, |asked, answer| listener.fits(asked, answer))
            .map_err(|why| {
                format!(
                    "{why}\nreceived {:?}",
                    String::from_utf8_lossy(&received.bytes[..received.bytes.len().min(1500)])
                )
            })
    });
    held.err().map(|why| {
        let pieces: Vec<_> = conversation.pieces().map(String::from_utf8_lossy).collect();
        format!("{}: {why}\nsent {pieces:?}", listener.name)
    })
}

/// A shorter conversation that also fails.
fn shrunk(listener: &Listener, mut program: Vec<u8>, mut why: String) -> String {
    let mut step = program.len() / 2;
    while step > 0 {
        let mut at = 0;
        while at < program.len() {
            let shorter = [&program[..at], &program[(at + step).min(program.len())..]].concat();
            match wrong(listener, &shorter) {
                Some(same) => (program, why) = (shorter, same),
                None => at += step,
            }
        }
        step /= 2;
    }
    format!("{why}\nmade from {program:?}")
}

#[test]
fn whole_connections_go_as_the_model_has_it() {
    let services = [links(&[]), api(&[]), files(&[])];
    let more = std::env::var("LINERATE_ABUSE_SEED").ok().map(|seed| match &*seed {
        "random" => Random::seed(),
        seed => seed.parse().expect("LINERATE_ABUSE_SEED is a number or random"),
    });
    if let Some(seed) = more {
        println!("LINERATE_ABUSE_SEED={seed}");
    }
    let held = AtomicUsize::new(0);
    let faults: Vec<String> = std::thread::scope(|scope| {
        let talk = |listener: Listener| {
            let held = &held;
            move || {
                let mut faults = Vec::new();
                for seed in SEEDS.into_iter().chain(more) {
                    let mut random = Random::new(seed);
                    for _ in 0..COUNT {
                        let length = random.below(LENGTH);
                        let program = random.bytes(length);
                        held.fetch_add(1, Ordering::Relaxed);
                        if let Some(why) = wrong(&listener, &program) {
                            faults.push(format!("seed {seed}: {}", shrunk(&listener, program, why)));
                            break;
                        }
                    }
                }
                faults
            }
        };
        let threads: Vec<_> =
            everywhere(&services).into_iter().map(|listener| scope.spawn(talk(listener))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(held.into_inner() >= 7 * COUNT);
    for service in services {
        service.program.assert_runs("conversations");
    }
}
