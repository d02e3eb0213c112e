//! What is measured: the thirteen lines of silent's pull request 198, with the routes, paths and numbers
//! of middlewares of its own bench.

use http::Method;

/// A line of the table.
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// All routes, with the methods that have handlers.
    pub routes: &'static [(&'static str, &'static [Method])],
    /// Middlewares, all at the root.
    pub middlewares: usize,
    /// What is asked for.
    pub method: Method,
    pub path: &'static str,
    /// How many requests make one.
    pub requests: usize,
    /// What the article claims for silent after the pull request, in nanoseconds, on its own machine.
    pub claimed_ns: Option<f64>,
}

/// A single request without middleware.
const PLAIN: Line = Line {
    name: "",
    routes: &[],
    middlewares: 0,
    method: Method::GET,
    path: "/",
    requests: 1,
    claimed_ns: None,
};

const GET: &[Method] = &[Method::GET];
const GET_POST: &[Method] = &[Method::GET, Method::POST];

const ROOT: &[(&str, &[Method])] = &[("/", GET)];
const COMPLEX: &[(&str, &[Method])] =
    &[("/api/v1/users", GET_POST), ("/api/v1/posts", GET_POST), ("/api/v1/posts/comments", GET)];
const DEEP: &str =
    "/api/v1/users/profiles/settings/preferences/notifications/email/templates/custom/advanced";

/// All of them.
pub const LINES: [Line; 13] = [
    Line { name: "simple", routes: ROOT, claimed_ns: Some(53.0), ..PLAIN },
    Line { name: "with middleware", routes: ROOT, middlewares: 1, claimed_ns: Some(49.0), ..PLAIN },
    Line { name: "several middlewares", routes: ROOT, middlewares: 2, ..PLAIN },
    Line {
        name: "nested",
        routes: &[("/api/v1/users", GET), ("/api/v1/posts", GET)],
        path: "/api/v1/posts",
        claimed_ns: Some(91.0),
        ..PLAIN
    },
    Line { name: "complex GET", routes: COMPLEX, path: "/api/v1/users", ..PLAIN },
    Line { name: "complex POST", routes: COMPLEX, method: Method::POST, path: "/api/v1/posts", ..PLAIN },
    Line {
        name: "1,000 requests",
        routes: &[("/api/v1/users", GET_POST)],
        path: "/api/v1/users",
        requests: 1000,
        claimed_ns: Some(131_000.0),
        ..PLAIN
    },
    Line { name: "deep, 10 levels", routes: &[(DEEP, GET)], path: DEEP, claimed_ns: Some(163.0), ..PLAIN },
    Line {
        name: "deep with parameters",
        routes: &[(
            "/api/v1/users/{user_id:i64}/profiles/{profile_id}/settings/{setting_type}/preferences/{pref_category}\
             /notifications/{notif_type}/email/{email_id}/templates/{template_id}/custom/{custom_id}\
             /advanced/{advanced_param}",
            GET,
        )],
        path: "/api/v1/users/123/profiles/profile_456/settings/email/preferences/security/notifications/push\
               /email/email_789/templates/template_101/custom/custom_202/advanced/advanced_303",
        claimed_ns: Some(257.0),
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

impl Line {
    /// A route without the types of its parameters, for routers that have none.
    pub fn untyped(route: &str) -> String {
        route.replace(":i64", "")
    }

    /// The path of a request: silent's bench numbers those of a series.
    pub fn uri(&self, request: usize) -> String {
        format!("{}?page={request}", self.path)
    }
}
