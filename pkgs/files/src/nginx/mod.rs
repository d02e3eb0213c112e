//! Converts the parts of nginx's configuration that rules can express.
//!
//! nginx answers a request by one location: the exact one, else the first matching regular expression, else the longest
//! prefix. Here all matching rules apply, and later ones override earlier ones. So prefixes come first, in order of
//! length, then expressions from last to first, then exact locations.

mod syntax;

use std::fmt::Write;

use crate::site::rules::Rules;
use syntax::Directive;
pub use syntax::Error;

/// The result of an import.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The rules, as a file.
    pub rules: String,
    /// What rules cannot express, with its line.
    pub left: Vec<(usize, String)>,
}

/// Directives that rules need not repeat: they are set elsewhere, or always apply.
const SILENT: [&str; 33] = [
    "access_log",
    "aio",
    "charset",
    "client_body_timeout",
    "client_header_timeout",
    "client_max_body_size",
    "default_type",
    "directio",
    "error_log",
    "etag",
    "gzip_comp_level",
    "gzip_disable",
    "gzip_http_version",
    "gzip_proxied",
    "gzip_static",
    "gzip_types",
    "gzip_vary",
    "http2",
    "keepalive_requests",
    "keepalive_timeout",
    "listen",
    "open_file_cache",
    "open_file_cache_errors",
    "open_file_cache_min_uses",
    "open_file_cache_valid",
    "output_buffers",
    "reset_timedout_connection",
    "sendfile",
    "sendfile_max_chunk",
    "server_tokens",
    "tcp_nodelay",
    "tcp_nopush",
    "types_hash_max_size",
];

/// Converts a configuration to rules.
///
/// # Errors
/// [`Error`] if the text is not a configuration.
pub fn import(text: &str) -> Result<Imported, Error> {
    let mut import = Import::default();
    let all = syntax::parse(text)?;
    import.top(&all, &[]);
    let mut rules = String::new();
    // Requests whose host has no server of its own go to the default server, or else to the first one.
    let first = import.servers.iter().position(|server| server.is_default).unwrap_or(0);
    if first < import.servers.len() {
        let default = import.servers.remove(first);
        let note = |rules: &mut String, flag: &str, value: &Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(rules, "# linerate-files serve {flag} {}", value.escape_debug());
            }
        };
        note(&mut rules, "--root", &default.root);
        note(&mut rules, "--cert", &default.cert);
        note(&mut rules, "--key", &default.cert_key);
        if default.listing == Some(true) {
            rules.push_str("# linerate-files serve --listing\n");
        }
        rules.push_str(&default.tables("", &mut import.left));
    }
    for server in std::mem::take(&mut import.servers) {
        rules.push_str(&server.site(&mut import.left));
    }
    import.left.sort();
    import.left.dedup();
    Ok(Imported { rules, left: import.left })
}

#[derive(Default)]
struct Import {
    servers: Vec<Server>,
    left: Vec<(usize, String)>,
}

#[derive(Default)]
struct Server {
    line: usize,
    is_default: bool,
    names: Vec<String>,
    root: Option<String>,
    cert: Option<String>,
    cert_key: Option<String>,
    listing: Option<bool>,
    error_pages: Vec<(usize, String, String)>,
    rules: Vec<Made>,
}

/// A rule, and the key by which rules are sorted.
struct Made {
    line: usize,
    order: (u8, isize),
    /// The rule's keys and values, as TOML.
    keys: Vec<(String, String)>,
}

/// A `rewrite`.
struct Rewrite {
    line: usize,
    regex: String,
    /// Whether its target has parts of the path.
    has_captures: bool,
    /// What a rule for its paths says, as TOML.
    keys: Vec<(String, String)>,
}

impl Import {
    fn leave(&mut self, directive: &Directive, why: &str) {
        let mut shown = directive.name.clone();
        for argument in directive.arguments.iter().take(8) {
            shown.extend([" ", argument]);
        }
        self.left.push((directive.line, format!("{shown}: {why}")));
    }

