//! An HTTP/3 field section, and Huffman's code in it: whatever arrives, the result is within its limits, is the same
//! when it is read again into a used buffer, and the same when it is written and read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use listener::fuzzing::qpack::{begin, line, read as read_section};
use listener::fuzzing::{Section, huffman};

/// Counted as in RFC 9114, section 4.2.2.
const MOST: usize = 4096;

fn lines(section: &Section) -> Vec<(Vec<u8>, Vec<u8>)> {
    section.lines().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fuzz_target!(|bytes: &[u8]| {
    let mut text = Vec::new();
    if huffman::decode(bytes, &mut text).is_some() {
        // The shortest codes have five bits, the longest thirty, and padding less than eight.
        let bits = 8 * bytes.len();
        assert!(5 * text.len() <= bits && bits < 30 * text.len() + 8, "{} of {}", text.len(), bytes.len());
    }

    let mut section = Section::new();
    let Some(()) = read_section(&mut section, bytes, MOST) else { return };
    let read = lines(&section);
    assert!(read.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() <= MOST);

    let mut written = Vec::new();
    begin(&mut written);
    read.iter().for_each(|(name, value)| line(&mut written, name, value));
    // An earlier section leaves nothing behind.
    assert_eq!(read_section(&mut section, &written, MOST), Some(()), "what is written is plain");
    assert_eq!(lines(&section), read);
    // A line is complete or absent.
    for cut in 2..bytes.len() {
        if read_section(&mut section, &bytes[..cut], MOST).is_some() {
            assert!(read.starts_with(&lines(&section)), "cut at {cut}");
        }
    }
});
