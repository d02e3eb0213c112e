//! Parses connection strings.

use std::collections::HashMap;
use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{
    Binding, CONNECT_TIMEOUT, Conninfo, Endpoint, Host, Iam, InvalidConninfo, PORT, Role, Tls, TlsMode,
};

/// The longest text, in bytes. No real connection string is longer, and parsing external input needs a limit.
const LONGEST: usize = 16 << 10;

/// How many servers may be named.
const HOSTS: usize = 32;

/// Where libpq looks for sockets on Debian if no host is named.
const SOCKETS: &str = "/var/run/postgresql";

/// The known parameters. Those below the line are libpq's, and mean nothing here or always hold.
const KNOWN: [&str; 24] = [
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "passfile",
    "connect_timeout",
    "application_name",
    "options",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslnegotiation",
    "channel_binding",
    "target_session_attrs",
    "load_balance_hosts",
    "aws_iam_region",
    // --
    "fallback_application_name",
    "client_encoding",
    "keepalives",
    "sslsni",
    "gssencmode",
];

type Parameters = HashMap<&'static str, String>;

/// Parses either form.
pub fn conninfo(text: &str) -> Result<Conninfo, InvalidConninfo> {
    let url = ["postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    if text.len() > LONGEST || text.contains('\0') {
        return Err(if url.is_some() { InvalidConninfo::Url } else { InvalidConninfo::Keywords });
    }
    match url {
        Some(rest) => meaning(from_url(rest)?),
        None => meaning(keywords(text)?),
    }
}

/// `user:password@host:port,host/database?name=value&…`.
///
/// If a password contained an unencoded separator, a part of it could be taken for a host or a database, and would be
/// shown. If that is possible, the text is refused.
fn from_url(rest: &str) -> Result<Parameters, InvalidConninfo> {
    let wrong = InvalidConninfo::Url;
    if rest.chars().any(|letter| letter.is_whitespace() || letter.is_control() || letter == '#') {
        return Err(wrong);
    }
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains(['/', '@', ':']) || authority.matches('@').count() > 1 {
        return Err(wrong);
    }
    let mut parameters = Parameters::new();
    let hosts = match authority.split_once('@') {
        None => authority,
        Some((login, hosts)) => {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            if password.is_some_and(|password| password.contains(':')) {
                return Err(wrong);
            }
            if !user.is_empty() {
                parameters.insert("user", decoded(user)?);
            }
            if let Some(password) = password.filter(|password| !password.is_empty()) {
                parameters.insert("password", decoded(password)?);
            }
            hosts
        }
    };
    if !hosts.is_empty() {
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for host in hosts.split(',') {
            let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
                Some((address, "")) => (address, ""),
                Some((address, rest)) => (address, rest.strip_prefix(':').ok_or(wrong)?),
                None => host.split_once(':').unwrap_or((host, "")),
            };
            let name = decoded(name)?;
            if name.contains(',') || port.contains(':') {
                return Err(wrong);
            }
            names.push(name);
            ports.push(port);
        }
        parameters.insert("host", names.join(","));
        if ports.iter().any(|port| !port.is_empty()) {
            parameters.insert("port", ports.join(","));
        }
    }
    if !database.is_empty() {
        parameters.insert("dbname", decoded(database)?);
    }
    for pair in query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(wrong)?;
        // libpq accepts this parameter of JDBC too.
        let (name, value) =
            if (name, value) == ("ssl", "true") { ("sslmode", "require") } else { (name, value) };
        parameters.insert(known(&decoded(name)?)?, decoded(value)?);
    }
    Ok(parameters)
}

/// Decodes percent-encoded text. Refuses a % that encodes nothing, since it comes from a password that wasn't encoded.
fn decoded(text: &str) -> Result<String, InvalidConninfo> {
    let encodes = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !text.split('%').skip(1).all(encodes) {
        return Err(InvalidConninfo::Url);
    }
    let text = percent_decode_str(text).decode_utf8().map_err(|_| InvalidConninfo::Url)?;
    if text.contains('\0') { Err(InvalidConninfo::Url) } else { Ok(text.into_owned()) }
}

/// `host=db dbname='a b'`.
fn keywords(text: &str) -> Result<Parameters, InvalidConninfo> {
    let wrong = InvalidConninfo::Keywords;
    let mut parameters = Parameters::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=').ok_or(wrong)?;
        let mut letters = after.trim_start().chars();
        let mut value = String::new();
        let quoted = letters.as_str().starts_with('\'');
        if quoted {
            letters.next();
        }
        loop {
            match letters.next() {
                None if quoted => return Err(wrong),
                None => break,
                Some('\\') => value.push(letters.next().ok_or(wrong)?),
                Some('\'') if quoted => break,
                Some('\'') => return Err(wrong),
                Some(letter) if !quoted && letter.is_whitespace() => break,
                Some(letter) => value.push(letter),
            }
        }
        parameters.insert(known(name.trim())?, value);
        rest = letters.as_str().trim_start();
    }
    if parameters.is_empty() { Err(wrong) } else { Ok(parameters) }
}

fn known(name: &str) -> Result<&'static str, InvalidConninfo> {
    KNOWN.into_iter().find(|known| *known == name).ok_or(InvalidConninfo::Parameter)
}