    /// Converts the directives at the top level or in `http`.
    fn top(&mut self, directives: &[Directive], outer: &[&Directive]) {
        let common: Vec<&Directive> =
            outer.iter().copied().chain(directives.iter().filter(|one| is_of_server(one))).collect();
        for directive in directives {
            match (&*directive.name, &directive.block) {
                ("http", Some(block)) => self.top(block, &common),
                ("server", Some(block)) => {
                    let server = self.server(directive.line, &common, block);
                    self.servers.push(server);
                }
                ("events" | "types", Some(_)) | ("user" | "pid" | "worker_processes", None) => {}
                // Each server inherits it.
                (_, None) if is_of_server(directive) => {}
                _ => self.leave(directive, "it is not about files"),
            }
        }
    }

    fn server(&mut self, line: usize, common: &[&Directive], block: &[Directive]) -> Server {
        let mut server = Server { line, ..Server::default() };
        let mut whole = Made { line, order: (0, 0), keys: vec![("path".to_owned(), quoted("*"))] };
        let inherited = common.iter().filter(|one| !block.iter().any(|own| own.name == one.name));
        for directive in inherited.copied().chain(block) {
            let argument = |at: usize| directive.arguments.get(at).cloned();
            match (&*directive.name, &directive.block) {
                ("location", Some(block)) => self.location(&mut server, directive, block),
                ("server_name", None) => self.names(&mut server, directive),
                ("listen", None) => {
                    server.is_default |= directive.arguments.iter().any(|word| word == "default_server");
                }
                ("root", None) => server.root = argument(0),
                ("ssl_certificate", None) => server.cert = argument(0),
                ("ssl_certificate_key", None) => server.cert_key = argument(0),
                ("autoindex", None) => server.listing = Some(argument(0).as_deref() == Some("on")),
                ("error_page", None) => self.error_page(&mut server, directive),
                ("rewrite", None) => {
                    // In nginx, the first that matches counts; here, the last rule.
                    let earlier = -isize::try_from(directive.line).unwrap_or(isize::MAX);
                    let rewrite = self.rewrite(directive);
                    server.rules.extend(rewrite.map(|rewrite| rewrite.rule((5, earlier))));
                }
                _ => self.said(directive, &mut whole),
            }
        }
        if whole.keys.len() > 1 {
            server.rules.push(whole);
        }
        server.rules.sort_by_key(|rule| rule.order);
        server
    }

    fn names(&mut self, server: &mut Server, directive: &Directive) {
        for name in &directive.arguments {
            if let Some(parent) = name.strip_prefix('.') {
                server.names.extend([parent.to_owned(), format!("*.{parent}")]);
            } else if name.starts_with('~') || name.ends_with('*') {
                self.leave(directive, "a host is known by its name, or by *. and what it ends with");
            } else if name != "_" && !name.is_empty() {
                server.names.push(name.clone());
            }
        }
    }

    fn location(&mut self, server: &mut Server, directive: &Directive, block: &[Directive]) {
        let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let longer = |path: &str| isize::try_from(path.len()).unwrap_or(isize::MAX);
        // In nginx, the first matching expression wins; here, the last matching rule.
        let earlier = -isize::try_from(directive.line).unwrap_or(isize::MAX);
        let prefix = |path: &str| ("path", if path == "/" { "*".to_owned() } else { format!("{path}*") });
        let begins = |path: &str| format!("^{}", escaped(path));
        // The last is an expression: one that begins like it matches nothing outside of the location.
        let (order, (key, value), inside) = match words[..] {
            ["=", path] => ((4, longer(path)), ("path", path.to_owned()), begins(path) + "$"),
            ["~", regex] => ((2, earlier), ("match", regex.to_owned()), regex.to_owned()),
            ["~*", regex] => ((2, earlier), ("match", format!("(?i){regex}")), regex.to_owned()),
            ["^~", path] => ((3, longer(path)), prefix(path), begins(path)),
            [path] if path.starts_with('/') => ((1, longer(path)), prefix(path), begins(path)),
            _ => return self.leave(directive, "no file is sent for it by name"),
        };
        let mut rewrites = Vec::new();
        let mut made = Made { line: directive.line, order, keys: vec![(key.to_owned(), quoted(&value))] };
        for inner in block {
            match (&*inner.name, inner.arguments.first()) {
                ("location", _) => self.location(server, inner, inner.block.as_deref().unwrap_or_default()),
                ("rewrite", _) => match self.rewrite(inner) {
                    None => {}
                    Some(_) if made.leads_elsewhere() => {
                        self.leave(inner, "all of its location leads elsewhere before it");
                    }
                    Some(rewrite) if rewrite.is_of_everything() => made.keys.extend(rewrite.keys),
                    Some(rewrite) if (key, &*value) == ("path", "*") || rewrite.is_within(&inside) => {
                        rewrites.push(rewrite.rule(order));
                    }
                    Some(_) => self.leave(inner, "it may match what its location does not"),
                },
                ("root", Some(root)) if server.root.as_ref() == Some(root) => {}
                ("root" | "alias", _) => {
                    self.leave(inner, "a site has one root; a symbolic link below it may lead there")
                }
                ("autoindex", Some(on)) => made.keys.push(("listing".to_owned(), (on == "on").to_string())),
                _ => self.said(inner, &mut made),
            }
        }
        if made.keys.len() > 1 {
            server.rules.push(made);
        }
        // In nginx, the first that matches counts; here, the last rule.
        server.rules.extend(rewrites.into_iter().rev());
    }

