//! Decodes HPACK's Huffman code (RFC 7541, appendix B), which QPACK also uses.

/// The length of each byte's code, in bits. The code is canonical, so the lengths define it.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The longest code, in bits.
const LONGEST: usize = 30;
/// Codes up to this length are found in a table by their first bits.
const SHORT: usize = 8;

/// For each length, the first code, and where its bytes start in [`BYTES`].
const FIRSTS: [(u32, u16); LONGEST + 2] = FIRSTS_AND_BYTES.0;
/// The bytes, sorted by length of their code and then by value.
const BYTES: [u8; 256] = FIRSTS_AND_BYTES.1;

const FIRSTS_AND_BYTES: ([(u32, u16); LONGEST + 2], [u8; 256]) = {
    let (mut firsts, mut bytes) = ([(0, 0); LONGEST + 2], [0; 256]);
    let (mut code, mut count, mut length) = (0_u32, 0_u16, 1);
    while length <= LONGEST {
        code <<= 1;
        firsts[length] = (code, count);
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                bytes[count as usize] = byte as u8;
                count += 1;
                code += 1;
            }
            byte += 1;
        }
        length += 1;
    }
    firsts[length] = (0, count);
    (firsts, bytes)
};

/// For each eight bits, the byte whose code they start with, and the code's length; 0 if the code is longer.
const TABLE: [(u8, u8); 1 << SHORT] = {
    let mut table = [(0, 0); 1 << SHORT];
    let mut length = 1;
    while length <= SHORT {
        let (first, start) = FIRSTS[length];
        let mut at = start;
        while at < FIRSTS[length + 1].1 {
            let from = (first as usize + (at - start) as usize) << (SHORT - length);
            let mut next = from;
            while next < from + (1 << (SHORT - length)) {
                table[next] = (BYTES[at as usize], length as u8);
                next += 1;
            }
            at += 1;
        }
        length += 1;
    }
    table
};

/// Appends the decoded text. None if it is malformed.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut coded = coded.iter();
    // The next bits, in the highest positions, and their number.
    let (mut bits, mut count) = (0_u64, 0_usize);
    loop {
        while count <= u64::BITS as usize - 8 {
            let Some(byte) = coded.next() else { break };
            bits |= u64::from(*byte) << (u64::BITS as usize - 8 - count);
            count += 8;
        }
        let (byte, length) = match TABLE[(bits >> (u64::BITS as usize - SHORT)) as usize] {
            (_, 0) => long(bits),
            (byte, length) => (byte, usize::from(length)),
        };
        if length > count {
            // Padding has fewer than eight bits and is the start of a longer code (RFC 7541, section 5.2).
            let padding = bits.leading_ones() as usize;
            return (count < 8 && padding == count).then_some(());
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
}

/// The byte of a code longer than eight bits, and the code's length. For EOS, which is never sent, the length exceeds
/// all available bits.
#[cold]
fn long(bits: u64) -> (u8, usize) {
    for length in SHORT + 1..=LONGEST {
        let code = (bits >> (u64::BITS as usize - length)) as u32;
        let (first, start) = FIRSTS[length];
        let count = FIRSTS[length + 1].1 - start;
        if code >= first && code - first < u32::from(count) {
            return (BYTES[usize::from(start) + (code - first) as usize], length);
        }
    }
    (0, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Option<String> {
        let mut out = Vec::new();
        decode(coded, &mut out)?;
        String::from_utf8(out).ok()
    }

    #[test]
    fn examples_of_the_rfc_are_read() {
        // RFC 7541, appendices C.4 and C.6.
        for (coded, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (b"\xae\xc3\x77\x1a\x4b", "private"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (
                b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3",
                "https://www.example.com",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(coded).as_deref(), Some(text));
        }
    }

    /// Text in the code that the lengths define, with padding.
    fn coded(text: &[u8]) -> Vec<u8> {
        let mut sorted: Vec<(u8, usize)> =
            LENGTHS.iter().enumerate().map(|(byte, bits)| (*bits, byte)).collect();
        sorted.sort_unstable();
        let mut codes = [0_u32; 256];
        let (mut code, mut before) = (0, 0);
        for (bits, byte) in sorted {
            code <<= bits - before;
            before = bits;
            codes[byte] = code;
            code += 1;
        }
        let bits = text.iter().flat_map(|byte| {
            let byte = usize::from(*byte);
            (0..LENGTHS[byte]).rev().map(move |bit| (codes[byte] >> bit & 1) as u8)
        });
        let bits: Vec<u8> = bits.collect();
        bits.chunks(8).map(|bits| (0..8).fold(0, |byte, at| byte << 1 | bits.get(at).unwrap_or(&1))).collect()
    }

    #[test]
    fn every_byte_is_read() {
        let all: Vec<u8> = (0..=255).collect();
        for at in 0..all.len() {
            for text in [&all[at..], &all[..=at], &all[at..=at]] {
                let mut out = b"before".to_vec();
                assert_eq!(decode(&coded(text), &mut out), Some(()), "{text:x?}");
                assert_eq!(out.strip_prefix(b"before"), Some(text));
            }
        }
        assert_eq!(coded(b"www.example.com"), b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff");
        // RFC 7541, appendix B: a backslash, 249, a line feed and 22; the last two are the last codes before EOS.
        for (byte, code) in [
            (b'\\', &b"\xff\xfe\x1f"[..]),
            (249, b"\xff\xff\xff\xef"),
            (b'\n', b"\xff\xff\xff\xf3"),
            (22, b"\xff\xff\xff\xfb"),
        ] {
            assert_eq!(coded(&[byte]), code, "{byte}");
        }
    }

    #[test]
    fn padding_is_short_and_of_ones() {
        // "0" is 00000, followed by three bits of padding.
        assert_eq!(decoded(&[0b0000_0111]).as_deref(), Some("0"));
        for coded in
            // The last cases are EOS, and EOS after a byte.
            [
                &[0b0000_0110][..],
                &[0b0000_0011],
                &[0b0000_0111, 0xff],
                &[0xff],
                &[0xff; 4],
                &[0xff; 9],
                &[7, 0xff, 0xff, 0xff, 0xff],
            ]
        {
            assert_eq!(decoded(coded), None, "{coded:x?}");
        }
    }
}
