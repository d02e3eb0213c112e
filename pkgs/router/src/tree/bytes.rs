//! The two inner loops of matching. They read words instead of bytes.

/// Whether `path` starts with `literal`, followed by a `/` or the end.
#[inline(always)]
pub(super) fn begins_with(path: &[u8], literal: &[u8]) -> bool {
    let length = literal.len();
    match path.get(length) {
        Some(b'/') => {}
        None if path.len() == length => {}
        _ => return false,
    }
    equal(&path[..length], literal)
}

/// `a == b` for slices of equal length. It compares words, of which the last may overlap the one before. A call of
/// memcmp would cost more than comparing most segments.
#[inline(always)]
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    let length = a.len();
    if length > 32 {
        a == b
    } else if length >= 16 {
        (word128(a, 0) ^ word128(b, 0)) | (word128(a, length - 16) ^ word128(b, length - 16)) == 0
    } else if length >= 8 {
        (word64(a, 0) ^ word64(b, 0)) | (word64(a, length - 8) ^ word64(b, length - 8)) == 0
    } else if length >= 4 {
        (word32(a, 0) ^ word32(b, 0)) | (word32(a, length - 4) ^ word32(b, length - 4)) == 0
    } else if length > 0 {
        (a[0] ^ b[0]) | (a[length / 2] ^ b[length / 2]) | (a[length - 1] ^ b[length - 1]) == 0
    } else {
        true
    }
}

#[inline(always)]
fn word128(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("16 bytes"))
}

#[inline(always)]
fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[inline(always)]
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

/// A segment of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The end of the segment: a `/` or the end of the path.
    pub(super) end: usize,
    /// Whether the segment may contain a `%`. This may also be true if a `%` follows the segment.
    pub(super) escapes: bool,
}

/// The segment of `path` that starts at `from`.
#[inline(always)]
pub(super) fn segment(path: &[u8], from: usize) -> Extent {
    let mut at = from;
    let mut escapes = 0;
    while at + 8 <= path.len() {
        let word = word64(path, at);
        let slashes = zeros(word ^ repeated(b'/'));
        escapes |= zeros(word ^ repeated(b'%'));
        if slashes != 0 {
            return Extent { end: at + slashes.trailing_zeros() as usize / 8, escapes: escapes != 0 };
        }
        at += 8;
    }
    if at == path.len() {
        return Extent { end: at, escapes: escapes != 0 };
    }
    let last = last_word(path, at);
    let slashes = zeros(last ^ repeated(b'/'));
    escapes |= zeros(last ^ repeated(b'%'));
    let end = if slashes == 0 { path.len() } else { at + slashes.trailing_zeros() as usize / 8 };
    Extent { end, escapes: escapes != 0 }
}

/// The bytes from `from`, one to seven, followed by zeros. What is read of them may overlap.
#[inline(always)]
fn last_word(path: &[u8], from: usize) -> u64 {
    let (length, count) = (path.len(), path.len() - from);
    if length >= 8 {
        word64(path, length - 8) >> (8 * (8 - count))
    } else if count >= 4 {
        u64::from(word32(path, from)) | u64::from(word32(path, length - 4)) << (8 * (count - 4))
    } else {
        let byte = |at: usize| u64::from(path[from + at]) << (8 * at);
        byte(0) | byte(count / 2) | byte(count - 1)
    }
}

const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Sets the highest bit in each byte that is zero. Bits above the lowest such byte may be wrong (Hacker's Delight,
/// 6-1).
#[inline(always)]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(repeated(1)) & !word & repeated(0x80)
}

/// The positions of this byte among four, lowest first. Positions after the first may be wrong.
#[inline(always)]
pub(super) fn positions(bytes: u32, byte: u8) -> impl Iterator<Item = u32> {
    let word = bytes ^ u32::from_ne_bytes([byte; 4]);
    let mut found = word.wrapping_sub(0x0101_0101) & !word & 0x8080_8080;
    std::iter::from_fn(move || {
        let position = (found != 0).then(|| found.trailing_zeros() / 8)?;
        found &= found - 1;
        Some(position)
    })
}

