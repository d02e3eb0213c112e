//! Files that all pages share, such as styles and scripts. They are compiled in, and compressed when the console
//! starts. Browsers cache them indefinitely, since the address of each contains a digest of its content.

use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use sha2::{Digest, Sha256};

struct Asset {
    name: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    gzip: Bytes,
    /// `/assets/DIGEST/NAME`.
    path: String,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! asset {
    ($name:literal, $media_type:expr, $path:literal) => {
        ($name, $media_type, include_bytes!(concat!("../assets/", $path)).as_slice())
    };
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let all = [
        asset!("htmx.js", SCRIPT, "vendor/htmx.min.js"),
        asset!("sse.js", SCRIPT, "vendor/sse.min.js"),
        asset!("uplot.js", SCRIPT, "vendor/uPlot.iife.min.js"),
        asset!("uplot.css", STYLE, "vendor/uPlot.min.css"),
        asset!("console.js", SCRIPT, "console.js"),
        asset!("upload.js", SCRIPT, "upload.js"),
        asset!("console.css", STYLE, "console.css"),
        asset!("icon.svg", "image/svg+xml", "icon.svg"),
    ];
    let made = all.into_iter().map(|(name, media_type, plain)| {
        let digest: [u8; 32] = Sha256::digest(plain).into();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        // Writing to memory can't fail.
        let gzip = gzip.write_all(plain).and_then(|()| gzip.finish()).unwrap_or_default().into();
        Asset {
            name,
            media_type,
            plain,
            gzip,
            path: format!("/assets/{}/{name}", HEXLOWER.encode(&digest[..8])),
        }
    });
    made.collect()
});

/// The path of an asset.
///
/// # Panics
/// When there is no asset with this name. Any test that renders the page detects that.
pub(crate) fn path(name: &str) -> &'static str {
    let asset = ASSETS.iter().find(|asset| asset.name == name);
    asset.map(|asset| asset.path.as_str()).expect("an asset that there is")
}

/// The answer to a request for an asset.
pub(crate) fn answer(path: &str, fields: &HeaderMap) -> Response<axum::body::Body> {
    let mut response = Response::new(axum::body::Body::empty());
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    };
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.media_type));
    answered.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    answered.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    let body = if takes_gzip(fields) {
        answered.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        asset.gzip.clone()
    } else {
        Bytes::from_static(asset.plain)
    };
    *response.body_mut() = body.into();
    response
}

/// Whether `Accept-Encoding` names gzip without refusing it (RFC 9110, section 12.5.3).
fn takes_gzip(fields: &HeaderMap) -> bool {
    fields.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|coding| {
            let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
            let refused = weight
                .trim()
                .strip_prefix("q=")
                .is_some_and(|weight| weight.trim().parse::<f32>().is_ok_and(|weight| weight == 0.0));
            name.trim().eq_ignore_ascii_case("gzip") && !refused
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assets_are_compressed_for_who_takes_it_and_kept_for_ever() {
        for (accepts, encoding) in
            [(None, None), (Some("br, gzip"), Some("gzip")), (Some("gzip;q=0, br"), None), (Some("br"), None)]
        {
            let fields = accepts.map(|text| (header::ACCEPT_ENCODING, HeaderValue::from_static(text)));
            let response = answer(path("htmx.js"), &fields.into_iter().collect());
            let encoded = response.headers().get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
            assert_eq!(encoded, encoding.map(str::as_bytes), "{accepts:?}");
            assert!(
                response.headers()[header::CACHE_CONTROL]
                    .to_str()
                    .is_ok_and(|text| text.contains("immutable"))
            );
        }
        assert_eq!(
            answer("/assets/0000000000000000/htmx.js", &HeaderMap::new()).status(),
            StatusCode::NOT_FOUND
        );
    }

    #[test]
    fn what_is_vendored_is_what_its_readme_says() {
        let readme = include_str!("../assets/vendor/README.md");
        for asset in ASSETS.iter().filter(|asset| {
            !["console", "upload", "icon"].contains(&asset.name.split('.').next().unwrap_or(""))
        }) {
            let digest: [u8; 32] = Sha256::digest(asset.plain).into();
            assert!(readme.contains(&HEXLOWER.encode(&digest)), "{}", asset.name);
        }
    }
}
