//! QR codes of short URLs.

use actix_web::http::header::{self, HeaderValue};
use actix_web::{HttpRequest, HttpResponse, web};
use data_encoding::HEXLOWER;
use qrcodegen::{QrCode, QrCodeEcc};
use serde::Deserialize;
use service::problem::Problem;
use std::fmt::Write;
use utoipa::ToSchema;

use super::domains;
use crate::admin::State;
use crate::admin::blocking::block;
use crate::admin::protocol::failure::Failure;
use crate::admin::protocol::query;

/// The format of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Image {
    /// Scales without loss.
    #[default]
    Svg,
    /// Black and white, one bit per pixel.
    Png,
}

/// The appearance of a code.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct QrOptions {
    /// Default: `svg`.
    #[param(inline)]
    #[serde(default)]
    format: Image,
    /// Width and height in pixels. Default: 256.
    #[param(minimum = 16, maximum = 4096, default = 256)]
    size: Option<u32>,
    /// The quiet zone around it, in modules. Default: 4, as the standard requires.
    #[param(minimum = 0, maximum = 16, default = 4)]
    margin: Option<u32>,
    /// The domain of the link; the default one if absent or `default`.
    domain: Option<String>,
}

/// A link's QR code
///
/// Encodes the short URL, with error correction level M.
#[utoipa::path(get, path = "/api/v1/links/{code}/qr", tag = "links", operation_id = "linkQr",
    params(("code" = String, Path), QrOptions), security(("bearer" = ["read"])),
    responses(
        (status = 200, description = "The image", content((String = "image/svg+xml"), (Vec<u8> = "image/png")),
            headers(("ETag" = String))),
        (status = 304, description = "As `If-None-Match` has it"),
    ))]
pub(in crate::admin) async fn draw(
    request: HttpRequest,
    code: web::Path<String>,
    state: web::Data<State>,
) -> Result<HttpResponse, Failure> {
    let look: QrOptions = query::parse(&request)?;
    let (size, margin) = (look.size.unwrap_or(256), look.margin.unwrap_or(4));
    if !(16..=4096).contains(&size) {
        return Err(query::refuse("size", "is from 16 to 4096"));
    }
    if margin > 16 {
        return Err(query::refuse("margin", "is from 0 to 16"));
    }
    let key = domains::key_at(&request, &state, look.domain.as_deref(), code.into_inner())?;
    let link = state.readers.with(move |reader| reader.get(key)).await?;
    let url = state.short_url(&link);
    // The ETag is weak, so that the image may be compressed on its way. It covers the URL and the appearance, which
    // determine the image.
    let etag = format!("W/\"{}-{}-{size}-{margin}\"", crc(&url), look.format as u8);
    let mut response = HttpResponse::Ok();
    response.insert_header((header::ETAG, etag.as_str()));
    response.insert_header((header::CACHE_CONTROL, "private, max-age=86400"));
    let known =
        |value: &HeaderValue| value.to_str().is_ok_and(|tags| tags.split(',').any(|tag| tag.trim() == etag));
    if request.headers().get_all(header::IF_NONE_MATCH).any(known) {
        return Ok(response.status(actix_web::http::StatusCode::NOT_MODIFIED).finish());
    }
    let qr = QrCode::encode_text(&url, QrCodeEcc::Medium)
        .map_err(|_| Problem::unprocessable("the short URL is too long for a QR code"))?;
    match look.format {
        Image::Svg => {
            Ok(response.insert_header((header::CONTENT_TYPE, "image/svg+xml")).body(svg(&qr, size, margin)))
        }
        Image::Png => {
            let least = side(&qr, margin);
            if size < least {
                return Err(query::refuse("size", &format!("must be at least {least} for this code")));
            }
            let image = block(move || png(&qr, size, margin)).await?;
            let image = image.map_err(|error| Problem::internal(format!("cannot draw: {error}")))?;
            Ok(response.insert_header((header::CONTENT_TYPE, "image/png")).body(image))
        }
    }
}

/// Modules along one side, including the quiet zone.
fn side(qr: &QrCode, margin: u32) -> u32 {
    qr.size().unsigned_abs() + 2 * margin
}