fn meaning(mut given: Parameters) -> Result<Conninfo, InvalidConninfo> {
    let mut take = |name: &str| given.remove(name).filter(|value| !value.is_empty());
    let (mode, roots) = (take("sslmode").map(|mode| tls_mode(&mode)).transpose()?, take("sslrootcert"));
    // As in libpq: anybody has a certificate of the system's authorities, so only one for the host's name says
    // anything.
    let mode = match (roots.as_deref(), mode) {
        (Some("system"), None | Some(TlsMode::VerifyFull)) => Some(TlsMode::VerifyFull),
        (Some("system"), Some(_)) => return Err(InvalidConninfo::Value("sslmode")),
        (_, mode) => mode,
    };
    let tls = Tls {
        mode,
        roots: roots.filter(|file| file != "system").map(file),
        certificate: take("sslcert").map(file),
        key: take("sslkey").map(file),
        binding: match take("channel_binding").as_deref() {
            None | Some("prefer") => Binding::Prefer,
            Some("disable") => Binding::Disable,
            Some("require") => Binding::Require,
            Some(_) => return Err(InvalidConninfo::Value("channel_binding")),
        },
        direct: match take("sslnegotiation").as_deref() {
            None | Some("postgres") => false,
            Some("direct") => true,
            Some(_) => return Err(InvalidConninfo::Value("sslnegotiation")),
        },
    };
    if tls.certificate.is_some() != tls.key.is_some() {
        return Err(InvalidConninfo::KeyPair);
    }
    Ok(Conninfo {
        hosts: endpoints(take("host"), take("hostaddr"), take("port"))?,
        user: take("user"),
        password: take("password"),
        passfile: take("passfile").map(file),
        database: take("dbname"),
        tls,
        role: take("target_session_attrs").map(|role| self::role(&role)).transpose()?,
        connect_timeout: match take("connect_timeout") {
            None => CONNECT_TIMEOUT,
            Some(seconds) => match seconds.parse::<u32>() {
                // With 0, libpq waits forever; nothing here does.
                Ok(0) => CONNECT_TIMEOUT,
                Ok(seconds @ ..=3600) => Duration::from_secs(seconds.into()),
                _ => return Err(InvalidConninfo::Value("connect_timeout")),
            },
        },
        application_name: take("application_name"),
        options: take("options"),
        balanced: match take("load_balance_hosts").as_deref() {
            None | Some("disable") => false,
            Some("random") => true,
            Some(_) => return Err(InvalidConninfo::Value("load_balance_hosts")),
        },
        iam: match take("aws_iam_region") {
            None => None,
            Some(region) if region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => {
                Some(Iam { region })
            }
            Some(_) => return Err(InvalidConninfo::Value("aws_iam_region")),
        },
    })
}

fn endpoints(
    hosts: Option<String>,
    addresses: Option<String>,
    ports: Option<String>,
) -> Result<Vec<Endpoint>, InvalidConninfo> {
    let list = |text: Option<String>| -> Vec<String> {
        text.map(|text| text.split(',').map(str::to_owned).collect()).unwrap_or_default()
    };
    let (hosts, addresses, ports) = (list(hosts), list(addresses), list(ports));
    let count = hosts.len().max(addresses.len()).max(1);
    let fits = |list: &[String]| list.is_empty() || list.len() == count;
    if !fits(&hosts) || !fits(&addresses) || !(fits(&ports) || ports.len() == 1) || count > HOSTS {
        return Err(InvalidConninfo::Counts);
    }
    let at = |index: usize| {
        let address = addresses.get(index).filter(|address| !address.is_empty());
        let address = address.map(|address| address.parse::<IpAddr>()).transpose();
        let address = address.map_err(|_| InvalidConninfo::Value("hostaddr"))?;
        let host = match hosts.get(index).filter(|host| !host.is_empty()) {
            Some(host) if host.starts_with(['/', '@']) => Host::Unix(host.into()),
            Some(host) if is_shown(host) => Host::Tcp(host.clone()),
            Some(_) => return Err(InvalidConninfo::Value("host")),
            None => match address {
                Some(address) => Host::Tcp(address.to_string()),
                None => Host::Unix(SOCKETS.into()),
            },
        };
        let port = if ports.len() == 1 { ports.first() } else { ports.get(index) };
        let port = match port.filter(|port| !port.is_empty()) {
            None => PORT,
            Some(port) => match port.parse() {
                Ok(port @ 1..) => port,
                _ => return Err(InvalidConninfo::Value("port")),
            },
        };
        Ok(Endpoint { host, address, port })
    };
    (0..count).map(at).collect()
}

/// Whether a host's name can be shown, as all names are. A name with a separator in it may be the end of a password.
fn is_shown(host: &str) -> bool {
    host.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.:".contains(letter))
}

fn tls_mode(text: &str) -> Result<TlsMode, InvalidConninfo> {
    match text {
        "disable" => Ok(TlsMode::Disable),
        "allow" | "prefer" => Err(InvalidConninfo::Opportunistic),
        "require" => Ok(TlsMode::Require),
        "verify-ca" => Ok(TlsMode::VerifyCa),
        "verify-full" => Ok(TlsMode::VerifyFull),
        _ => Err(InvalidConninfo::Value("sslmode")),
    }
}

fn role(text: &str) -> Result<Role, InvalidConninfo> {
    match text {
        "any" => Ok(Role::Any),
        "read-write" => Ok(Role::ReadWrite),
        "read-only" => Ok(Role::ReadOnly),
        "primary" => Ok(Role::Primary),
        "standby" => Ok(Role::Standby),
        "prefer-standby" => Ok(Role::PreferStandby),
        _ => Err(InvalidConninfo::Value("target_session_attrs")),
    }
}

/// The file at a path. A relative path is in the directory of systemd's credentials, if the service has one.
fn file(path: String) -> PathBuf {
    match env::var_os("CREDENTIALS_DIRECTORY") {
        Some(directory) if Path::new(&path).is_relative() => Path::new(&directory).join(path),
        _ => path.into(),
    }
}
