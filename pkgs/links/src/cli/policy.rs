//! The rules for codes and targets, as flags of the server and of commands that use its database.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};

use clap::builder::RangedU64ValueParser;
use service::socket::Address;
use url::{Host, Url};

use crate::code::{self, CodePolicy};
use crate::target::{self, TargetPolicy};

/// The default address of the public listener.
const LISTEN: &str = "127.0.0.1:8080";

/// The start of short URLs, and the rules for codes and targets.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Codes and targets")]
pub struct PolicyArgs {
    /// What short URLs begin with.
    #[command(flatten)]
    pub public: PublicArgs,

    /// Length of a random code, in characters.
    #[arg(long, value_name = "N", env = "LINERATE_LINKS_CODE_LENGTH", default_value_t = code::LENGTH,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=code::MAX_BYTES as u64))]
    pub code_length: usize,

    /// The characters of random codes: ASCII letters, digits, - and _, without repeats.
    #[arg(long, value_name = "CHARS", env = "LINERATE_LINKS_CODE_ALPHABET", default_value = code::ALPHABET,
          value_parser = alphabet, allow_hyphen_values = true)]
    pub code_alphabet: String,

    /// A custom code to refuse, in any case, besides the built-in ones; may be repeated.
    #[arg(long = "reserve", value_name = "WORD", env = "LINERATE_LINKS_RESERVE", value_delimiter = ',')]
    pub reserved: Vec<String>,

    /// An allowed URL scheme of targets; may be repeated.
    #[arg(long = "scheme", value_name = "SCHEME", env = "LINERATE_LINKS_SCHEME", value_delimiter = ',',
          default_values = target::SCHEMES, value_parser = scheme)]
    pub schemes: Vec<String>,

    /// The longest target, in bytes.
    #[arg(long, value_name = "BYTES", env = "LINERATE_LINKS_MAX_TARGET_BYTES", default_value_t = target::MAX_BYTES,
          value_parser = RangedU64ValueParser::<usize>::new().range(16..=65_536))]
    pub max_target_bytes: usize,

    /// Another host of this shortener. Targets there are refused, since they would loop: HOST at any port, or
    /// HOST:PORT; may be repeated.
    #[arg(long = "own-host", value_name = "HOST", env = "LINERATE_LINKS_OWN_HOST", value_delimiter = ',')]
    pub own_hosts: Vec<String>,
}

/// Where short URLs begin.
#[derive(Clone, Debug, clap::Args)]
pub struct PublicArgs {
    /// The start of short URLs. Targets there are refused, since they would loop. Default: where the server listens.
    #[arg(long, value_name = "URL", env = "LINERATE_LINKS_PUBLIC_URL", value_parser = public_url)]
    pub public_url: Option<Url>,

    /// Where the server answers redirects: IP:PORT, :PORT, unix:PATH or systemd:NAME; may be repeated.
    #[arg(long, value_name = "ADDR", env = "LINERATE_LINKS_LISTEN", default_value = LISTEN, value_delimiter = ',',
          help_heading = None)]
    pub listen: Vec<Address>,
}

impl Default for PublicArgs {
    fn default() -> Self {
        Self { public_url: None, listen: vec![LISTEN.parse().expect("the constant is an address")] }
    }
}

impl Default for PolicyArgs {
    /// The values without any flags, for commands that take no codes or targets.
    fn default() -> Self {
        Self {
            public: PublicArgs::default(),
            code_length: code::LENGTH,
            code_alphabet: code::ALPHABET.to_owned(),
            reserved: Vec::new(),
            schemes: target::SCHEMES.map(str::to_owned).into(),
            max_target_bytes: target::MAX_BYTES,
            own_hosts: Vec::new(),
        }
    }
}

impl PublicArgs {
    /// The start of short URLs, without a final slash.
    pub fn base(&self) -> String {
        match &self.public_url {
            Some(url) => url.as_str().trim_end_matches('/').to_owned(),
            None => format!("http://{}", self.address()),
        }
    }

    /// The short URL of a code.
    pub fn short_url(&self, code: &str) -> String {
        format!("{}/{code}", self.base())
    }

    /// An address at which this machine reaches the server.
    fn address(&self) -> SocketAddr {
        let address = self.listen.iter().find_map(reached);
        address.unwrap_or_else(|| LISTEN.parse().expect("the constant is an address"))
    }

    /// The hosts at which a target would loop. If the public URL has no port, both 443 and 80 are assumed to lead here.
    fn own_hosts(&self) -> Vec<String> {
        let Some(url) = &self.public_url else { return vec![self.address().to_string()] };
        let host = url.host_str().unwrap_or_default();
        match url.port() {
            Some(port) => vec![format!("{host}:{port}")],
            None => vec![format!("{host}:443"), format!("{host}:80")],
        }
    }
}

