//! Integers (RFC 7541, section 5.1) and strings (section 5.2).

/// Reads an integer whose first byte has this many bits of it. Returns it and the rest. None if it is longer than
/// anything read here.
pub fn integer(bytes: &[u8], bits: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1 << bits) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        // Nothing read here exceeds what four more bytes can express, 256 MiB.
        for shift in [0, 7, 14, 21] {
            let (byte, after) = rest.split_first()?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some((value, rest));
            }
        }
        return None;
    }
    Some((value, rest))
}

/// Completes the last byte with an integer that has this many bits in it.
pub fn put_integer(out: &mut Vec<u8>, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    let Some(first) = out.last_mut() else { return };
    if value < most {
        *first |= value as u8;
        return;
    }
    *first |= most as u8;
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Appends a string without compression: an answer is one packet either way, and only this side's time counts.
pub fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(0);
    put_integer(out, 7, text.len());
    out.extend_from_slice(text);
}

/// Appends a line whose name is an entry of the static table. The bits of `first` say so.
pub fn put_literal(out: &mut Vec<u8>, first: u8, index: usize, value: &[u8]) {
    out.push(first);
    put_integer(out, 4, index);
    put_text(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_as_the_rfc_has_them() {
        // RFC 7541, appendix C.1, and the largest integer.
        for (bits, value, bytes) in [
            (5, 10, &b"\x0a"[..]),
            (5, 1337, b"\x1f\x9a\x0a"),
            (8, 42, b"\x2a"),
            (7, 16_510, b"\x7f\xff\x7f"),
            (5, 31 + (1 << 28) - 1, b"\x1f\xff\xff\xff\x7f"),
        ] {
            let mut written = vec![0];
            put_integer(&mut written, bits, value);
            assert_eq!(written, bytes, "{value}");
            written.push(7);
            assert_eq!(integer(&written, bits), Some((value, &b"\x07"[..])), "{value}");
        }
        for bytes in [&b""[..], b"\x1f", b"\x1f\x9a", b"\x1f\x9a\x8a", b"\x1f\xff\xff\xff\xff\x01"] {
            assert_eq!(integer(bytes, 5), None, "{bytes:x?}");
        }
    }
}
