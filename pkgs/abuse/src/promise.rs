//! The memory limits that the services' modules set. They are read from the modules, so that the test checks the real
//! limit.

use std::fs;

use crate::program::repository;

/// `MemoryMax` of a service, in bytes, as its module calculates it for these settings (`("max-connections", 300)`).
///
/// # Panics
/// When the module has no limit, or one that can't be read here.
#[must_use]
pub fn memory_max(service: &str, settings: &[(&str, u64)]) -> u64 {
    let path = repository().join(format!("modules/services/{service}.nix"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Comments may contain semicolons.
    let text: String = text
        .lines()
        .map(|line| line.split_once('#').map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n");
    granted(&text, settings).unwrap_or_else(|why| panic!("MemoryMax in {}: {why}", path.display()))
}

/// The same from a module's text.
fn granted(text: &str, settings: &[(&str, u64)]) -> Result<u64, String> {
    // The service's own unit comes before those of its helpers.
    let expression = value_of(text, "MemoryMax").ok_or("there is none")?;
    let mut reader = Reader { text, settings, rest: tokens(expression)?, depth: 0 };
    let sum = reader.sum()?;
    if reader.rest.is_empty() { Ok(sum) } else { Err(format!("{:?} is left over", reader.rest)) }
}

/// The text between `NAME =` and the semicolon.
fn value_of<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.match_indices(name).find_map(|(at, _)| {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '-') {
            return None;
        }
        let rest = text[at + name.len()..].trim_start().strip_prefix('=')?;
        rest.split_once(';').map(|(value, _)| value)
    })
}

/// Numbers, names and operators, in reverse.
fn tokens(expression: &str) -> Result<Vec<String>, String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut joined = false;
    for letter in expression.chars() {
        let named = letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_') && joined;
        match tokens.last_mut() {
            Some(last) if named && joined => last.push(letter),
            _ if named || "()+*/-".contains(letter) => tokens.push(letter.into()),
            _ if letter.is_whitespace() => {}
            _ => return Err(format!("{letter:?} is not known here: {expression}")),
        }
        joined = named;
    }
    tokens.reverse();
    Ok(tokens)
}

/// Evaluates expressions, as far as modules use them.
struct Reader<'t> {
    text: &'t str,
    settings: &'t [(&'t str, u64)],
    rest: Vec<String>,
    depth: usize,
}

impl Reader<'_> {
    fn next_is(&mut self, operator: &str) -> bool {
        let is = self.rest.last().is_some_and(|token| token == operator);
        if is {
            self.rest.pop();
        }
        is
    }

    fn sum(&mut self) -> Result<u64, String> {
        let mut sum = self.product()?;
        loop {
            if self.next_is("+") {
                sum += self.product()?;
            } else if self.next_is("-") {
                sum = sum.checked_sub(self.product()?).ok_or("less than nothing")?;
            } else {
                return Ok(sum);
            }
        }
    }

    fn product(&mut self) -> Result<u64, String> {
        let mut product = self.value()?;
        loop {
            if self.next_is("*") {
                product *= self.value()?;
            } else if self.next_is("/") {
                product = product.checked_div(self.value()?).ok_or("by nothing")?;
            } else {
                return Ok(product);
            }
        }
    }

    fn value(&mut self) -> Result<u64, String> {
        let token = self.rest.pop().ok_or("it ends early")?;
        if token == "(" {
            let sum = self.sum()?;
            return if self.next_is(")") { Ok(sum) } else { Err("a parenthesis stays open".into()) };
        }
        if let Ok(number) = token.parse() {
            return Ok(number);
        }
        if let Some(setting) = token.strip_prefix("cfg.settings.") {
            let known = self.settings.iter().find(|(name, _)| *name == setting);
            return known.map(|(_, value)| *value).ok_or_else(|| format!("the test sets no {setting}"));
        }
        let value = value_of(self.text, &token).ok_or_else(|| format!("{token} is not known here"))?;
        if self.depth == 8 {
            return Err(format!("{token} leads nowhere"));
        }
        let mut inner =
            Reader { text: self.text, settings: self.settings, rest: tokens(value)?, depth: self.depth + 1 };
        let sum = inner.sum()?;
        if inner.rest.is_empty() { Ok(sum) } else { Err(format!("{:?} is left over in {token}", inner.rest)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_reckoned_as_nix_does() {
        let text = "let mebibyte = 1024 * 1024; each = (8 + 8) * 512;\n in { default = 64 * mebibyte;\n
            serviceConfig = { Restart = true; MemoryMax =\n 2 * cfg.settings.cache-bytes + cfg.settings.max-connections * each\n + 512 * mebibyte; };\n
            other = { serviceConfig = { MemoryMax = \"512M\"; }; }; }";
        let settings = [("cache-bytes", 1000), ("max-connections", 10)];
        assert_eq!(granted(text, &settings), Ok(2000 + 10 * 8192 + (512 << 20)));
        assert!(granted(text, &settings[..1]).is_err_and(|why| why.contains("max-connections")));
        assert!(granted("MemoryMax = lib.max 1 2;", &[]).is_err());
        assert!(granted("x = 1;", &[]).is_err());
    }

    #[test]
    fn the_modules_of_links_and_api_grant_a_sum() {
        let settings = [("cache-bytes", 1 << 20), ("max-connections", 100), ("max-batch-bytes", 8 << 20)];
        for service in ["links", "api"] {
            let most = memory_max(service, &settings);
            assert!((64 << 20..8 << 30).contains(&most), "{service}: {most}");
        }
    }
}