/// The address at which this machine reaches a listener.
fn reached(address: &Address) -> Option<SocketAddr> {
    let Address::Tcp(mut address) = *address else { return None };
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    Some(address)
}

impl PolicyArgs {
    /// Also treats these addresses as this shortener's own, if it has no public URL.
    pub fn also_at(&mut self, addresses: &[Address]) {
        if self.public.public_url.is_none() {
            self.own_hosts.extend(addresses.iter().filter_map(reached).map(|address| address.to_string()));
        }
    }

    /// The rules for codes.
    pub fn codes(&self) -> CodePolicy {
        CodePolicy {
            length: self.code_length,
            alphabet: self.code_alphabet.clone(),
            reserved: self.reserved.clone(),
        }
    }

    /// The rules for targets.
    pub fn targets(&self) -> TargetPolicy {
        TargetPolicy {
            schemes: self.schemes.clone(),
            max_bytes: self.max_target_bytes,
            own_hosts: self.public.own_hosts().into_iter().chain(self.own_hosts.iter().cloned()).collect(),
        }
    }
}

/// Why a setting is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Refused {
    #[error("only ASCII letters, digits, - and _ can be in a code")]
    Character,
    #[error("each character must be there once")]
    Repeat,
    #[error("at least two characters are needed")]
    TooFew,
    #[error("a scheme is a letter, then letters, digits, +, - or .")]
    Scheme,
    #[error("an http or https URL without query and fragment is needed")]
    PublicUrl,
}

fn alphabet(text: &str) -> Result<String, Refused> {
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err(Refused::Character);
    }
    if text.bytes().collect::<HashSet<_>>().len() != text.len() {
        return Err(Refused::Repeat);
    }
    if text.len() < 2 {
        return Err(Refused::TooFew);
    }
    Ok(text.to_owned())
}

/// RFC 3986, section 3.1.
fn scheme(text: &str) -> Result<String, Refused> {
    let letters_first = text.starts_with(|c: char| c.is_ascii_alphabetic());
    if letters_first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(Refused::Scheme)
    }
}

fn public_url(text: &str) -> Result<Url, Refused> {
    let url = Url::parse(text).map_err(|_| Refused::PublicUrl)?;
    let web = matches!(url.scheme(), "http" | "https");
    let host = !matches!(url.host(), None | Some(Host::Domain("")));
    if web && host && url.query().is_none() && url.fragment().is_none() {
        Ok(url)
    } else {
        Err(Refused::PublicUrl)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Alone {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn parse(args: &[&str]) -> Result<PolicyArgs, clap::Error> {
        Alone::try_parse_from(std::iter::once("test").chain(args.iter().copied())).map(|alone| alone.policy)
    }

    #[test]
    fn the_defaults_are_valid_and_refuse_the_public_host() {
        let policy = parse(&[]).expect("defaults");
        assert_eq!(policy.codes().length, 7);
        assert_eq!(policy.targets().schemes, ["http", "https"]);
        assert_eq!(policy.targets().own_hosts, ["127.0.0.1:8080"]);
        assert_eq!(policy.public.short_url("a"), "http://127.0.0.1:8080/a");
        for (listen, base) in [
            ("127.0.0.1:9000", "http://127.0.0.1:9000"),
            (":9000", "http://127.0.0.1:9000"),
            ("[::1]:9000", "http://[::1]:9000"),
            ("systemd:http", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(parse(&["--listen", listen]).expect("valid").public.base(), base, "{listen}");
        }
    }

    #[test]
    fn own_hosts_are_the_public_one_and_those_named() {
        let policy = parse(&["--public-url", "https://S.example/x/", "--own-host", "Go.example,to.example"])
            .expect("valid");
        assert_eq!(policy.targets().own_hosts, ["s.example:443", "s.example:80", "Go.example", "to.example"]);
        assert_eq!(policy.public.short_url("a"), "https://s.example/x/a");
    }

    #[test]
    fn bad_settings_are_refused() {
        for args in [
            ["--code-length", "0"],
            ["--code-length", "65"],
            ["--code-alphabet", "aa"],
            ["--code-alphabet", "a"],
            ["--code-alphabet", "a/b"],
            ["--scheme", "1x"],
            ["--scheme", ""],
            ["--max-target-bytes", "0"],
            ["--public-url", "ftp://example.com"],
            ["--public-url", "https://example.com/?q"],
            ["--public-url", "example.com"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
