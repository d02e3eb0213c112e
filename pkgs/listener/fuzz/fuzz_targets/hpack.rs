//! HTTP/2's field sections, each of which may refer to earlier ones: whatever arrives, the result is within its limits,
//! and is the same when it is written without a table and read by a decoder without one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listener::fuzzing::Section;
use listener::fuzzing::hpack::{Decoder, line};

/// Counted as in RFC 9113, section 6.5.2.
const MOST: usize = 4096;

fn lines(section: &Section) -> Vec<(Vec<u8>, Vec<u8>)> {
    section.lines().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn size(lines: &[(Vec<u8>, Vec<u8>)]) -> usize {
    lines.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
}

fuzz_target!(|bytes: &[u8]| {
    let (mut decoder, mut section) = (Decoder::default(), Section::new());
    let mut rest = bytes;
    // Each after its length, the last with the remaining length.
    while let [length, after @ ..] = rest {
        let block;
        (block, rest) = after.split_at(after.len().min((*length).into()));
        let Ok(fits) = decoder.read(&mut section, block, MOST) else { return };
        let read = lines(&section);
        let all_but_last = &read[..read.len() - usize::from(!fits)];
        assert!(size(all_but_last) <= MOST);
        assert_eq!(fits, size(&read) <= MOST);
        // Of the lines that do not fit, one is kept: from the table, or from the block itself in Huffman's code.
        assert!(section.end() <= 2 * MOST + 2 * block.len());

        let mut written = Vec::new();
        read.iter().for_each(|(name, value)| line(&mut written, name, value));
        let (mut other, mut again) = (Decoder::default(), Section::new());
        assert_eq!(other.read(&mut again, &written, MOST), Ok(fits));
        assert_eq!(lines(&again), read);
        assert!(other.read(&mut again, b"\xbe", MOST).is_err(), "nothing is kept");
    }
});
