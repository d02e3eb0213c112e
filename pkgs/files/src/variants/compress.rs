//! Encodes bytes, at levels that are worth their time.

use std::io::Read;

use crate::http::encoding::Coding;

/// brotli's quality, 0 to 11: 4 to 6 are as fast as gzip.
const BROTLI_QUALITY: i32 = 5;

/// The logarithm of brotli's window.
const BROTLI_WINDOW: i32 = 22;

/// zstd's level, 1 to 22; each file is compressed only once.
const ZSTD_LEVEL: i32 = 9;

/// gzip's level, 1 to 9: its own default.
const GZIP_LEVEL: u32 = 6;

/// Encodes these bytes.
///
/// # Errors
/// Those of the encoder.
pub fn compress(bytes: &[u8], coding: Coding) -> std::io::Result<Vec<u8>> {
    let mut coded = Vec::new();
    match coding {
        Coding::Brotli => {
            let params = brotli::enc::BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW,
                size_hint: bytes.len(),
                ..Default::default()
            };
            brotli::BrotliCompress(&mut &bytes[..], &mut coded, &params)?;
        }
        Coding::Zstd => coded = zstd::bulk::compress(bytes, ZSTD_LEVEL)?,
        Coding::Gzip => {
            let mut encoder = flate2::read::GzEncoder::new(bytes, flate2::Compression::new(GZIP_LEVEL));
            encoder.read_to_end(&mut coded)?;
        }
    }
    Ok(coded)
}
