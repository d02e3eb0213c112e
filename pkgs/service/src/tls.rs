//! Flags for TLS.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::socket::Address;

/// HTTP/2 without TLS.
#[derive(Clone, Copy, Debug, Args)]
pub struct H2cArgs {
    /// Also speaks HTTP/2 without TLS, at every --listen, to clients that start with it: proxies that are configured to
    /// (h2c with prior knowledge). HTTP/1.1 still works there.
    #[arg(long)]
    pub h2c: bool,
}

/// Where to serve TLS, and with which certificates.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// Where to serve by TLS: HTTP/1.1, HTTP/2 and HTTP/3; may be repeated.
    #[arg(long, value_name = "ADDR", value_delimiter = ',', requires = "cert", requires = "key")]
    pub tls_listen: Vec<Address>,

    /// The certificates.
    #[command(flatten)]
    pub certificates: Certificates<Public>,

    /// Disables HTTP/3.
    #[arg(long)]
    pub no_http3: bool,
}

impl TlsArgs {
    /// The certificates and their keys.
    #[must_use]
    pub fn files(&self) -> &[CertificateFiles] {
        &self.certificates.files
    }

    /// Whether HTTP/3 is enabled.
    #[must_use]
    pub fn http3(&self) -> bool {
        !self.no_http3 && !self.tls_listen.is_empty()
    }
}

/// The admin listener's certificates. With any, it serves only TLS.
pub type AdminTlsArgs = Certificates<Admin>;

/// A certificate in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by those that signed it.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Flags that name certificates and flags that name their keys, in the same order.
#[derive(Clone, Debug)]
pub struct Certificates<F> {
    /// The pairs, in the order of the flags.
    pub files: Vec<CertificateFiles>,
    flags: std::marker::PhantomData<F>,
}

/// A pair of flags.
pub trait Flags: Args {
    /// The flags' names.
    const NAMES: [&'static str; 2];

    /// The flags' values: certificates, and keys.
    fn named(self) -> [Vec<PathBuf>; 2];
}

/// `--cert` and `--key`.
#[derive(Clone, Debug, Args)]
pub struct Public {
    /// The certificate and those that signed it, in PEM; reloaded when it changes. May be repeated, each with a --key:
    /// the first is for clients that name no host, or a host that no certificate is for.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    cert: Vec<PathBuf>,

    /// The certificate's private key, in PEM; one for each certificate, in the same order.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    key: Vec<PathBuf>,
}

/// `--admin-cert` and `--admin-key`.
#[derive(Clone, Debug, Args)]
pub struct Admin {
    /// Serves --admin only over TLS, with this certificate and those that signed it, in PEM; reloaded when it changes.
    /// May be repeated, each with an --admin-key.
    #[arg(long, value_name = "FILE")]
    admin_cert: Vec<PathBuf>,

