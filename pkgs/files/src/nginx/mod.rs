//! Converts the parts of nginx's configuration that rules can express.
//!
//! nginx answers a request by one location: the exact one, else the first matching regular expression, else the longest
//! prefix. Here all matching rules apply, and later ones override earlier ones. So prefixes come first, in order of
//! length, then expressions from last to first, then exact locations.

mod includes;
mod listen;
mod moves;
mod syntax;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;

use crate::site::rules::Rules;
use listen::Place;
use moves::{has_captures, is_upgrade, is_url, may_match, target};
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
const SILENT: [&str; 32] = [
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

/// Why restrictions of TLS are left out.
const NEVER_REFUSED: &str = "no client is refused by TLS here";

/// Why it is told where a server listens.
const EVERYWHERE: &str = "the default server listens elsewhere, and a site is reached wherever that one is";

/// Why no host is led from http to https.
const NOT_UPGRADED: &str = "a site is the same with TLS and without: nothing leads from http to https here";

/// Expressions that match every path.
const EVERY_PATH: [&str; 7] = ["^", "^/", ".*", "(.*)", "^.*$", "^(.*)$", "^/(.*)$"];

/// How expressions begin whose letters match in any case.
const ANY_CASE: &str = "(?i)";

/// The place of what is said of a whole server among all rules.
const WHOLE: (u8, isize) = (0, 0);

/// The place of locations that are expressions among all rules.
const EXPRESSION: u8 = 2;

/// Converts a configuration to rules.
///
/// # Errors
/// [`Error`] if the text is not a configuration.
pub fn import(text: &str) -> Result<Imported, Error> {
    let mut import = Import::default();
    let all = includes::parse(text)?;
    import.top(&all, &[]);
    import.settle();
    let mut rules = String::new();
    let first = import.default_server();
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
            // Other sites would take it over.
            for server in &mut import.servers {
                server.listing.get_or_insert(false);
            }
        }
        let tables = default.tables("", &mut import.left);
        let mut sites = String::new();
        for server in &import.servers {
            let site = server.site(&mut import.left);
            if !site.is_empty() {
                import.left.extend(server.left_open(&default));
            }
            sites.push_str(&site);
        }
        match default.rejects.clone() {
            Some(_) if !sites.is_empty() => rules.push_str("unknown-hosts = \"refuse\"\n"),
            rejects => import.left.extend(rejects),
        }
        rules.push_str(&tables);
        if default.is_covered(&import.servers) {
            rules.push_str(&default.site(&mut import.left));
        }
        rules.push_str(&sites);
    }
    import.left.sort();
    import.left.dedup();
    Ok(Imported { rules, left: import.left })
}

#[derive(Default)]
struct Import {
    servers: Vec<Server>,
    /// How many expressions there were so far.
    expressions: isize,
    left: Vec<(usize, String)>,
}

#[derive(Default)]
struct Server {
    line: usize,
    is_default: bool,
    names: Vec<String>,
    /// Where it listens, and what is told of that if it is reached elsewhere too.
    places: Vec<Place>,
    listens: Option<(usize, String)>,
    has_tls: bool,
    /// What is told of TLS that it refuses, if others are not refused.
    rejects: Option<(usize, String)>,
    /// Whether it leads all to the same host by TLS.
    upgrades: bool,
    /// Whether other servers have all its names.
    is_replaced: bool,
    root: Option<String>,
    cert: Option<String>,
    cert_key: Option<String>,
    listing: Option<bool>,
    error_pages: Vec<(usize, String, String)>,
    rules: Vec<Made>,
}

