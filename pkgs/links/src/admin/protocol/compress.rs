//! Compresses answers that are worth it.

use actix_http::encoding::Encoder;
use actix_web::Error;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{ResponseHead, ServiceRequest, ServiceResponse};
use actix_web::http::header::{
    self, AcceptEncoding, ContentEncoding, Encoding, Header, HeaderValue, Preference, Quality,
};
use actix_web::middleware::Next;

/// Answers below this many bytes fit about one packet anyway, so compressing them only costs time.
const WORTHWHILE: u64 = 1024;

/// The supported codings. If a client gives several the same weight, the first one is used: brotli makes the smallest
/// answers, zstd costs the least.
const CODINGS: [ContentEncoding; 3] = [ContentEncoding::Brotli, ContentEncoding::Zstd, ContentEncoding::Gzip];

/// Encodes the answer as the client prefers. Leaves unchanged: small answers, PNG images, errors, whose body the
/// listener rewrites, and answers with a strong ETag, which names exactly these bytes.
pub(in crate::admin) async fn answers(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let accepted = AcceptEncoding::parse(&request).ok();
    let response = next.call(request).await?;
    Ok(response.map_body(|head, body| {
        if !worthwhile(head, body.size()) {
            return BoxBody::new(body);
        }
        head.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        match accepted.as_ref().and_then(choose) {
            Some(coding) => BoxBody::new(Encoder::response(coding, head, body)),
            None => BoxBody::new(body),
        }
    }))
}

fn worthwhile(head: &ResponseHead, size: BodySize) -> bool {
    let long = match size {
        BodySize::None => false,
        BodySize::Sized(bytes) => bytes > WORTHWHILE,
        BodySize::Stream => true,
    };
    let starts = |name, prefix: &[u8]| {
        head.headers().get(name).is_some_and(|value| value.as_bytes().starts_with(prefix))
    };
    let error = head.status.is_client_error() || head.status.is_server_error();
    long && !error && !starts(header::ETAG, b"\"") && !starts(header::CONTENT_TYPE, b"image/png")
}

/// The accepted coding of the highest quality; `None` if the client prefers no coding.
fn choose(accepted: &AcceptEncoding) -> Option<ContentEncoding> {
    let quality = |wanted: &Preference<Encoding>| {
        accepted.iter().find(|item| item.item == *wanted).map(|item| item.quality)
    };
    let any = quality(&Preference::Any);
    let known = |coding| quality(&Preference::Specific(Encoding::Known(coding)));
    let identity = known(ContentEncoding::Identity).unwrap_or(Quality::ZERO);
    let mut best = None;
    for coding in CODINGS {
        let quality = known(coding).or(any).unwrap_or(Quality::ZERO);
        if quality > best.map_or(Quality::ZERO, |(_, quality)| quality) && quality >= identity {
            best = Some((coding, quality));
        }
    }
    best.map(|(coding, _)| coding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::test::TestRequest;

    #[test]
    fn the_coding_is_what_the_client_likes_best() {
        for (accept, coding) in [
            ("gzip", Some(ContentEncoding::Gzip)),
            ("gzip, deflate, br, zstd", Some(ContentEncoding::Brotli)),
            ("gzip, zstd", Some(ContentEncoding::Zstd)),
            ("br;q=0.5, gzip", Some(ContentEncoding::Gzip)),
            ("br;q=0, *", Some(ContentEncoding::Zstd)),
            ("*", Some(ContentEncoding::Brotli)),
            ("*;q=0", None),
            ("identity, br;q=0.5", None),
            ("deflate", None),
            ("x-unheard-of", None),
        ] {
            let request =
                TestRequest::default().insert_header((header::ACCEPT_ENCODING, accept)).to_http_request();
            let accepted = AcceptEncoding::parse(&request).unwrap();
            assert_eq!(choose(&accepted), coding, "{accept}");
        }
    }
}