/// Draws one path, with one rectangle per run of dark modules.
fn svg(qr: &QrCode, size: u32, margin: u32) -> String {
    let side = side(qr, margin);
    let mut path = String::new();
    for y in 0..qr.size() {
        let mut x = 0;
        while x < qr.size() {
            let run = (x..qr.size()).take_while(|&x| qr.get_module(x, y)).count();
            if run > 0 {
                let (left, top) = (x.unsigned_abs() + margin, y.unsigned_abs() + margin);
                write!(path, "M{left} {top}h{run}v1h-{run}z").expect("a string takes all that is written");
            }
            x += i32::try_from(run).unwrap_or(i32::MAX).max(1);
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{size}\" height=\"{size}\" \
         viewBox=\"0 0 {side} {side}\" shape-rendering=\"crispEdges\">\
         <path fill=\"#fff\" d=\"M0 0h{side}v{side}h-{side}z\"/><path d=\"{path}\"/></svg>"
    )
}

/// Draws each module with a whole number of pixels. Remaining pixels widen the quiet zone.
fn png(qr: &QrCode, size: u32, margin: u32) -> Result<Vec<u8>, png::EncodingError> {
    let scale = (size / side(qr, margin)).max(1);
    let offset = (size - qr.size().unsigned_abs() * scale) / 2;
    let module = |pixel: u32| pixel.checked_sub(offset).map(|pixel| (pixel / scale) as i32);
    let width = size.div_ceil(8) as usize;
    let mut pixels = vec![0xff_u8; width * size as usize];
    for (y, row) in (0..size).zip(pixels.chunks_mut(width)) {
        for x in 0..size {
            if let (Some(column), Some(line)) = (module(x), module(y))
                && qr.get_module(column, line)
            {
                row[x as usize / 8] &= !(0x80 >> (x % 8));
            }
        }
    }
    let mut image = Vec::new();
    let mut encoder = png::Encoder::new(&mut image, size, size);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(png::BitDepth::One);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(image)
}

/// A short checksum of a URL.
fn crc(url: &str) -> String {
    use sha2::Digest;
    let digest: [u8; 32] = sha2::Sha256::digest(url).into();
    HEXLOWER.encode(&digest[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code() -> QrCode {
        QrCode::encode_text("https://go.example/q7Hk2mZ", QrCodeEcc::Medium).unwrap()
    }

    #[test]
    fn png_pixels_are_the_modules_scaled_and_centred() {
        let (qr, size, margin) = (code(), 257, 4);
        let image = png(&qr, size, margin).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(image)).read_info().unwrap();
        assert_eq!((reader.info().width, reader.info().height), (size, size));
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let (scale, width) = (size / side(&qr, margin), size.div_ceil(8));
        let offset = (size - qr.size().unsigned_abs() * scale) / 2;
        let dark = |x: u32, y: u32| pixels[(y * width + x / 8) as usize] & (0x80 >> (x % 8)) == 0;
        for y in 0..qr.size() {
            for x in 0..qr.size() {
                let (left, top) = (offset + x as u32 * scale, offset + y as u32 * scale);
                assert_eq!(dark(left, top), qr.get_module(x, y), "{x},{y}");
                assert_eq!(dark(left + scale - 1, top + scale - 1), qr.get_module(x, y), "{x},{y}");
            }
        }
        assert!(!dark(offset - 1, offset - 1) && offset >= margin * scale);
    }

    #[test]
    fn svg_runs_cover_each_dark_module_once() {
        let (qr, margin) = (code(), 2);
        let text = svg(&qr, 256, margin);
        let path = text.rsplit("<path d=\"").next().unwrap().split('"').next().unwrap();
        let mut dark = std::collections::HashSet::new();
        for run in path.split('z').filter(|run| !run.is_empty()) {
            let (start, rest) = run[1..].split_once('h').unwrap();
            let (x, y) = start.split_once(' ').unwrap();
            let length: i32 = rest.split_once('v').unwrap().0.parse().unwrap();
            let (x, y) = (x.parse::<i32>().unwrap() - 2, y.parse::<i32>().unwrap() - 2);
            for x in x..x + length {
                assert!(dark.insert((x, y)), "{x},{y} twice");
            }
        }
        let expected = (0..qr.size()).flat_map(|y| (0..qr.size()).map(move |x| (x, y)));
        assert_eq!(dark, expected.filter(|&(x, y)| qr.get_module(x, y)).collect());
    }
}