    /// Converts a directive of a server or a location that is about its files.
    fn said(&mut self, directive: &Directive, made: &mut Made) {
        let arguments: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let has_variable = arguments.iter().any(|word| word.contains('$'));
        match (&*directive.name, &arguments[..]) {
            ("try_files", paths) => match tries(paths) {
                Some(paths) => made.keys.push(("try".to_owned(), format!("[{}]", paths.join(", ")))),
                None => self.leave(directive, "only $uri and paths can be tried"),
            },
            ("expires", [time, ..]) => match expires(time) {
                Some(Some(value)) => made.keys.push(("cache-control".to_owned(), quoted(&value))),
                Some(None) => {}
                None => self.leave(directive, "a time is in s, m, h, d, w, M or y"),
            },
            ("add_header", [_, _, ..]) if has_variable => self.leave(directive, "fields have no variables"),
            ("add_header", [name, value, ..]) if name.eq_ignore_ascii_case("cache-control") => {
                made.keys.retain(|(key, _)| key != "cache-control");
                made.keys.push(("cache-control".to_owned(), quoted(value)));
            }
            ("add_header", [name, value, ..]) => {
                made.keys.push((format!("headers.{}", quoted(name)), quoted(value)));
            }
            ("return", [status, to]) if matches!(*status, "301" | "302" | "303" | "307" | "308") => {
                if made.leads_elsewhere() {
                    return self.leave(directive, "what is before it leads elsewhere");
                }
                let to = to.replace("$request_uri", "$path").replace("$uri", "$path");
                if to.replace("$path", "").contains('$') {
                    return self.leave(directive, "a redirect has no variables but $uri and $request_uri");
                }
                // A slash has to follow the host, but the path already starts with one.
                let to = to.replacen("$path", "/$path", usize::from(to.starts_with("http")));
                made.keys.push(("redirect".to_owned(), quoted(&to.replace("//$path", "/$path"))));
                made.keys.push(("status".to_owned(), (*status).to_owned()));
            }
            ("gzip", ["on"]) => made.keys.push(("compress".to_owned(), "true".to_owned())),
            ("gzip", ["off"]) => made.keys.push(("compress".to_owned(), "false".to_owned())),
            ("gzip_min_length", [bytes]) if bytes.parse::<u64>().is_ok() => {
                made.keys.push(("compress-min".to_owned(), (*bytes).to_owned()));
            }
            ("index", ["index.html", ..]) => {}
            ("index", _) => self.leave(directive, "a directory's file is index.html"),
            ("auth_basic", ["off"]) => made.keys.push(("auth".to_owned(), quoted(""))),
            ("auth_basic" | "auth_basic_user_file", _) => {
                self.leave(directive, "make hashes by linerate-files password, and name them in a [realm]");
            }
            ("include", _) => self.leave(directive, "put it in first, as nginx -T does"),
            ("set" | "if" | "map", _) => self.leave(directive, "there are no variables"),
            (name, _) if SILENT.contains(&name) || name.starts_with("ssl_") => {}
            _ => self.leave(directive, "it is not about files"),
        }
    }

    fn error_page(&mut self, server: &mut Server, directive: &Directive) {
        let Some((page, statuses)) = directive.arguments.split_last() else { return };
        if !page.starts_with('/') || statuses.iter().any(|status| status.starts_with('=')) {
            return self
                .leave(directive, "an error keeps its status, and its page is a path; see fallback for 200");
        }
        for status in statuses {
            server.error_pages.push((directive.line, status.clone(), page.clone()));
        }
    }