/// A hash of a path's length and its last bytes, which distinguish most paths. To hash more would take longer than to
/// search the tree. Only the upper bits are good.
#[inline(always)]
pub(super) fn digest(path: &[u8], seed: u64) -> u64 {
    const FACTORS: [u64; 2] = [0x9E37_79B9_7F4A_7C15, 0xC2B2_AE3D_27D4_EB4F];
    let length = path.len();
    let (first, last) = if length >= 16 {
        (word64(path, length - 16), word64(path, length - 8))
    } else if length >= 8 {
        (word64(path, 0), word64(path, length - 8))
    } else if length >= 4 {
        (u64::from(word32(path, 0)), u64::from(word32(path, length - 4)))
    } else {
        (0, path.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)))
    };
    let sum =
        (first ^ seed).wrapping_mul(FACTORS[0]) ^ last.wrapping_add(length as u64).wrapping_mul(FACTORS[1]);
    (sum ^ sum >> 32).wrapping_mul(FACTORS[0])
}

/// A hash of a segment. The tree's builder picks the seed so that no look-up takes many probes.
#[inline(always)]
pub(super) fn hash(segment: &[u8], seed: u64) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let length = segment.len();
    let mut hash = seed ^ (length as u64).wrapping_mul(FACTOR);
    if length >= 8 {
        let mut at = 0;
        while at + 8 < length {
            hash = (hash ^ word64(segment, at)).wrapping_mul(FACTOR).rotate_left(29);
            at += 8;
        }
        hash ^= word64(segment, length - 8);
    } else if length >= 4 {
        hash ^= u64::from(word32(segment, 0)) << 32 | u64::from(word32(segment, length - 4));
    } else {
        for &byte in segment {
            hash ^= u64::from(byte);
            hash = hash.rotate_left(8);
        }
    }
    hash = (hash ^ hash >> 32).wrapping_mul(FACTOR);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_ends_at_the_first_slash_or_at_the_end() {
        for before in 0..20 {
            for length in 0..40 {
                for after in ["", "/", "/x", "//", "/%41/and/more/than/a/word"] {
                    let path = format!("{}{}{after}", "/".repeat(before), "a".repeat(length));
                    assert_eq!(segment(path.as_bytes(), before).end, before + length, "{path}");
                }
            }
        }
    }

    #[test]
    fn an_escape_is_never_overlooked() {
        for length in 1..40 {
            for at in 0..length {
                for after in ["", "/b", "/and/more/than/a/word"] {
                    let mut text = "a".repeat(length);
                    text.replace_range(at..=at, "%");
                    let path = format!("/{text}{after}");
                    assert_eq!(
                        segment(path.as_bytes(), 1),
                        Extent { end: 1 + length, escapes: true },
                        "{path}"
                    );
                }
            }
        }
    }

    #[test]
    fn positions_of_a_byte_are_found() {
        let all = |bytes: [u8; 4], byte| positions(u32::from_le_bytes(bytes), byte).collect::<Vec<_>>();
        assert_eq!(all(*b"abab", b'a'), [0, 2]);
        assert_eq!(all(*b"abcd", b'd'), [3]);
        assert_eq!(all(*b"abcd", b'x'), []);
        assert_eq!(all([0, 0, 0, 0], 0), [0, 1, 2, 3]);
        for byte in 0..=255_u8 {
            for other in 0..=255_u8 {
                assert_eq!(all([other, byte, other, other], byte).first(), Some(&u32::from(other != byte)));
            }
        }
    }

    #[test]
    fn a_literal_fits_whole_segments_only() {
        for length in 0..50 {
            let literal = "ab/cd".repeat(10)[..length].to_owned();
            for (after, fits) in [("", true), ("/", true), ("/x", true), ("x", false), ("%2F", false)] {
                let path = format!("{literal}{after}");
                let expected = fits && (!path.is_empty() || literal.is_empty());
                assert_eq!(begins_with(path.as_bytes(), literal.as_bytes()), expected, "{literal} in {path}");
            }
            for at in 0..length {
                let mut other = literal.clone().into_bytes();
                other[at] ^= 1;
                assert!(!begins_with(&other, literal.as_bytes()), "{literal} at {at}");
            }
        }
    }
}