/// A rule, and the key by which rules are sorted.
#[derive(Default)]
struct Made {
    line: usize,
    order: (u8, isize),
    /// An expression that begins like this matches only its paths.
    inside: String,
    /// The rule's keys and values, as TOML.
    keys: Vec<(String, String)>,
    /// The values of which its `cache-control` consists.
    cache_control: Vec<String>,
    /// Whether one of those is of `expires`.
    expires: bool,
    /// What is told of its `expires off`, if another rule's `expires` is for its paths too.
    never_expires: Option<(usize, String)>,
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
        self.left.push(told(directive, why));
    }

    /// The place of an expression among those of its kind: in nginx, the first that matches counts; here, the last
    /// rule. Lines do not say which is first, since a later file may be included earlier.
    fn earlier(&mut self) -> isize {
        self.expressions += 1;
        -self.expressions
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
        let keys = vec![("path".to_owned(), quoted("*"))];
        let mut whole = Made { line, order: WHOLE, keys, ..Made::default() };
        self.chains(block);
        let inherited = common.iter().filter(|one| !block.iter().any(|own| own.name == one.name));
        for directive in inherited.copied().chain(block) {
            let argument = |at: usize| directive.arguments.get(at).cloned();
            server.upgrades |= upgrades(directive);
            match (&*directive.name, &directive.block) {
                ("location", Some(block)) => self.location(&mut server, directive, block, None),
                ("server_name", None) => self.names(&mut server, directive),
                ("listen", None) => {
                    server.is_default |= directive.arguments.iter().any(|word| word == "default_server");
                    server.places.extend(argument(0).map(|place| Place::of(&place)));
                    server.listens.get_or_insert_with(|| told(directive, EVERYWHERE));
                    server.has_tls |= directive.arguments.iter().any(|word| word == "ssl" || word == "quic");
                }
                ("ssl_reject_handshake", None) if argument(0).as_deref() == Some("on") => {
                    server.rejects = Some(told(directive, NEVER_REFUSED));
                }
                ("root", None) => server.root = argument(0),
                ("ssl_certificate", None) => server.cert = argument(0),
                ("ssl_certificate_key", None) => server.cert_key = argument(0),
                ("autoindex", None) => server.listing = Some(argument(0).as_deref() == Some("on")),
                ("error_page", None) => self.error_page(&mut server, directive),
                ("rewrite", None) => {
                    let order = (5, self.earlier());
                    let rewrite = self.rewrite(directive);
                    server.rules.extend(rewrite.map(|rewrite| rewrite.rule(order)));
                }
                _ => self.said(directive, &mut whole),
            }
        }
        if server.places.is_empty() {
            server.places.push(Place::default());
        }
        server.rules.push(whole);
        server.rules.sort_by_key(|rule| rule.order);
        for (at, rule) in server.rules.iter().enumerate() {
            let said = || server.rules[..at].iter().any(|other| other.expires && other.may_cover(rule));
            self.left.extend(rule.never_expires.clone().filter(|_| said()));
        }
        server.rules.retain(|rule| rule.keys.len() > 1);
        server
    }

    /// Where requests go whose host has no server of its own: to the default server, or else to the first one.
    fn default_server(&self) -> usize {
        self.servers.iter().position(|server| server.is_default).unwrap_or(0)
    }

    /// Gives each name to one server, since a site is the same on all ports, and removes those that are left without.
    /// Usually, these lead from http to https.
    fn settle(&mut self) {
        let (default, mut heir) = (self.default_server(), None);
        let servers = &mut self.servers;
        let mut order: Vec<usize> = (0..servers.len()).collect();
        // Of equals, the first has its names in nginx too.
        order.sort_by_key(|at| Reverse(servers[*at].rank()));
        let mut owners = BTreeMap::<String, usize>::new();
        for at in order {
            let (mut names, mut lost) = (std::mem::take(&mut servers[at].names), Vec::new());
            names.retain(|name| {
                let owner = owners.get(name).copied();
                match owner {
                    None => {
                        owners.insert(name.clone(), at);
                    }
                    Some(owner) if owner != at => lost.push((owner, name.clone())),
                    // It was said twice.
                    Some(_) => {}
                }
                owner.is_none()
            });
            if let Some((owner, _)) = lost.first() {
                let is_upgraded = servers[*owner].has_tls && !servers[at].has_tls;
                let same = "another server has this name, and a site is the same on all ports";
                let why = if is_upgraded { NOT_UPGRADED } else { same };
                let all: Vec<&str> = lost.iter().map(|(_, name)| &**name).collect();
                self.left.push((servers[at].line, format!("server {}: {why}", all.join(" "))));
                servers[at].is_replaced = names.is_empty();
                heir = heir.or((at == default && names.is_empty()).then_some(*owner));
            }
            servers[at].names = names;
        }
        let has_files = servers.iter().any(Server::has_files);
        // One that also refuses TLS says what becomes of hosts that nobody knows.
        let leads_away = |server: &Server| server.upgrades && has_files && server.rejects.is_none();
        let stays = |server: &Server| !server.is_replaced && !leads_away(server);
        // Hosts of no server go to what replaces the default server, unless there is another default server.
        let has_default = servers.iter().any(|server| server.is_default && stays(server));
        if let Some(heir) = heir.filter(|_| !has_default) {
            servers[heir].is_default = true;
        }
        servers.retain(stays);
    }

    fn names(&mut self, server: &mut Server, directive: &Directive) {
        for name in directive.arguments.iter().map(|name| name.to_ascii_lowercase()) {
            if let Some(parent) = name.strip_prefix('.') {
                server.names.extend([parent.to_owned(), format!("*.{parent}")]);
            } else if name.starts_with('~') || name.ends_with('*') {
                self.leave(directive, "a host is known by its name, or by *. and what it ends with");
            } else if name != "_" && !name.is_empty() {
                server.names.push(name);
            }
        }
    }

    /// Converts a location, which matches only what the expression `outer` matches if it is in another one.
    fn location(
        &mut self,
        server: &mut Server,
        directive: &Directive,
        block: &[Directive],
        outer: Option<&str>,
    ) {
        let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
        let longer = |path: &str| isize::try_from(path.len()).unwrap_or(isize::MAX);
        let earlier = self.earlier();
        let prefix = |path: &str| ("path", if path == "/" { "*".to_owned() } else { format!("{path}*") });
        let begins = |path: &str| format!("^{}", escaped(path));
        // The last is an expression: one that begins like it matches nothing outside the location.
        let (order, (key, value), inside) = match words[..] {
            ["=", path] => ((4, longer(path)), ("path", path.to_owned()), begins(path) + "$"),
            ["~", regex] => ((EXPRESSION, earlier), ("match", regex.to_owned()), regex.to_owned()),
            ["~*", regex] => {
                ((EXPRESSION, earlier), ("match", format!("{ANY_CASE}{regex}")), format!("{ANY_CASE}{regex}"))
            }
            ["^~", path] => ((3, longer(path)), prefix(path), begins(path)),
            [path] if path.starts_with('/') => ((1, longer(path)), prefix(path), begins(path)),
            _ => return self.leave(directive, "no file is sent for it by name"),
        };
        if outer.is_some_and(|outer| !is_within(&inside, outer)) {
            return self.leave(directive, "it may match what the location around it does not");
        }
        let mut rewrites = Vec::new();
        let keys = vec![(key.to_owned(), quoted(&value))];
        let mut made = Made { line: directive.line, order, inside: inside.clone(), keys, ..Made::default() };
        // One for every path has nothing outside it, however the expressions in it begin.
        let around = if (key, &*value) == ("path", "*") { outer } else { Some(&*inside) };
        self.chains(block);
        for inner in block {
            match (&*inner.name, inner.arguments.first()) {
                ("location", _) => {
                    let block = inner.block.as_deref().unwrap_or_default();
                    self.location(server, inner, block, around);
                }
                ("rewrite", _) => match self.rewrite(inner) {
                    None => {}
                    Some(_) if made.leads_elsewhere() => {
                        self.leave(inner, "all of its location leads elsewhere before it");
                    }
                    Some(rewrite) if rewrite.is_of_everything() => made.keys.extend(rewrite.keys),
                    Some(rewrite)
                        if (key, &*value) == ("path", "*") || is_within(&rewrite.regex, &inside) =>
                    {
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
        server.rules.push(made);
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
                // nginx sends it before those of `add_header`.
                Some(Some(value)) => {
                    made.cache(0, value);
                    made.expires = true;
                }
                Some(None) => {
                    let why = "no rule takes back the cache-control of another one for these paths";
                    made.never_expires = Some(told(directive, why));
                }
                None => self.leave(directive, "a time is in s, m, h, d, w, M or y"),
            },
            ("add_header", [_, _, ..]) if has_variable => self.leave(directive, "fields have no variables"),
            ("add_header", [name, value, ..]) if name.eq_ignore_ascii_case("cache-control") => {
                made.cache(made.cache_control.len(), (*value).to_owned());
            }
            // What is compressed has it anyway.
            ("add_header", [name, value, ..])
                if name.eq_ignore_ascii_case("vary") && value.eq_ignore_ascii_case("accept-encoding") => {}
            ("add_header", [name, value, ..]) => {
                let is_for_all = name.eq_ignore_ascii_case("access-control-allow-origin") && *value == "*";
                let (key, value) = if is_for_all {
                    ("cors".to_owned(), "[\"*\"]".to_owned())
                } else {
                    (format!("headers.{}", quoted(name)), quoted(value))
                };
                if made.keys.iter().any(|(known, _)| known.eq_ignore_ascii_case(&key)) {
                    return self.leave(directive, "a rule has one field of each name");
                }
                made.keys.push((key, value));
            }
            ("return", [.., to]) if is_upgrade(to) => self.leave(directive, NOT_UPGRADED),
            ("return", [status, to]) if matches!(*status, "301" | "302" | "303" | "307" | "308") => {
                if made.leads_elsewhere() {
                    return self.leave(directive, "what is before it leads elsewhere");
                }
                // The captures would be those of the last expression before it.
                let target = target(to).filter(|(to, _)| !has_captures(to));
                let Some((to, has_query)) = target else {
                    let why = "it has no variables but $uri, and at its end $request_uri or $args";
                    return self.leave(directive, why);
                };
                made.keys.extend(redirect(&to, status, has_query));
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
            ("include", _) => self.leave(directive, "its file is not here: import what nginx -T prints"),
            ("set" | "if" | "map", _) => self.leave(directive, "there are no variables"),
            ("ssl_verify_client" | "ssl_ocsp" | "ssl_reject_handshake", ["off"]) => {}
            ("ssl_verify_client" | "ssl_crl" | "ssl_ocsp" | "ssl_reject_handshake", _) => {
                self.leave(directive, NEVER_REFUSED);
            }
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
        // A final ? is not sent, nor is the client's query then.
        let bare = to.strip_suffix('?').unwrap_or(to);
        let status = match flag {
            "permanent" => Some("301"),
            "redirect" => Some("302"),
            _ => is_url(to).then_some("302"),
        };
        // A file is the same for all queries.
        let path = if status.is_some() { bare } else { bare.split('?').next().unwrap_or_default() };
        let Some((made, has_query)) = target(path) else {
            let variables = "it has no variables but $1 to $9, $uri, and at its end $request_uri or $args";
            self.leave(directive, if is_upgrade(to) { NOT_UPGRADED } else { variables });
            return None;
        };
        let keys = match status {
            Some(status) => redirect(&made, status, has_query || bare == to),
            None => vec![("rewrite".to_owned(), quoted(&made))],
        };
        let has_captures = has_captures(&made);
        Some(Rewrite { line: directive.line, regex: regex.to_owned(), has_captures, keys })
    }

    /// Reports the rewrites of a block whose results nginx would rewrite by those behind them.
    fn chains(&mut self, block: &[Directive]) {
        let rewrites: Vec<&Directive> = block.iter().filter(|one| one.name == "rewrite").collect();
        for (at, first) in rewrites.iter().enumerate() {
            let [_, to] = &first.arguments[..] else { continue };
            let mut behind = rewrites[at + 1..].iter().filter_map(|one| one.arguments.first());
            if !is_url(to) && behind.any(|regex| may_match(regex, to)) {
                self.leave(first, "what it leads to is not rewritten again by those behind it");
            }
        }
    }
}

impl Made {
    /// Whether it may be for a path of a later rule, as far as their text shows.
    fn may_cover(&self, later: &Self) -> bool {
        [self, later].iter().any(|rule| rule.order.0 == EXPRESSION) || later.inside.starts_with(&self.inside)
    }

    /// Whether its paths are redirected or rewritten.
    fn leads_elsewhere(&self) -> bool {
        self.keys.iter().any(|(key, _)| key == "redirect" || key == "rewrite")
    }

    /// Adds a value to `cache-control`, before the one that is at this place.
    fn cache(&mut self, at: usize, value: String) {
        self.cache_control.insert(at, value);
        self.keys.retain(|(key, _)| key != "cache-control");
        self.keys.push(("cache-control".to_owned(), quoted(&self.cache_control.join(", "))));
    }

    /// The keys that rules accept, as TOML; empty if only its paths are. Adds to `left` why the others are not.
    fn accepted(&self, left: &mut Vec<(usize, String)>) -> String {
        let mut accepted: Vec<&str> = Vec::new();
        let mut text = String::new();
        for (key, value) in &self.keys {
            // These say more about a redirect.
            if matches!(&**key, "status" | "query") && !accepted.contains(&"redirect") {
                continue;
            }
            let longer = format!("{text}{key} = {value}\n");
            match Rules::parse(&format!("[[rule]]\n{longer}")) {
                Ok(_) => {
                    accepted.push(key);
                    text = longer;
                }
                Err(error) => left.push((self.line, error.to_string())),
            }
            // No other key is accepted without paths.
            if accepted.is_empty() {
                break;
            }
        }
        if accepted.len() > 1 { text } else { String::new() }
    }
}

impl Rewrite {
    /// Whether it does the same with every path, so that it can be part of another rule.
    fn is_of_everything(&self) -> bool {
        EVERY_PATH.contains(&&*self.regex) && !self.has_captures
    }

    /// The rule for the paths that it matches.
    fn rule(self, order: (u8, isize)) -> Made {
        let mut keys = vec![("match".to_owned(), quoted(&self.regex))];
        keys.extend(self.keys);
        Made { line: self.line, order, keys, ..Made::default() }
    }
}

/// What is told of a directive, with its line.
fn told(directive: &Directive, why: &str) -> (usize, String) {
    let mut shown = directive.name.clone();
    for argument in directive.arguments.iter().take(8) {
        shown.extend([" ", argument]);
    }
    (directive.line, format!("{shown}: {why}"))
}

/// Whether an expression matches only what the expression `outer` matches, as far as its text shows.
fn is_within(regex: &str, outer: &str) -> bool {
    let (regex, outer) = match outer.strip_prefix(ANY_CASE) {
        Some(outer) => (regex.strip_prefix(ANY_CASE).unwrap_or(regex), outer),
        None => (regex, outer),
    };
    // A quantifier would make the last character optional, and an alternative may match anything.
    let is_narrower = |rest: &str| !rest.starts_with(['?', '*', '{']) && !rest.contains('|');
    regex.strip_prefix(outer).is_some_and(is_narrower)
}

/// Whether a directive of a server leads all to the same host by TLS.
fn upgrades(directive: &Directive) -> bool {
    let arguments: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
    match (&*directive.name, &arguments[..]) {
        ("return", [.., to]) => is_upgrade(to),
        ("rewrite", [regex, to, ..]) => EVERY_PATH.contains(regex) && is_upgrade(to),
        _ => false,
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

/// The keys of a redirect, as TOML.
fn redirect(to: &str, status: &str, has_query: bool) -> Vec<(String, String)> {
    let query = (!has_query).then_some(("query", "false".to_owned()));
    let keys = [("redirect", quoted(to)), ("status", status.to_owned())].into_iter().chain(query);
    keys.map(|(key, value)| (key.to_owned(), value)).collect()
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
            let mut keys: String =
                rule.keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            if Rules::parse(&format!("[[rule]]\n{keys}")).is_err() {
                keys = rule.accepted(left);
            }
            if !keys.is_empty() {
                let _ = write!(text, "\n[[{prefix}rule]]\n{keys}");
            }
        }
        text
    }

    fn has_files(&self) -> bool {
        let leads_away = self.rules.iter().any(|rule| rule.order == WHOLE && rule.leads_elsewhere());
        self.root.is_some() && !self.upgrades && !leads_away
    }

    /// Of servers of one name, the highest has it. One at another port may not be for everybody.
    fn rank(&self) -> (bool, bool, bool) {
        (self.has_files(), self.places.iter().any(Place::is_usual), self.has_tls)
    }

    /// Whether the default server has to be a site as well, since that of another one would take one of its names.
    fn is_covered(&self, others: &[Self]) -> bool {
        let others = || others.iter().filter(|other| other.root.is_some()).flat_map(|other| &other.names);
        let is_taken = |name: &String| {
            others().any(|other| other.strip_prefix('*').is_some_and(|parent| name.ends_with(parent)))
        };
        self.root.is_some() && self.names.iter().any(is_taken)
    }

    /// What is told of the server as a site if nobody reaches it where they reach the default server, or if it refuses
    /// TLS.
    fn left_open(&self, default: &Self) -> impl Iterator<Item = (usize, String)> {
        let is_elsewhere = self.places.iter().all(|place| !default.places.contains(place));
        let here = || (self.line, format!("server: {EVERYWHERE}"));
        let listens = is_elsewhere.then(|| self.listens.clone().unwrap_or_else(here));
        listens.into_iter().chain(self.rejects.clone())
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
    fn a_location_in_another_one_is_a_rule_for_nothing_outside_it() {
        let fields = |rules: &Rules, path: &str| rules.policy(path.as_bytes(), false).fields;
        for (inner, of_outside, of_inside, is_left) in [
            ("~ \\.js$ { expires 1h; }", "", "", true),
            ("~ ^/a/.*\\.js$ { expires 1h; }", "", "3600", false),
            ("~* ^/a/.*\\.js$ { expires 1h; }", "", "", true),
            ("~ ^/a/|\\.js$ { expires 1h; }", "", "", true),
            ("~ ^/a/?x { expires 1h; }", "", "", true),
            ("/a/x { expires 1h; }", "", "3600", false),
            ("= /a/x.js { expires 1h; }", "", "3600", false),
            ("/x { expires 1h; }", "", "", true),
            // Nor is what is in it.
            ("~ \\.js$ { location ~ ^/a/x { expires 1h; } }", "", "", true),
            ("/a/x { location ~ ^/a/x.js { expires 1h; } }", "", "3600", false),
        ] {
            let imported = import(&format!("server {{ root /srv; location /a/ {{ location {inner} }} }}"));
            let imported = imported.expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            for (path, age) in [("/x.js", of_outside), ("/A/x.js", of_outside), ("/a/x.js", of_inside)] {
                let line = format!("cache-control: max-age={age}\r\n");
                assert_eq!(
                    fields(&rules, path),
                    if age.is_empty() { "" } else { line.as_str() },
                    "{inner} {path}"
                );
            }
            assert_eq!(imported.left.len(), usize::from(is_left), "{inner} {:?}", imported.left);
        }
        // Nothing is outside a location for every path.
        for (outer, is_left) in [("/", false), ("^~ /", false), ("= /", true), ("~ ^/", true)] {
            let text = format!(
                "server {{ root /srv; location {outer} {{ location ~* \\.js$ {{ expires 1h; }} }} }}"
            );
            let imported = import(&text).expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            let line = if is_left { "" } else { "cache-control: max-age=3600\r\n" };
            assert_eq!(
                (fields(&rules, "/x.JS"), imported.left.len()),
                (line.to_owned(), is_left.into()),
                "{text}"
            );
        }
        // An expression that matches in any case may be in one that does.
        let text = "server { root /srv; location ~* ^/a { location ~* ^/a/x { expires 1h; } } }";
        let imported = import(text).expect("a configuration");
        let rules = Rules::parse(&imported.rules).expect("rules");
        assert_eq!(fields(&rules, "/A/X"), "cache-control: max-age=3600\r\n");
    }

    #[test]
    fn what_nginx_prints_is_one_configuration_with_its_includes() {
        let imported = import(
            "# configuration file /etc/nginx/nginx.conf:\nhttp {\n include mime.types;\n gzip on;\n root /srv/all;\n\
             add_header Strict-Transport-Security max-age=1;\n include sites-enabled/*;\n}\n\n\
             # configuration file /etc/nginx/mime.types:\ntypes { text/css css; }\n\n\
             # configuration file /etc/nginx/sites-enabled/a:\nserver {\n server_name a.example;\n\
             location / { include snippets/robots.conf; }\n}\n\n\
             # configuration file /etc/nginx/snippets/robots.conf:\nadd_header X-Robots-Tag noindex;\n\n\
             # configuration file /etc/nginx/sites-enabled/b:\nserver { server_name b.example; include none/*; }\n",
        )
        .expect("a configuration");
        assert!(imported.left.is_empty(), "{:?}", imported.left);
        assert!(imported.rules.starts_with("# linerate-files serve --root /srv/all\n"), "{}", imported.rules);
        let mut rules = Rules::parse(&imported.rules).expect("rules");
        let (a, b) = (rules.policy(b"/x", false), rules.site[0].take_rules().policy(b"/x", false));
        assert_eq!(a.fields, "strict-transport-security: max-age=1\r\nx-robots-tag: noindex\r\n");
        assert_eq!(b.fields, "strict-transport-security: max-age=1\r\n");
        assert!(a.compressed.is_some() && b.compressed.is_some());
    }

    #[test]
    fn expressions_count_as_they_are_included() {
        let imported = import(
            "# configuration file /n/n.conf:\nserver { root /srv; include first; rewrite ^/a /second permanent; }\n\
             # configuration file /n/first:\nrewrite ^/a /first permanent;\n",
        );
        let rules = Rules::parse(&imported.expect("a configuration").rules).expect("rules");
        use crate::site::route::Route;
        let to = Route::Redirected { status: 301, location: "/first".to_owned() };
        assert_eq!(Route::of(rules.all_routes(), b"a", None, false), to);
    }

    #[test]
    fn no_wildcard_takes_the_names_of_the_default_server() {
        for (names, others, sites) in [
            ("www.example.org", "*.example.org", vec!["www.example.org", "*.example.org"]),
            ("_ Www.Example.org x", ".example.org", vec!["www.example.org x", "example.org *.example.org"]),
            ("*.a.example.org", "*.example.org", vec!["*.a.example.org", "*.example.org"]),
            ("example.org b.example", "*.example.org", vec!["*.example.org"]),
            // The first has a name that both have.
            ("a.example.org", "a.example.org *.example.org", vec!["a.example.org", "*.example.org"]),
        ] {
            let text = format!(
                "server {{ server_name {names}; root /srv/www; }} server {{ server_name {others}; root /srv/x; }}"
            );
            let imported = import(&text).expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            let hosts: Vec<String> = rules.site.iter().map(|site| site.hosts.join(" ")).collect();
            assert_eq!(hosts, sites, "{names} {others}");
        }
    }

    #[test]
    fn a_server_that_leads_to_https_is_replaced_by_the_one_with_tls() {
        use crate::site::route::Route;
        let tls = "server { listen 443 ssl; server_name a.example www.a.example; root /srv/a; gzip on; }";
        for plain in [
            "server_name a.example www.a.example; return 301 https://$host$request_uri;",
            "server_name a.example www.a.example; return 301 https://a.example$request_uri;",
            "server_name www.a.example a.example; return https://$server_name$request_uri;",
            "server_name a.example www.a.example; rewrite ^(.*)$ https://$host$1 permanent;",
            "listen 80 default_server; server_name _; return 308 https://$host$request_uri;",
            // As certbot writes it.
            "if ($host = a.example) { return 301 https://$host$request_uri; } server_name a.example www.a.example; \
             return 404;",
        ] {
            let plain = format!("server {{ {plain} }}");
            for (text, root) in [
                (format!("{plain} {tls}"), ""),
                (format!("{tls} {plain}"), ""),
                (format!("http {{ root /srv/all; {plain} {tls} }}"), ""),
                // Beside others.
                (format!("server {{ root /srv; server_name b.example; }} {plain} {tls}"), "a.example"),
            ] {
                let imported = import(&text).expect("a configuration");
                let rules = Rules::parse(&imported.rules).expect("rules");
                let sites: Vec<_> = rules.site.iter().map(|site| site.hosts.join(" ")).collect();
                match root {
                    "" => assert!(
                        imported.rules.starts_with("# linerate-files serve --root /srv/a\n"),
                        "{text}"
                    ),
                    _ => assert_eq!(sites, ["a.example www.a.example"], "{text}"),
                }
                assert_eq!(sites.is_empty(), root.is_empty(), "{text}");
                assert_eq!(Route::of(rules.all_routes(), b"x", None, false), Route::Direct, "{text}");
                assert!(imported.left.iter().any(|(_, why)| why.ends_with(NOT_UPGRADED)), "{imported:?}");
            }
        }
        // Where there is nothing else, its redirect stays.
        let imported = import("server { server_name a.example; return 301 https://b.example$request_uri; }");
        let rules = Rules::parse(&imported.expect("a configuration").rules).expect("rules");
        let location = "https://b.example/x".to_owned();
        let to = Route::Redirected { status: 301, location };
        assert_eq!(Route::of(rules.all_routes(), b"x", None, false), to);
    }

    #[test]
    fn of_servers_of_one_name_one_is_a_site_and_the_others_are_told() {
        let first = "server { root /srv; server_name b.example; }";
        for (servers, root, hosts) in [
            (["root /1; server_name a.example;", "root /2; server_name a.example;"], "/1", "a.example"),
            (
                ["root /1; server_name a.example;", "root /2; listen 443 ssl; server_name a.example;"],
                "/2",
                "a.example",
            ),
            (["server_name a.example;", "root /2; server_name a.example a.example;"], "/2", "a.example"),
            (
                ["listen 443 ssl; server_name a.example;", "root /2; server_name .a.example;"],
                "/2",
                "a.example *.a.example",
            ),
            (
                ["listen 8443 ssl; root /1; server_name a.example;", "root /2; server_name a.example;"],
                "/2",
                "a.example",
            ),
            // The first leads all to the second.
            (
                [
                    "root /1; server_name a.example; return 301 https://a.example:8443$request_uri;",
                    "listen 8443 ssl; root /2; server_name a.example;",
                ],
                "/2",
                "a.example",
            ),
        ] {
            let [one, two] = servers;
            let text = format!("{first} server {{ {one} }} server {{ {two} }}");
            let imported = import(&text).expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            let sites: Vec<_> = rules
                .site
                .iter()
                .map(|site| (site.root.to_str().expect("text"), site.hosts.join(" ")))
                .collect();
            assert_eq!(sites, [(root, hosts.to_owned())], "{text}");
            assert!(
                imported.left.iter().any(|(_, why)| why.starts_with("server a.example: ")),
                "{imported:?}"
            );
        }
    }

    #[test]
    fn what_replaces_the_default_server_is_the_default_one() {
        let other = "server { server_name b.example; root /srv/b; }";
        let tls = "server { listen 443 ssl; server_name a.example; root /srv/a; }";
        let other_tls = "server { listen 443 ssl default_server; server_name b.example; root /srv/b; }";
        for said in ["return 301 https://a.example$request_uri;", "root /srv/a;"] {
            let plain = format!("server {{ server_name a.example; {said} }}");
            let default = format!("server {{ listen 80 default_server; server_name a.example; {said} }}");
            for (text, root) in [
                (format!("{plain} {other} {tls}"), "/srv/a"),
                (format!("{other} {default} {tls}"), "/srv/a"),
                (format!("{other} {plain} {tls}"), "/srv/b"),
                (format!("{default} {other_tls} {tls}"), "/srv/b"),
            ] {
                let imported = import(&text).expect("a configuration");
                let flag = format!("# linerate-files serve --root {root}\n");
                assert!(imported.rules.starts_with(&flag), "{text} {}", imported.rules);
            }
        }
    }

    #[test]
    fn a_site_lists_directories_only_if_its_server_does() {
        let server = |name: &str, said: &str| format!("server {{ server_name {name}; root /srv; {said} }}\n");
        let (on, off) = ("autoindex on;", "autoindex off;");
        for (http, first, second, third, flag, sites) in [
            ("", on, "", on, true, [Some(false), Some(true)]),
            ("", on, off, "", true, [Some(false), Some(false)]),
            ("", "", "", on, false, [None, Some(true)]),
            (on, "", "", off, true, [Some(true), Some(false)]),
        ] {
            let servers =
                server("a.example", first) + &server("b.example", second) + &server("c.example", third);
            let imported = import(&format!("http {{ {http} {servers} }}")).expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            let listings: Vec<_> = rules.site.iter().map(|site| site.listing).collect();
            assert_eq!(imported.rules.contains("serve --listing\n"), flag, "{servers}");
            assert_eq!(listings, sites, "{http} {servers}");
        }
    }

    #[test]
    fn a_field_that_rules_cannot_have_takes_nothing_else_along() {
        let imported = import(
            "server { root /srv; location / { add_header Vary Accept-Encoding; add_header Date x; gzip on;\n\
             try_files $uri /index.html; add_header X-Frame-Options DENY; add_header Access-Control-Allow-Origin *;\n\
             add_header Link '<a>; rel=x'; add_header link '<b>; rel=x'; } }",
        )
        .expect("a configuration");
        let rules = Rules::parse(&imported.rules).expect("rules");
        let policy = rules.policy(b"/x", false);
        let fields = "link: <a>; rel=x\r\nx-frame-options: DENY\r\naccess-control-allow-origin: *\r\n";
        assert_eq!((&*policy.fields, policy.compressed.is_some()), (fields, true));
        use crate::site::route::Route;
        let tries = Route::TryFiles(vec![b"x".to_vec(), b"index.html".to_vec()]);
        assert_eq!(Route::of(rules.all_routes(), b"x", None, false), tries);
        let left: Vec<&str> = imported.left.iter().map(|(_, why)| &**why).collect();
        assert_eq!(
            left,
            [
                "rule \"*\": \"Date\" is no field a rule may set",
                "add_header link <b>; rel=x: a rule has one field of each name"
            ]
        );
    }

    #[test]
    fn cache_control_consists_of_all_that_is_said_about_it() {
        for said in
            ["expires 30d; add_header Cache-Control public;", "add_header Cache-Control public; expires 30d;"]
        {
            let imported = import(&format!("server {{ root /srv; location /a {{ {said} }} }}")).expect("one");
            let rules = Rules::parse(&imported.rules).expect("rules");
            let fields = rules.policy(b"/a", false).fields;
            assert_eq!(fields, "cache-control: max-age=2592000, public\r\n", "{said}");
            assert!(imported.left.is_empty(), "{:?}", imported.left);
        }
    }

    #[test]
    fn what_nginx_keeps_from_strangers_is_told() {
        let first = "server { listen 80; listen [::]:80; root /srv; }";
        for (said, told) in [
            ("listen 443 ssl; ssl_verify_client on;", "ssl_verify_client on"),
            ("listen 443 ssl; ssl_verify_client optional;", "ssl_verify_client optional"),
            ("listen 443 ssl; ssl_verify_client off; ssl_protocols TLSv1.3;", ""),
            ("listen 443 ssl; ssl_crl /crl.pem;", "ssl_crl /crl.pem"),
            ("listen 443 ssl; ssl_ocsp leaf;", "ssl_ocsp leaf"),
            ("listen 443 ssl; ssl_ocsp off;", ""),
            ("listen 443 ssl; ssl_reject_handshake on;", "ssl_reject_handshake on"),
            ("", ""),
            ("listen 127.0.0.1:80;", "listen 127.0.0.1:80"),
            ("listen unix:/run/x;", "listen unix:/run/x"),
            ("listen 8081; listen 10.0.0.1:80;", "listen 8081"),
            ("listen 8081; listen 0.0.0.0:443 ssl;", ""),
        ] {
            let text = format!("{first} server {{ server_name a.example; root /srv/a; {said} }}");
            let left = import(&text).expect("a configuration").left;
            let left: Vec<&str> = left.iter().filter_map(|(_, why)| why.split(": ").next()).collect();
            assert_eq!(left.concat(), told, "{text}");
        }
        // What has no `listen` listens at port 80.
        let left =
            import("server { listen 8080; root /srv; } server { server_name a.example; root /srv/a; }");
        assert!(left.expect("a configuration").left[0].1.starts_with("server: "));
    }

    #[test]
    fn hosts_that_the_default_server_refuses_by_tls_are_refused() {
        use crate::site::rules::site_rule::UnknownHosts;
        let default = "server { listen 443 ssl default_server; server_name _; ssl_reject_handshake on; }";
        let site = "server { listen 443 ssl; server_name a.example; root /srv/a; gzip on; }";
        // Without TLS, it leads to https.
        let both = "server { listen 80 default_server; listen 443 ssl default_server; ssl_reject_handshake on; \
                    return 301 https://$host$request_uri; }";
        for (text, unknown, is_left) in [
            (format!("{both} {site}"), UnknownHosts::Refuse, true),
            (format!("{default} {site}"), UnknownHosts::Refuse, false),
            (format!("{site} {default}"), UnknownHosts::Refuse, false),
            (site.to_owned(), UnknownHosts::Serve, false),
            // Without sites, nothing would be refused.
            (default.to_owned(), UnknownHosts::Serve, true),
        ] {
            let imported = import(&text).expect("a configuration");
            let rules = Rules::parse(&imported.rules).expect("rules");
            assert_eq!((rules.unknown_hosts, !imported.left.is_empty()), (unknown, is_left), "{imported:?}");
        }
    }

    #[test]
    fn what_expires_off_takes_back_in_nginx_is_told() {
        for (said, is_left) in [
            ("expires 1d; location /a/ { expires off; }", true),
            ("location / { expires 1d; } location /a/ { expires off; }", true),
            ("location /a/ { expires off; } location /a { expires 1d; }", true),
            ("location / { expires off; } location /a/ { expires 1d; }", false),
            ("location /a/ { expires 1d; } location /b/ { expires off; }", false),
            ("location /a/ { expires 1d; location = /a/b { expires off; } }", true),
            ("location /a/ { expires off; } location ~ x$ { expires 1d; }", false),
            ("location ~ x$ { expires off; } location /a/ { expires 1d; }", true),
            ("location = /x { expires off; } location ~ x$ { expires 1d; }", true),
            ("location / { add_header Cache-Control public; } location /a/ { expires off; }", false),
            ("expires off;", false),
        ] {
            for http in ["", "expires off;"] {
                let text = format!("http {{ {http} server {{ root /srv; {said} }} }}");
                let left = import(&text).expect("a configuration").left;
                assert_eq!(left.len(), usize::from(is_left), "{text} {left:?}");
                assert!(left.iter().all(|(_, why)| why.starts_with("expires off: ")), "{left:?}");
            }
        }
    }

    #[test]
    fn queries_are_passed_on_where_nginx_passes_them_on() {
        use crate::site::route::Route;
        for (said, path, status, location) in [
            ("location = /r { return 302 https://o.example/login; }", "r", 302, "https://o.example/login"),
            ("location = /n { return 301 /new; }", "n", 301, "/new"),
            ("location = /n { return 301 /new$is_args$args; }", "n", 301, "/new?v=1"),
            ("return 307 https://o.example/x?a=b&$args;", "n", 307, "https://o.example/x?a=b&v=1"),
            ("return 301 https://o.example;", "n", 301, "https://o.example/"),
            ("return 301 https://o.example$request_uri;", "a/b", 301, "https://o.example/a/b?v=1"),
            ("return 301 https://o.example/x${uri};", "a/b", 301, "https://o.example/x/a/b"),
            ("rewrite ^ https://o.example$request_uri? permanent;", "a", 301, "https://o.example/a?v=1"),
            ("location = /q { rewrite ^ /x/f? permanent; }", "q", 301, "/x/f"),
            ("location = /q { rewrite ^ /x/f redirect; }", "q", 302, "/x/f?v=1"),
            ("rewrite ^/u/([0-9]+)$ /x/f?id=$1 permanent;", "u/7", 301, "/x/f?id=7&v=1"),
            ("rewrite ^/u/([0-9]+)$ /x/f?id=$1? permanent;", "u/7", 301, "/x/f?id=7"),
            ("rewrite ^/u/([0-9]+)$ https://o.example/$1;", "u/7", 302, "https://o.example/7?v=1"),
        ] {
            let imported = import(&format!("server {{ root /srv; {said} }}")).expect("a configuration");
            assert!(imported.left.is_empty(), "{said} {:?}", imported.left);
            let rules = Rules::parse(&imported.rules).expect("rules");
            let to = Route::Redirected { status, location: location.to_owned() };
            assert_eq!(Route::of(rules.all_routes(), path.as_bytes(), Some("v=1"), false), to, "{said}");
        }
        let imported = import("server { rewrite ^/u/([0-9]+)$ /x/f?id=$1 last; }").expect("a configuration");
        let rules = Rules::parse(&imported.rules).expect("rules");
        let file = Route::TryFiles(vec![b"x/f".to_vec()]);
        assert_eq!(Route::of(rules.all_routes(), b"u/7", Some("v=1"), false), file);
    }

    #[test]
    fn moves_that_rules_cannot_make_are_told() {
        for (said, is_left) in [
            ("rewrite ^/a$ /b; rewrite ^/b$ /c;", true),
            ("rewrite ^/a$ /b; rewrite ^/c$ /d;", false),
            ("rewrite ^/a$ /b; rewrite b /c;", true),
            ("rewrite ^/a$ /b; rewrite ^/bc?$ /d;", true),
            ("rewrite ^/a$ /b; rewrite ^/x|y /d;", true),
            ("rewrite ^/a$ /b last; rewrite ^/b$ /c;", false),
            ("rewrite ^/a$ /b permanent; rewrite ^/b$ /c;", false),
            ("rewrite ^/a/(.*)$ /$1; rewrite ^/b$ /c;", true),
            ("rewrite ^/a/(.*)$ /a/$1; rewrite ^/b$ /c;", false),
            ("rewrite ^/a$ https://o.example/; rewrite ^ /c;", false),
            ("location / { rewrite ^/a$ /b; rewrite ^/b$ /c; }", true),
            ("return 302 https://o.example/?to=$request_uri;", true),
            ("return 301 /$1;", true),
            ("return 301 /x$uri_x;", true),
            ("rewrite ^ https://$host/ permanent;", true),
        ] {
            let imported = import(&format!("server {{ root /srv; {said} }}")).expect("a configuration");
            assert!(Rules::parse(&imported.rules).is_ok(), "{}", imported.rules);
            assert_eq!(imported.left.len(), usize::from(is_left), "{said} {:?}", imported.left);
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