    fn rewrite(&mut self, directive: &Directive) -> Option<Rewrite> {
        let arguments: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let (regex, to, flag) = match arguments[..] {
            [regex, to] => (regex, to, ""),
            [regex, to, flag] => (regex, to, flag),
            _ => {
                self.leave(directive, "it has an expression and what is made of it");
                return None;
            }
        };
        let to = to.trim_end_matches('?').replace("$uri", "$path");
        let elsewhere = to.starts_with("http") || to.starts_with("$scheme");
        let moves = match flag {
            "permanent" => vec![("redirect", quoted(&to)), ("status", "301".to_owned())],
            "redirect" => vec![("redirect", quoted(&to)), ("status", "302".to_owned())],
            _ if elsewhere => vec![("redirect", quoted(&to)), ("status", "302".to_owned())],
            _ => vec![("rewrite", quoted(&to))],
        };
        let keys = moves.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let has_captures = to.replace("$path", "").contains('$');
        Some(Rewrite { line: directive.line, regex: regex.to_owned(), has_captures, keys })
    }
}

impl Made {
    /// Whether its paths are redirected or rewritten.
    fn leads_elsewhere(&self) -> bool {
        self.keys.iter().any(|(key, _)| key == "redirect" || key == "rewrite")
    }
}

impl Rewrite {
    /// Whether it does the same with every path, so that it can be part of another rule.
    fn is_of_everything(&self) -> bool {
        let is_all = ["^", "^/", ".*", "(.*)", "^.*$", "^(.*)$", "^/(.*)$"].contains(&&*self.regex);
        is_all && !self.has_captures
    }

    /// Whether it matches only what the expression `outer` matches, as far as its text shows.
    fn is_within(&self, outer: &str) -> bool {
        // A quantifier would make the last character optional, and an alternative may match anything.
        let is_narrower = |rest: &str| !rest.starts_with(['?', '*', '{']) && !rest.contains('|');
        self.regex.strip_prefix(outer).is_some_and(is_narrower)
    }

    /// The rule for the paths that it matches.
    fn rule(self, order: (u8, isize)) -> Made {
        let mut keys = vec![("match".to_owned(), quoted(&self.regex))];
        keys.extend(self.keys);
        Made { line: self.line, order, keys }
    }
}

/// Whether a directive outside of servers applies to each of them.
fn is_of_server(directive: &Directive) -> bool {
    let name = &*directive.name;
    directive.block.is_none() && is_said(name)
}

fn is_said(name: &str) -> bool {
    SILENT.contains(&name)
        || name.starts_with("ssl_")
        || [
            "root",
            "index",
            "autoindex",
            "error_page",
            "expires",
            "add_header",
            "gzip",
            "gzip_min_length",
            "include",
        ]
        .contains(&name)
}

/// The paths of `try_files`, as TOML; none if it contains anything but paths.
fn tries(paths: &[&str]) -> Option<Vec<String>> {
    let (last, before) = paths.split_last()?;
    let last = (*last != "=404").then_some(last);
    let path = |path: &&str| {
        let path = path.replace("$uri", "$path");
        let is_path = path.starts_with('/') || path.starts_with("$path");
        (is_path && !path.contains(['?', '@']) && !path.replace("$path", "").contains('$'))
            .then(|| quoted(&path))
    };
    before.iter().chain(last).map(path).collect()
}

/// The `Cache-Control` that corresponds to `expires`. The inner option is none if there is none to send, the outer one
/// if `time` is not understood.
fn expires(time: &str) -> Option<Option<String>> {
    let seconds = match time {
        "off" => return Some(None),
        "epoch" => return Some(Some("no-cache".to_owned())),
        "max" => 315_360_000,
        _ if time.starts_with('-') => return Some(Some("no-cache".to_owned())),
        _ => {
            let (number, unit) =
                time.split_at(time.find(|byte: char| !byte.is_ascii_digit()).unwrap_or(time.len()));
            let unit: u64 = match unit {
                "" | "s" => 1,
                "m" => 60,
                "h" => 3600,
                "d" => 86_400,
                "w" => 604_800,
                "M" => 2_592_000,
                "y" => 31_536_000,
                _ => return None,
            };
            number.parse::<u64>().ok()?.checked_mul(unit)?
        }
    };
    Some(Some(format!("max-age={seconds}")))
}

/// An expression that matches this text, written as people do: without a backslash where none is needed.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if "\\^$.|?*+()[]{}".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

