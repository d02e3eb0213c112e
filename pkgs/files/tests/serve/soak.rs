//! What the soak bench counts as growth. This judgement is tested here, since no run of the bench proves it correct.

use crate::measure::{Kept, grown};

/// Samples at each hundredth of a run.
fn run(kept: impl Fn(u64) -> [u64; 4]) -> Vec<String> {
    let samples: Vec<_> = (1..=100).map(|done| (done as f64 / 100.0, Kept(kept(done)))).collect();
    grown(&samples)
}

#[test]
fn what_stays_as_it_was_after_the_first_tenth_has_not_grown() {
    assert_eq!(run(|_| [50_000, 40, 8, 9000]), [""; 0]);
    // Caches that fill at first, and a peak now and then, which ends.
    let filling = |done: u64| if done < 8 { done } else { 8 };
    assert_eq!(run(|done| [20_000 + 5000 * filling(done), 40 + filling(done), 8, 9000]), [""; 0]);
    let peaks = |done: u64| if done.is_multiple_of(3) { 200_000 } else { 50_000 };
    assert_eq!(run(|done| [peaks(done), 40, 8, 9000]), [""; 0]);
    // A little growth is noise.
    assert_eq!(run(|done| [50_000 + done * 50, 40 + done / 10, 8, 9000 + done * 100]), [""; 0]);
    // A decrease isn't growth.
    assert_eq!(run(|done| [90_000 - done * 500, 400 - done, 208 - done, 90_000 - done]), [""; 0]);
}

#[test]
fn what_is_more_all_through_the_last_tenth_has_grown_and_is_named() {
    for (index, name) in ["RSS", "descriptors", "pipes", "kernel"].into_iter().enumerate() {
        let found = run(|done| {
            let mut kept = [50_000, 40, 8, 9000];
            kept[index] += done * 1000;
            kept
        });
        assert!(matches!(&found[..], [one] if one.starts_with(name)), "{name}: {found:?}");
    }
    // Slowly, and after a first tenth that was quiet.
    let found = run(|done| [50_000, 40 + if done > 85 { 30 } else { 0 }, 8, 9000]);
    assert!(matches!(&found[..], [one] if one.starts_with("descriptors has grown: 40 ")), "{found:?}");
}

#[test]
fn what_has_too_few_samples_says_so_and_passes_for_nothing() {
    assert_eq!(grown(&[]).len(), 4);
    let kept = Kept([1; 4]);
    // Nothing from the first tenth, or nothing from the last.
    assert_eq!(grown(&[(0.5, kept), (1.0, kept)]).len(), 4);
    assert_eq!(grown(&[(0.05, kept), (0.5, kept)]).len(), 4);
    assert_eq!(grown(&[(0.05, kept), (1.0, kept)]).len(), 0);
}
