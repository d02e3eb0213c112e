//! Searches short texts for single bytes, a word at a time.

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

/// The position of the first byte that is one of `any`, none of which is zero. Most targets have fewer bytes than a
/// vector, so a search by vectors would read them one by one.
#[inline]
pub fn first_of<const COUNT: usize>(bytes: &[u8], any: [u8; COUNT]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        if let Some(at) = first_in(u64::from_le_bytes(*word), any) {
            return Some(index * WORD + at);
        }
    }
    first_in(padded(rest), any).map(|at| words.len() * WORD + at)
}

/// The position of the first byte of a word, lowest first, that is one of `any`.
#[inline(always)]
fn first_in<const COUNT: usize>(word: u64, any: [u8; COUNT]) -> Option<usize> {
    let found = any.iter().fold(0, |found, byte| found | zeros(word ^ u64::from_ne_bytes([*byte; WORD])));
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Sets the highest bit in each byte that is zero. Bits above the lowest such byte may be wrong (Hacker's Delight,
/// 6-1).
#[inline(always)]
fn zeros(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; WORD]);
    word.wrapping_sub(ONES) & !word & (ONES << 7)
}

/// Fewer bytes than a word, followed by zeros. The two parts that are read of four bytes or more may overlap.
#[inline(always)]
fn padded(bytes: &[u8]) -> u64 {
    let length = bytes.len();
    match *bytes {
        [] => 0,
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_le_bytes([a, b, c, 0])),
        [a, b, c, d, ..] => {
            let last = bytes.last_chunk().map_or(0, |last| u32::from_le_bytes(*last));
            u64::from(u32::from_le_bytes([a, b, c, d])) | u64::from(last) << (8 * (length - 4))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_bytes_is_found() {
        for length in 0..40 {
            let text: Vec<u8> = (0..length).map(|n| b"abcdefgh/"[n % 9]).collect();
            assert_eq!(first_of(&text, *b"?%"), None, "{length}");
            for first in 0..length {
                for second in first..length {
                    for pair in [b"?%", b"%?", b"??"] {
                        let mut text = text.clone();
                        text[second] = pair[1];
                        text[first] = pair[0];
                        assert_eq!(first_of(&text, *b"?%"), Some(first), "{}", text.escape_ascii());
                    }
                }
            }
        }
    }

    #[test]
    fn no_other_byte_is_taken_for_one_of_them() {
        for byte in 0..=u8::MAX {
            for length in 1..=2 * WORD {
                let text = vec![byte; length];
                let expected = matches!(byte, b'?' | b'%' | 0xff).then_some(0);
                assert_eq!(first_of(&text, [b'?', b'%', 0xff]), expected, "{byte} {length} times");
            }
        }
    }
}