impl Server {
    /// The server's tables, with `prefix` before the name of each. Adds to `left` what rules do not accept.
    fn tables(&self, prefix: &str, left: &mut Vec<(usize, String)>) -> String {
        let mut text = String::new();
        let mut named = false;
        for (line, status, page) in &self.error_pages {
            let entry = format!("{} = {}\n", quoted(status), quoted(page));
            match Rules::parse(&format!("[error-pages]\n{entry}")) {
                Ok(_) => {
                    if !std::mem::replace(&mut named, true) {
                        let _ = write!(text, "\n[{prefix}error-pages]\n");
                    }
                    text.push_str(&entry);
                }
                Err(error) => left.push((*line, error.to_string())),
            }
        }
        for rule in &self.rules {
            let keys: String = rule.keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            match Rules::parse(&format!("[[rule]]\n{keys}")) {
                Ok(_) => {
                    let _ = write!(text, "\n[[{prefix}rule]]\n{keys}");
                }
                Err(error) => left.push((rule.line, error.to_string())),
            }
        }
        text
    }

    /// The server as one of several sites.
    fn site(&self, left: &mut Vec<(usize, String)>) -> String {
        let Some(root) = self.root.as_ref().filter(|_| !self.names.is_empty()) else {
            left.push((self.line, "server: a site has a server_name and a root".to_owned()));
            return String::new();
        };
        let names: Vec<String> = self.names.iter().map(|name| quoted(name)).collect();
        let mut text = format!("\n[[site]]\nhosts = [{}]\nroot = {}\n", names.join(", "), quoted(root));
        if let Some(listing) = self.listing {
            let _ = writeln!(text, "listing = {listing}");
        }
        if let (Some(cert), Some(key)) = (&self.cert, &self.cert_key) {
            let _ = write!(text, "cert = {}\ncert-key = {}\n", quoted(cert), quoted(key));
        }
        text + &self.tables("site.", left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONF: &str = r#"
user www;
events { worker_connections 1024; }
http {
    include mime.types;
    sendfile on;
    gzip on;
    server {
        listen 80 default_server;
        root /srv/www;
        error_page 404 /404.html;
        error_page 500 502 503 504 /50x.html;
        location / { try_files $uri $uri/ /index.html; }
        location /assets/ { expires 30d; add_header X-A "b c" always; }
        location ~* \.(png|jpg)$ { expires max; }
        location ~ \.php$ { fastcgi_pass 127.0.0.1:9000; }
        location = /old { return 301 /new; }
        location /api/ { proxy_pass http://127.0.0.1:3000; }
        rewrite ^/u/([0-9]+)$ /users/$1 last;
        rewrite ^/blog/(.*)$ https://blog.example/$1 permanent;
    }
    server {
        listen 443 ssl;
        server_name a.example .b.example ~^c\d+$;
        root /srv/a;
        ssl_certificate a.pem;
        ssl_certificate_key a.key;
        autoindex on;
        gzip off;
        location ~ ^/(?!x) { expires 1h; }
    }
    server { server_name d.example; return 301 https://e.example$request_uri; }
}
"#;

    #[test]
    fn what_is_static_becomes_rules_and_the_rest_is_told() {
        let imported = import(CONF).expect("a configuration");
        let rules =
            Rules::parse(&imported.rules).unwrap_or_else(|error| panic!("{error}\n{}", imported.rules));
        assert!(imported.rules.starts_with("# linerate-files serve --root /srv/www\n"), "{}", imported.rules);
        let policy = |path: &str| rules.policy(path.as_bytes(), false).fields;
        assert_eq!(policy("/assets/a.js"), "cache-control: max-age=2592000\r\nx-a: b c\r\n");
        // An expression takes precedence over a prefix.
        assert_eq!(policy("/assets/A.PNG"), "cache-control: max-age=315360000\r\nx-a: b c\r\n");
        assert!(rules.policy(b"/x", false).compressed.is_some());
        use crate::site::route::Route;
        let route = |path: &str| Route::of(rules.all_routes(), path.as_bytes(), None, false);
        let elsewhere = |to: &str| Route::Redirected { status: 301, location: to.to_owned() };
        let first =
            |paths: &[&str]| Route::TryFiles(paths.iter().map(|path| path.as_bytes().to_vec()).collect());
        assert_eq!(route("x"), first(&["x", "x/", "index.html"]));
        assert_eq!(route("old"), elsewhere("/new"));
        assert_eq!(route("u/7"), first(&["users/7", "users/7/", "index.html"]));
        assert_eq!(route("blog/a"), elsewhere("https://blog.example/a"));
        assert_eq!(rules.error_pages.len(), 5);
        let site = &rules.site[0];
        assert_eq!(site.hosts, ["a.example", "b.example", "*.b.example"]);
        assert_eq!((site.listing, site.cert.is_some()), (Some(true), true));
        let left: Vec<String> = imported
            .left
            .iter()
            .map(|(line, why)| format!("{line}: {}", why.split(':').next().unwrap_or("")))
            .collect();
        for told in [
            "5: include mime.types",
            "16: fastcgi_pass 127.0.0.1",
            "18: proxy_pass http",
            "24: server_name a.example .b.example ~^c\\d+$",
            "30: rule \"^/(?!x)\"",
            "32: server",
        ] {
            assert!(left.iter().any(|left| left == told), "{told}: {left:#?}");
        }
    }

    #[test]
    fn a_rewrite_leads_nothing_elsewhere_that_its_location_does_not_match() {
        use crate::site::route::Route;
        let none = None;
        for (location, of_x, of_old_a, is_left) in [
            ("/old/ { rewrite ^ /new permanent; }", none, Some("/new"), false),
            ("/old/ { rewrite ^/old/(.*)$ /new/$1 permanent; }", none, Some("/new/a"), false),
            ("/ { rewrite (x) /$1/y permanent; }", Some("/x/y"), none, false),
            ("= /x { rewrite ^/x$ /new permanent; }", Some("/new"), none, false),
            ("~ ^/old { rewrite ^/old/a /new permanent; }", none, Some("/new"), false),
            ("/o { rewrite ^/old/(a)$ /$1 permanent; rewrite ^/o /b permanent; }", none, Some("/a"), false),
            ("/o { rewrite ^ /a permanent; rewrite ^/old/ /b permanent; }", none, Some("/a"), true),
            ("/o { rewrite ^ /a permanent; return 301 /b; expires 1h; }", none, Some("/a"), true),
            ("/o { return 301 /a; return 301 /b; }", none, Some("/a"), true),
            ("/old/ { rewrite ^(.*)$ /new$1 permanent; }", none, none, true),
            ("/old/ { rewrite a|x /new permanent; }", none, none, true),
            ("/old/ { rewrite ^/old/a|/x /new permanent; }", none, none, true),
            ("/x/ { rewrite ^/x/? /new permanent; }", none, none, true),
            ("/.ld/ { rewrite ^/.ld/ /new permanent; }", none, none, true),
        ] {
            let imported = import(&format!("server {{ root /srv; location {location} }}")).expect("one");
            let rules = Rules::parse(&imported.rules).expect("rules");
            for (path, to) in [("x", of_x), ("old/a", of_old_a)] {
                let route = Route::of(rules.all_routes(), path.as_bytes(), None, false);
                let elsewhere = |to: &str| Route::Redirected { status: 301, location: to.to_owned() };
                assert_eq!(route, to.map_or(Route::Direct, elsewhere), "{location} {path}");
            }
            assert_eq!(imported.left.is_empty(), !is_left, "{location} {:?}", imported.left);
        }
    }

    #[test]
    fn times_are_understood() {
        for (time, value) in [
            ("30d", Some(Some("max-age=2592000"))),
            ("10", Some(Some("max-age=10"))),
            ("-1", Some(Some("no-cache"))),
            ("epoch", Some(Some("no-cache"))),
            ("off", Some(None)),
            ("modified", None),
            ("99999999999999999999y", None),
        ] {
            assert_eq!(expires(time), value.map(|value| value.map(str::to_owned)), "{time}");
        }
    }

    #[test]
    fn hostile_configurations_are_refused_or_left() {
        for text in
            ["{", "}", "server", "server { location / { try_files", "http { server { rewrite; } }", "a'"]
        {
            let _ = import(text);
        }
        let text =
            "server { root \"/a\nb\"; location \"/x\ny\" { add_header \"a\nb\" \"c\r\nd\"; expires 1d; } }";
        let imported = import(text).expect("a configuration");
        assert!(Rules::parse(&imported.rules).is_ok(), "{}", imported.rules);
    }
}
