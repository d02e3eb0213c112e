//! The measured routes and paths. They come from the bench of silent, a web framework, in its pull request 198.

use http::Method;

/// A line of the table.
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// All routes, with the methods that have handlers.
    pub routes: &'static [(&'static str, &'static [Method])],
    /// The method and path of the request.
    pub method: Method,
    pub path: &'static str,
    /// How many requests one measurement makes.
    pub requests: usize,
}

/// A single request.
const PLAIN: Line = Line { name: "", routes: &[], method: Method::GET, path: "/", requests: 1 };

const GET: &[Method] = &[Method::GET];
const GET_POST: &[Method] = &[Method::GET, Method::POST];

const ROOT: &[(&str, &[Method])] = &[("/", GET)];
const COMPLEX: &[(&str, &[Method])] =
    &[("/api/v1/users", GET_POST), ("/api/v1/posts", GET_POST), ("/api/v1/posts/comments", GET)];
const DEEP: &str =
    "/api/v1/users/profiles/settings/preferences/notifications/email/templates/custom/advanced";

/// All lines of the table.
pub const LINES: [Line; 11] = [
    Line { name: "simple", routes: ROOT, ..PLAIN },
    Line {
        name: "nested",
        routes: &[("/api/v1/users", GET), ("/api/v1/posts", GET)],
        path: "/api/v1/posts",
        ..PLAIN
    },
    Line { name: "complex GET", routes: COMPLEX, path: "/api/v1/users", ..PLAIN },
    Line { name: "complex POST", routes: COMPLEX, method: Method::POST, path: "/api/v1/posts", ..PLAIN },
    Line {
        name: "1,000 requests",
        routes: &[("/api/v1/users", GET_POST)],
        path: "/api/v1/users",
        requests: 1000,
        ..PLAIN
    },
    Line { name: "deep, 10 levels", routes: &[(DEEP, GET)], path: DEEP, ..PLAIN },
    Line {
        name: "deep with parameters",
        routes: &[(
            "/api/v1/users/{user_id}/profiles/{profile_id}/settings/{setting_type}/preferences/{pref_category}\
             /notifications/{notif_type}/email/{email_id}/templates/{template_id}/custom/{custom_id}\
             /advanced/{advanced_param}",
            GET,
        )],
        path: "/api/v1/users/123/profiles/profile_456/settings/email/preferences/security/notifications/push\
               /email/email_789/templates/template_101/custom/custom_202/advanced/advanced_303",
        ..PLAIN
    },
    Line {
        name: "3 levels",
        routes: &[("/api/v1/users/profiles", GET)],
        path: "/api/v1/users/profiles",
        ..PLAIN
    },
    Line {
        name: "5 levels",
        routes: &[("/api/v1/users/profiles/settings/preferences", GET)],
        path: "/api/v1/users/profiles/settings/preferences",
        ..PLAIN
    },
    Line {
        name: "7 levels",
        routes: &[("/api/v1/users/profiles/settings/preferences/notifications/email", GET)],
        path: "/api/v1/users/profiles/settings/preferences/notifications/email",
        ..PLAIN
    },
    Line { name: "10 levels", routes: &[(DEEP, GET)], path: DEEP, ..PLAIN },
];
