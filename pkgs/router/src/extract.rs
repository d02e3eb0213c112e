//! Typed arguments of handlers.

use std::convert::Infallible;
use std::str::FromStr;

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};

use crate::escape::NotUtf8;
use crate::matched::Matched;
use crate::response::{IntoResponse, problem};

/// What a handler may take of a request, apart from its body.
pub trait FromParts<B, S>: Sized {
    /// Why it cannot be had; the answer to the request then.
    type Rejection;

    /// How many parameters the route must have for it; checked when the router is built.
    const PARAMS: Option<usize> = None;

    /// Reads it.
    ///
    /// # Errors
    /// When the request does not have it.
    fn from_parts(
        request: &mut Request<B>,
        matched: &Matched<'_>,
        state: &S,
    ) -> Result<Self, Self::Rejection>;
}

/// What a handler may take as its last argument: anything above, or the request with its body.
///
/// `M` only tells the two apart.
pub trait FromRequest<B, S, M = ViaRequest>: Sized {
    /// Why it cannot be had; the answer to the request then.
    type Rejection;

    /// How many parameters the route must have for it; checked when the router is built.
    const PARAMS: Option<usize> = None;

    /// Reads it.
    ///
    /// # Errors
    /// When the request does not have it.
    fn from_request(request: Request<B>, matched: &Matched<'_>, state: &S) -> Result<Self, Self::Rejection>;
}

/// Marks what takes the whole request.
#[derive(Debug)]
pub enum ViaRequest {}

/// Marks what leaves the body alone.
#[derive(Debug)]
pub enum ViaParts {}

impl<T: FromParts<B, S>, B, S> FromRequest<B, S, ViaParts> for T {
    type Rejection = T::Rejection;

    const PARAMS: Option<usize> = T::PARAMS;

    fn from_request(mut request: Request<B>, matched: &Matched<'_>, state: &S) -> Result<Self, T::Rejection> {
        T::from_parts(&mut request, matched, state)
    }
}

impl<B, S> FromRequest<B, S> for Request<B> {
    type Rejection = Infallible;

    #[inline]
    fn from_request(request: Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Infallible> {
        Ok(request)
    }
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub struct Body<B>(pub B);

impl<B, S> FromRequest<B, S> for Body<B> {
    type Rejection = Infallible;

    fn from_request(request: Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Infallible> {
        Ok(Self(request.into_body()))
    }
}

/// The only parameter of a route, read by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// All parameters of a route, in its order: a tuple, each read by [`FromStr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths<T>(pub T);

/// Why parameters cannot be read. The answer is 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathRejection {
    /// The escapes of one are not UTF-8.
    #[error(transparent)]
    NotUtf8(#[from] NotUtf8),
    /// One is not of its type.
    #[error("a parameter of the path is not of its type")]
    Unreadable,
    /// Something put another path into the request.
    #[error("a parameter is missing in the path")]
    Missing,
}

impl<R: From<String>> IntoResponse<R> for PathRejection {
    fn into_response(self) -> Response<R> {
        let detail = match self {
            Self::NotUtf8(_) => "the escapes of a parameter are not UTF-8",
            Self::Unreadable => "a parameter of the path is not of its type",
            Self::Missing => "a parameter is missing in the path",
        };
        problem(StatusCode::BAD_REQUEST, detail)
    }
}

fn read<T: FromStr, B>(
    request: &Request<B>,
    matched: &Matched<'_>,
    index: usize,
) -> Result<T, PathRejection> {
    let text = matched.at(request, index).ok_or(PathRejection::Missing)??;
    text.parse().map_err(|_| PathRejection::Unreadable)
}

impl<T: FromStr, B, S> FromParts<B, S> for Path<T> {
    type Rejection = PathRejection;

    const PARAMS: Option<usize> = Some(1);

    fn from_parts(request: &mut Request<B>, matched: &Matched<'_>, _: &S) -> Result<Self, PathRejection> {
        read(request, matched, 0).map(Self)
    }
}

/// Implements [`FromParts`] for [`Paths`] of a tuple.
macro_rules! paths {
    ($count:literal: $($name:ident $index:tt),+) => {
        impl<$($name: FromStr,)+ B, S> FromParts<B, S> for Paths<($($name,)+)> {
            type Rejection = PathRejection;

            const PARAMS: Option<usize> = Some($count);

            fn from_parts(request: &mut Request<B>, matched: &Matched<'_>, _: &S) -> Result<Self, PathRejection> {
                Ok(Self(($(read::<$name, B>(request, matched, $index)?,)+)))
            }
        }
    };
}

paths!(1: T0 0);
paths!(2: T0 0, T1 1);
paths!(3: T0 0, T1 1, T2 2);
paths!(4: T0 0, T1 1, T2 2, T3 3);
paths!(5: T0 0, T1 1, T2 2, T3 3, T4 4);
paths!(6: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5);
paths!(7: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6);
paths!(8: T0 0, T1 1, T2 2, T3 3, T4 4, T5 5, T6 6, T7 7);

/// The router's state, cloned: `&'static` state is a copy, `Arc` a count.
#[derive(Clone, Copy, Debug)]
pub struct State<S>(pub S);

impl<B, S: Clone> FromParts<B, S> for State<S> {
    type Rejection = Infallible;

    #[inline]
    fn from_parts(_: &mut Request<B>, _: &Matched<'_>, state: &S) -> Result<Self, Infallible> {
        Ok(Self(state.clone()))
    }
}

/// What somebody before put into the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Extension<T>(pub T);

/// Nobody put such a value into the request's extensions. The answer is 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an extension of the request is missing")]
pub struct NoExtension;

impl<R: From<String>> IntoResponse<R> for NoExtension {
    fn into_response(self) -> Response<R> {
        problem(StatusCode::INTERNAL_SERVER_ERROR, "an extension of the request is missing")
    }
}

impl<T: Clone + Send + Sync + 'static, B, S> FromParts<B, S> for Extension<T> {
    type Rejection = NoExtension;

    fn from_parts(request: &mut Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, NoExtension> {
        request.extensions().get().cloned().map(Self).ok_or(NoExtension)
    }
}

impl<B, S> FromParts<B, S> for Method {
    type Rejection = Infallible;

    fn from_parts(request: &mut Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Infallible> {
        Ok(request.method().clone())
    }
}

impl<B, S> FromParts<B, S> for Uri {
    type Rejection = Infallible;

    fn from_parts(request: &mut Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Infallible> {
        Ok(request.uri().clone())
    }
}

impl<B, S> FromParts<B, S> for HeaderMap {
    type Rejection = Infallible;

    /// Takes the headers: of two such arguments the second is empty.
    fn from_parts(request: &mut Request<B>, _: &Matched<'_>, _: &S) -> Result<Self, Infallible> {
        Ok(std::mem::take(request.headers_mut()))
    }
}
