//! Chunked coding: a body is the same in one piece and in any two, and ends at the same byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listener::fuzzing::chunked::{Chunked, Found};

/// The result: the body and, if it has an end, where that is.
type Outcome = Result<(Vec<u8>, Option<usize>), &'static str>;

fn decode(pieces: &[&[u8]]) -> Outcome {
    let (mut chunked, mut body, mut used) = (Chunked::new(), Vec::new(), 0);
    for piece in pieces {
        let mut piece = *piece;
        loop {
            match chunked.decode(piece)? {
                Found::Data { skip, length } => {
                    assert!(length > 0);
                    body.extend_from_slice(&piece[skip..skip + length]);
                    piece = &piece[skip + length..];
                    used += skip + length;
                }
                Found::More { skip } => {
                    assert_eq!(skip, piece.len());
                    used += skip;
                    break;
                }
                Found::End { skip } => return Ok((body, Some(used + skip))),
            }
        }
    }
    Ok((body, None))
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(&[bytes]);
    for cut in 0..=bytes.len() {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(decode(&[first, second]), whole, "cut at {cut}");
    }
});
