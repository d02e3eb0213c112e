//! Where redirects and rewrites lead.

/// What ends in the client's query.
const QUERIES: [&str; 6] =
    ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string", "&$args", "&$query_string"];

/// A path or URL of nginx as a template of rules, and whether it ends in the client's query, which the template does
/// not have. None if it has variables that rules have not.
pub fn target(text: &str) -> Option<(String, bool)> {
    let before = QUERIES.iter().find_map(|query| text.strip_suffix(*query));
    let whole = text.strip_suffix("$request_uri").filter(|before| !before.contains('?'));
    let mut parts = before.or(whole).unwrap_or(text).split('$');
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let ends_name = |char: char| !char.is_ascii_alphanumeric() && char != '_';
        let (name, rest) = match part.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None if part.starts_with(|char: char| char.is_ascii_digit()) => part.split_at(1),
            None => part.split_at(part.find(ends_name).unwrap_or(part.len())),
        };
        match name {
            "uri" | "document_uri" => made.push_str("$path"),
            "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9" => made.extend(["$", name]),
            _ => return None,
        }
        made.push_str(rest);
    }
    if whole.is_some() {
        made.push_str("$path");
    }
    // A slash follows the host; the path then comes without its own.
    if let Some(behind) = made.strip_prefix("https://").or_else(|| made.strip_prefix("http://")) {
        let path = behind.find(['/', '?', '#', '$']).map_or("", |at| &behind[at..]);
        let has_slash = path.starts_with(['/', '$']) && !path.starts_with("$path");
        let host_end = made.len() - path.len();
        if !has_slash {
            made.insert(host_end, '/');
        }
    }
    Some((made, before.or(whole).is_some()))
}

/// Whether a template has parts of the path.
pub fn has_captures(template: &str) -> bool {
    template.replace("$path", "").contains('$')
}

/// Whether a `rewrite` to it is a redirect without saying so.
pub fn is_url(to: &str) -> bool {
    ["http://", "https://", "$scheme"].iter().any(|start| to.starts_with(start))
}

/// Whether a redirect leads to the same host by TLS.
pub fn is_upgrade(to: &str) -> bool {
    ["https://$host", "https://$http_host", "https://$server_name"].iter().any(|start| to.starts_with(start))
}

/// Whether an expression may match what a `rewrite` makes, as far as their beginnings show.
pub fn may_match(regex: &str, to: &str) -> bool {
    let Some(regex) = regex.strip_prefix('^').filter(|regex| !regex.contains('|')) else { return true };
    let end = regex.find(|char: char| "\\^$.?*+()[]{}".contains(char)).unwrap_or(regex.len());
    let (mut known, rest) = (regex[..end].to_owned(), &regex[end..]);
    // A quantifier makes the last character optional.
    if rest.starts_with(['?', '*', '{']) {
        known.pop();
    }
    let to = to.split('?').next().unwrap_or_default();
    match to.split_once('$') {
        None => to.starts_with(&known),
        Some((made, _)) => made.starts_with(&known) || known.starts_with(made),
    }
}
