//! Errors of routes.

use crate::limits;

/// Why a tree cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The route's text is not a valid pattern.
    #[error("route {route:?}: {reason}, at byte {at}")]
    Syntax {
        /// The route.
        route: String,
        /// The position in the route, in bytes.
        at: usize,
        /// What is wrong.
        reason: SyntaxError,
    },

    /// Two routes match the same paths for the same method.
    #[error("route {new:?} conflicts with {old:?} for {method}")]
    Conflict {
        /// The later route.
        new: String,
        /// The earlier one.
        old: String,
        /// The method of both.
        method: String,
    },

    /// Some path could cost more attempts than [`MAX_TRIES`](crate::MAX_TRIES), since too many consecutive segments can
    /// be both static segments and parameters.
    #[error(
        "a path could cost {tries} tries, {} are allowed: too many places where static segments and parameters compete",
        limits::MAX_TRIES
    )]
    TooAmbiguous {
        /// The most attempts in this tree.
        tries: u32,
    },

    /// The routes do not fit the tree's 32-bit offsets.
    #[error("too many routes")]
    TooManyRoutes,
}

/// What is wrong with a route's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SyntaxError {
    /// A route must start with `/`.
    #[error("a route begins with /")]
    NoSlash,
    /// `{` without `}` in the same segment.
    #[error("{{ is not closed in its segment (a literal brace is written twice)")]
    Unclosed,
    /// `}` without `{`.
    #[error("}} closes nothing (a literal brace is written twice)")]
    Unopened,
    /// A name that is not letters, digits and `_`.
    #[error("a parameter's name has letters, digits and _, and begins with no digit")]
    Name,
    /// A name that another parameter of the route has.
    #[error("a second parameter of this name")]
    SameName,
    /// Two parameters in a segment.
    #[error("a second parameter in one segment")]
    SecondParam,
    /// `{*rest}` that is not the whole last segment.
    #[error("a catch-all is the whole of the last segment")]
    CatchAll,
    /// `?` or `#`, which never occur in a path.
    #[error("? and # are never part of a path")]
    NotPath,
    /// `%` without two hexadecimal digits.
    #[error("% without two hexadecimal digits")]
    Escape,
    /// More bytes than a route may have.
    #[error("more than {} bytes", limits::MAX_BYTES)]
    TooLong,
    /// More segments than a route may have.
    #[error("more than {} segments", limits::MAX_SEGMENTS)]
    TooManySegments,
    /// More parameters than a route may have.
    #[error("more than {} parameters", limits::MAX_PARAMS)]
    TooManyParams,
}