    /// The private key of --admin-cert, in PEM; one for each certificate, in the same order.
    #[arg(long, value_name = "FILE")]
    admin_key: Vec<PathBuf>,
}

impl Flags for Public {
    const NAMES: [&'static str; 2] = ["--cert", "--key"];

    fn named(self) -> [Vec<PathBuf>; 2] {
        [self.cert, self.key]
    }
}

impl Flags for Admin {
    const NAMES: [&'static str; 2] = ["--admin-cert", "--admin-key"];

    fn named(self) -> [Vec<PathBuf>; 2] {
        [self.admin_cert, self.admin_key]
    }
}

impl<F> Certificates<F> {
    /// The scheme of URLs: `https` with certificates, `http` without.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.files.is_empty() { "http" } else { "https" }
    }
}

impl<F: Flags> FromArgMatches for Certificates<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let [chains, keys] = F::from_arg_matches(matches)?.named();
        if chains.len() != keys.len() {
            let ([cert, key], [certs, keys]) = (F::NAMES, [chains.len(), keys.len()]);
            let said = format!(
                "{certs} of {cert}, but {keys} of {key}: each certificate goes with a key, in their order"
            );
            return Err(clap::Error::raw(ErrorKind::WrongNumberOfValues, said));
        }
        let files = chains.into_iter().zip(keys).map(|(chain, key)| CertificateFiles { chain, key });
        Ok(Self { files: files.collect(), flags: std::marker::PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<F: Flags> Args for Certificates<F> {
    fn augment_args(command: Command) -> Command {
        F::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        F::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;
    use crate::settings;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Serve,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Serve {
        Serve(Settings),
    }

    #[derive(Debug, Args)]
    struct Settings {
        #[arg(long)]
        config: Option<PathBuf>,
        #[command(flatten)]
        tls: TlsArgs,
        #[command(flatten)]
        admin: AdminTlsArgs,
    }

    fn parse(args: &str, variables: &[(&str, &str)]) -> Result<Settings, String> {
        let args = ["x", "serve"].into_iter().chain(args.split_whitespace());
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, is)| OsString::from(is));
        settings::try_parse_from::<Cli>("x", "serve", args, variable)
            .map(|Cli { command: Serve::Serve(settings) }| settings)
            .map_err(|error| error.to_string())
    }

    fn pairs(files: &[CertificateFiles]) -> String {
        let pairs = files.iter().map(|pair| format!("{} {}", pair.chain.display(), pair.key.display()));
        pairs.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn certificates_and_keys_are_paired_in_order() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("x.toml");
        std::fs::write(&file, "cert = ['a', 'b']\nkey = ['k', 'l']\nadmin.cert = 'c'\nadmin.key = 'm'")
            .expect("a file");
        let config = format!("--config {}", file.display());
        type Pairs = [(&'static str, &'static str)];
        let cases: [(&str, &Pairs, &str, &str); 5] = [
            ("", &[], "", ""),
            ("--tls-listen :1 --cert a --cert b --key k --key l", &[], "a k, b l", ""),
            (
                "--tls-listen :1 --cert a --key k --cert b --key l --admin-cert c --admin-key m",
                &[],
                "a k, b l",
                "c m",
            ),
            ("--tls-listen :1", &[("LINERATE_X_CERT", "a,b"), ("LINERATE_X_KEY", "k,l")], "a k, b l", ""),
            (&format!("--tls-listen :1 {config}"), &[], "a k, b l", "c m"),
        ];
        for (args, variables, public, admin) in cases {
            let settings = parse(args, variables).expect("settings");
            assert_eq!(
                (&*pairs(settings.tls.files()), &*pairs(&settings.admin.files)),
                (public, admin),
                "{args}"
            );
        }
    }

    #[test]
    fn a_certificate_is_not_left_unused_wherever_it_is_named() {
        let needed = "the following required arguments were not provided: --tls-listen <ADDR>";
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(&file, "cert = 'a'\nkey = 'k'").expect("written");
        let variables = [("LINERATE_X_CERT", "a"), ("LINERATE_X_KEY", "k")];
        assert_eq!(parse("--cert a --key k", &[]).expect_err("no address"), needed);
        assert_eq!(parse("", &variables).expect_err("no address"), needed);
        assert_eq!(
            parse(&format!("--config {}", file.path().display()), &[]).expect_err("no address"),
            needed
        );
    }

    #[test]
    fn a_certificate_without_its_key_is_refused_in_one_line() {
        for (args, said) in [
            ("--tls-listen :1 --cert a --cert b --key k", "2 of --cert, but 1 of --key: "),
            ("--tls-listen :1 --cert a --key k --key l", "1 of --cert, but 2 of --key: "),
            ("--admin-cert a", "1 of --admin-cert, but 0 of --admin-key: "),
            ("--admin-key a", "0 of --admin-cert, but 1 of --admin-key: "),
        ] {
            let error = parse(args, &[]).expect_err(args);
            assert!(error.starts_with(said) && error.lines().count() == 1, "{args}: {error}");
        }
    }
}
