use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::*;
use crate::logs::{Format, LogArgs};

#[derive(Debug, Parser)]
#[command(name = "linerate-links", version)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Serves the links
    Serve(Serve),
    Add {
        target: String,
        #[arg(long)]
        config: Option<PathBuf>,
        #[arg(long)]
        database: Option<PathBuf>,
        #[arg(long, env = "LINKS_OWN", default_value = "nothing")]
        own: String,
    },
    Get {
        target: String,
    },
}

#[derive(Debug, Args)]
struct Serve {
    /// A file of settings
    #[arg(long, short)]
    config: Option<PathBuf>,

    /// Where to listen
    #[arg(long, default_value = "127.0.0.1:1")]
    listen: Vec<SocketAddr>,

    /// Where the links are
    #[arg(long)]
    database: PathBuf,

    /// How much to keep in memory, in bytes
    ///
    /// More is faster.
    #[arg(long, default_value_t = 1)]
    cache_bytes: u64,

    /// Whether to follow
    #[arg(long)]
    follow: bool,

    /// With a variable of its own
    #[arg(long, env = "LINKS_OWN")]
    own: Option<String>,

    /// With a secret in it
    #[arg(long, env = "LINKS_SECRET", hide_env_values = true, value_parser = secret::<Url>())]
    secret_url: Option<Url>,

    /// With another beside it
    #[arg(long, requires = "client")]
    issuer: Option<String>,

    /// Beside another
    #[arg(long)]
    client: Option<String>,

    /// Without the other
    #[arg(long, conflicts_with = "issuer")]
    anonymous: bool,

    #[command(flatten)]
    logs: LogArgs,
}

/// A value that is only `good`.
#[derive(Clone, Debug)]
struct Url;

impl std::str::FromStr for Url {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "good" { Ok(Self) } else { Err("expected a URL") }
    }
}

/// Variables and their values.
type Env = [(&'static str, &'static str)];
/// Arguments.
type Line = [&'static str];

/// Parses `serve` with `args`, where FILE in them or in `env` stands for a file that contains `toml`.
fn parse(toml: &str, env: &[(&str, &str)], args: &[&str]) -> Result<Serve, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("links.toml");
    std::fs::write(&file, toml).expect("a file");
    let real = |text: &str| text.replace("FILE", file.to_str().expect("UTF-8"));
    let args = ["linerate-links", "serve"].into_iter().chain(args.iter().copied()).map(real);
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| real(value).into());
    match try_parse_from::<Cli>("links", "serve", args, env) {
        Ok(Cli { command: Commands::Serve(serve) }) => Ok(serve),
        Ok(other) => panic!("not serve: {other:?}"),
        Err(error) => Err(error.to_string().replace(file.to_str().expect("UTF-8"), "FILE")),
    }
}

#[test]
fn the_later_place_counts() {
    const FILE: &Line = &["--database", "x", "--config", "FILE"];
    let toml = "cache-bytes = 2";
    let env = [("LINERATE_LINKS_CACHE_BYTES", "3")];
    let with_flag = [FILE, &["--cache-bytes", "4"]].concat();
    let cases: [(&str, &Env, &Line, u64); 5] = [
        ("", &[], FILE, 1),
        (toml, &[], FILE, 2),
        (toml, &env, FILE, 3),
        (toml, &env, &with_flag, 4),
        (toml, &[("LINERATE_LINKS_CACHE_BYTES", "")], FILE, 2),
    ];
    for (toml, env, args, bytes) in cases {
        assert_eq!(parse(toml, env, args).expect("parses").cache_bytes, bytes, "{toml} {env:?} {args:?}");
    }
}

#[test]
fn settings_can_be_checked_and_nothing_else_done() {
    let read = |args: &Line| {
        let args = [&["linerate-links", "serve", "--database", "x"], args].concat();
        read::<Cli>("links", "serve", args, |_| None).map(|read| read.check)
    };
    assert!(!read(&[]).expect("parses"));
    assert!(read(&["--check"]).expect("parses"));
    assert!(read(&["--check", "--cache-bytes", "many"]).is_err());
    // The flag is only for the command line: in a file or a variable, it would end every start.
    let error = parse("database = 'x'\ncheck = true", &[], &["--config", "FILE"]).expect_err("no setting");
    assert!(error.contains("check: there is no such setting"), "{error}");
    parse("", &[("LINERATE_LINKS_CHECK", "many")], &["--database", "x"]).expect("not looked at");
}

#[test]
fn the_file_is_named_by_flag_or_environment() {
    let toml = "database = 'y'";
    let env: &Env = &[("LINERATE_LINKS_CONFIG", "FILE")];
    let cases: [(&Env, &Line); 5] = [
        (&[], &["--config", "FILE"]),
        (&[], &["--config=FILE"]),
        (&[], &["-c", "FILE"]),
        (env, &[]),
        (&[("LINERATE_LINKS_CONFIG", "/nowhere")], &["--follow", "-cFILE"]),
    ];
    for (env, args) in cases {
        let serve = parse(toml, env, args).unwrap_or_else(|error| panic!("{env:?} {args:?}: {error}"));
        assert_eq!(serve.database, PathBuf::from("y"));
    }
}

#[test]
fn every_kind_of_value_is_read() {
    let toml = "database = 'y'\ncache_bytes = 2\nfollow = true\nlisten = ['127.0.0.1:2', '[::1]:3']\n\
                [log]\nlevel = 'warn'\nformat = 'json'";
    let env: &Env = &[
        ("LINERATE_LINKS_DATABASE", "y"),
        ("LINERATE_LINKS_CACHE_BYTES", "2"),
        ("LINERATE_LINKS_FOLLOW", "true"),
        ("LINERATE_LINKS_LISTEN", "127.0.0.1:2, [::1]:3"),
        ("LINERATE_LINKS_LOG_LEVEL", "warn"),
        ("LINERATE_LINKS_LOG_FORMAT", "json"),
    ];
    for serve in [parse(toml, &[], &["-c", "FILE"]), parse("", env, &[])] {
        let serve = serve.expect("parses");
        assert_eq!(serve.database, PathBuf::from("y"));
        assert_eq!((serve.cache_bytes, serve.follow), (2, true));
        assert_eq!(
            serve.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["127.0.0.1:2", "[::1]:3"]
        );
        assert_eq!(serve.logs, LogArgs { log_level: "warn".into(), log_format: Format::Json });
    }
}

#[test]
fn flags_replace_lists_rather_than_add_to_them() {
    let env = [("LINERATE_LINKS_LISTEN", "127.0.0.1:2,127.0.0.1:3")];
    let serve = parse("", &env, &["--database", "x", "--listen", "127.0.0.1:4"]).expect("parses");
    assert_eq!(serve.listen, ["127.0.0.1:4".parse().expect("address")]);
}

#[test]
fn what_a_setting_requires_and_excludes_may_be_in_any_place() {
    const ARGS: &Line = &["--database", "x", "-c", "FILE"];
    const MISSING: &str = "the following required arguments were not provided: --client <CLIENT>";
    let issuer: &Line = &["--issuer", "i"];
    let anonymous: &Line = &["--anonymous"];
    let both = "issuer = 'i'\nclient = 'c'";
    let cases: [(&str, &Env, &Line, Option<&str>); 13] = [
        ("client = 'c'", &[], issuer, None),
        ("", &[("LINERATE_LINKS_CLIENT", "c")], issuer, None),
        (both, &[], &[], None),
        ("issuer = 'i'", &[("LINERATE_LINKS_CLIENT", "c")], &[], None),
        ("", &[], issuer, Some(MISSING)),
        ("issuer = 'i'", &[], &[], Some(MISSING)),
        ("", &[("LINERATE_LINKS_ISSUER", "i")], &[], Some(MISSING)),
        (both, &[], anonymous, Some("FILE: issuer cannot be used with --anonymous")),
        (
            both,
            &[("LINERATE_LINKS_ANONYMOUS", "true")],
            &[],
            Some("FILE: issuer cannot be used with LINERATE_LINKS_ANONYMOUS"),
        ),
        (
            "client = 'c'\nanonymous = true",
            &[],
            issuer,
            Some("FILE: anonymous cannot be used with --issuer <ISSUER>"),
        ),
        (
            both,
            &[],
            &["--issuer", "i", "--issuer", "j"],
            Some("the argument '--issuer <ISSUER>' cannot be used multiple times"),
        ),
        // What is not set excludes nothing.
        ("client = 'c'\nanonymous = false", &[], issuer, None),
        ("client = 'c'\nanonymous = true", &[("LINERATE_LINKS_ANONYMOUS", "false")], issuer, None),
    ];
    for (toml, env, args, wrong) in cases {
        let error = parse(toml, env, &[ARGS, args].concat()).err();
        assert_eq!(error.as_deref(), wrong, "{toml:?} {env:?} {args:?}");
    }
}

#[test]
fn an_option_before_the_subcommand_may_have_its_name_as_value() {
    #[derive(Debug, Parser)]
    struct Cli {
        #[arg(long)]
        machine: Option<String>,
        #[command(subcommand)]
        command: Commands,
    }
    for args in [&["--machine", "serve", "serve"][..], &["--machine", "serve", "serve", "--follow"]] {
        let args = ["linerate"].into_iter().chain(args.iter().copied());
        let env =
            |name: &str| -> Option<OsString> { (name == "LINERATE_LINKS_DATABASE").then(|| "x".into()) };
        let Cli { machine, command } = try_parse_from("links", "serve", args, env).expect("parses");
        assert_eq!(machine.as_deref(), Some("serve"));
        assert!(matches!(command, Commands::Serve(Serve { database, .. }) if database.as_os_str() == "x"));
    }
}

#[test]
fn settings_that_are_read_again_have_the_same_checksum() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "database = 'x'\nissuer = 'i'\nclient = 'c'\nfollow = true\ncache-bytes = 2")
        .expect("written");
    let read = || {
        let args =
            ["linerate-links".as_ref(), "serve".as_ref(), "--config".as_ref(), file.path().as_os_str()];
        read::<Cli>("links", "serve", args, |_| None).expect("parses").fingerprint
    };
    let first = read();
    assert!((0..10).all(|_| read() == first));
}

#[test]
fn a_tip_is_told_apart_from_what_is_wrong() {
    let error = parse("", &[], &["--databse", "x"]).expect_err("a slip");
    assert_eq!(error, "unexpected argument '--databse' found; tip: a similar argument exists: '--database'");
}

#[test]
fn what_is_wrong_is_said_on_one_line_and_where() {
    const ARGS: &Line = &["--database", "x", "-c", "FILE"];
    let bad_env: &Env = &[("LINERATE_LINKS_CACHE_BYTES", "many")];
    let bad_flag = [ARGS, &["--cache-bytes", "few"]].concat();
    let cases: [(&str, &Env, &Line, &str); 13] = [
        ("cache = 1", &[], ARGS, "FILE: cache: there is no such setting"),
        ("[log]\nlevels = 'x'", &[], ARGS, "FILE: log-levels: there is no such setting"),
        ("config = 'x'", &[], ARGS, "FILE: config: there is no such setting"),
        ("help = true", &[], ARGS, "FILE: help: there is no such setting"),
        ("cache-bytes = [1]", &[], ARGS, "FILE: cache-bytes: it takes one value"),
        ("listen = [['x']]", &[], ARGS, "FILE: listen: its values are nested"),
        ("cache-bytes = 1\ncache_bytes = 2", &[], ARGS, "FILE: cache-bytes: it is there twice"),
        ("a = 1\nb = ", &[], ARGS, "FILE: line 2: "),
        (
            "cache-bytes = -1",
            &[],
            ARGS,
            "FILE: cache-bytes: invalid value '-1' for '--cache-bytes <CACHE_BYTES>': ",
        ),
        (
            "[log]\nformat = 'xml'",
            &[],
            ARGS,
            "FILE: log-format: invalid value 'xml' for '--log-format <FORMAT>' [",
        ),
        ("cache-bytes = 1", bad_env, ARGS, "LINERATE_LINKS_CACHE_BYTES: invalid value 'many' for "),
        ("cache-bytes = 'x'", bad_env, &bad_flag, "invalid value 'few' for '--cache-bytes <CACHE_BYTES>': "),
        (
            "",
            &[],
            &["-c", "FILE"],
            "the following required arguments were not provided: --database <DATABASE>",
        ),
    ];
    for (toml, env, args, start) in cases {
        let error = parse(toml, env, args).expect_err(toml);
        assert!(error.starts_with(start), "{error}\ndoes not start with\n{start}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = parse("", &[], &["--database", "x", "-c", "/nowhere"]).expect_err("no file");
    assert!(error.starts_with("cannot read /nowhere: "), "{error}");
}

#[test]
fn a_subcommand_without_the_setting_has_no_file_and_no_variables() {
    let env =
        |name: &str| -> Option<OsString> { (name == "LINERATE_LINKS_CONFIG").then(|| "/nowhere".into()) };
    let cli: Cli = try_parse_from("links", "serve", ["linerate-links", "get", "x"], env).expect("parses");
    assert!(matches!(cli.command, Commands::Get { target } if target == "x"));
}

#[test]
fn help_names_each_variable_once_and_shows_the_programs_defaults() {
    let env =
        |name: &str| -> Option<OsString> { (name == "LINERATE_LINKS_CACHE_BYTES").then(|| "987".into()) };
    for flag in ["-h", "--help"] {
        let args = ["linerate-links", "serve", flag];
        let help = try_parse_from::<Cli>("links", "serve", args, env).expect_err("help");
        let Error::Usage(help) = help else { panic!("{help}") };
        assert!(!help.use_stderr());
        // Long lines are wrapped.
        let help = crate::exit::one_line(&help.to_string());
        assert!(help.starts_with("Serves the links Usage:"), "{help}");
        for name in ["CONFIG", "LISTEN", "DATABASE", "CACHE_BYTES", "FOLLOW", "LOG_LEVEL", "LOG_FORMAT"] {
            let variable = format!("[env: LINERATE_LINKS_{name}]");
            assert_eq!(help.matches(&variable).count(), 1, "{variable} in\n{help}");
        }
        assert!(help.contains("[default: 1]") && !help.contains("987"), "{help}");
    }
}

#[test]
fn a_credential_is_read_as_a_variable_would_be() {
    let directory = tempfile::tempdir().expect("a directory");
    for (content, value) in [("2", Some("2")), ("2\n", Some("2")), ("2\n\n", Some("2\n")), ("", Some(""))] {
        std::fs::write(directory.path().join("LINERATE_LINKS_CACHE_BYTES"), content).expect("a file");
        let found = credential(directory.path(), "LINERATE_LINKS_CACHE_BYTES");
        assert_eq!(found.as_deref(), value.map(OsStr::new), "{content:?}");
    }
    assert_eq!(credential(directory.path(), "LINERATE_LINKS_DATABASE"), None);
}

#[test]
fn a_variable_of_ones_own_may_be_a_credential_too() {
    let serve = parse("", &[("LINKS_OWN", "x")], &["--database", "x"]).expect("settings");
    assert_eq!(serve.own.as_deref(), Some("x"));
}

#[test]
fn another_subcommand_takes_what_it_shares_from_the_same_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("links.toml");
    let file = file.to_str().expect("UTF-8");
    let add = |env: &[(&str, &str)], args: &[&str]| {
        let args = ["linerate-links", "add", "https://example.com"].into_iter().chain(args.iter().copied());
        let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
        match try_parse_from::<Cli>("links", "serve", args, env) {
            Ok(Cli { command: Commands::Add { target, database, own, .. } }) => {
                assert_eq!(target, "https://example.com");
                Ok((database.map(|path| path.display().to_string()), own))
            }
            Ok(other) => panic!("not add: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    };
    let found = |database: &str, own: &str| Ok((Some(database.to_owned()), own.to_owned()));
    // The server's own settings aren't an error in the file.
    std::fs::write(file, "database = 'file'\ncache-bytes = 2\nown = 'file'").expect("a file");
    assert_eq!(add(&[], &["--config", file]), found("file", "file"));
    assert_eq!(add(&[], &["--config", file, "--own", "flag"]), found("file", "flag"));
    assert_eq!(add(&[("LINERATE_LINKS_CONFIG", file)], &[]), found("file", "file"));
    assert_eq!(add(&[("LINKS_OWN", "")], &["--config", file]), found("file", "file"), "empty is unset");
    assert_eq!(add(&[("LINKS_OWN", "")], &[]), Ok((None, "nothing".to_owned())), "empty is unset");
    std::fs::write(file, "databases = 'file'").expect("a file");
    assert_eq!(add(&[], &["--config", file]), Err(format!("{file}: databases: there is no such setting")));
}

#[test]
fn a_secret_is_in_no_message() {
    let database = ["--database", "x"];
    let value = "postgres://ada:hunter2@db/x";
    let toml = format!("secret-url = \"{value}\"");
    let cases: [(&str, &Env, Vec<&str>, &str); 4] = [
        (
            "",
            &[],
            vec!["--secret-url", value],
            "invalid value for '--secret-url <SECRET_URL>': expected a URL",
        ),
        ("", &[("LINKS_SECRET", value)], vec![], "LINKS_SECRET: expected a URL"),
        (&toml, &[], vec!["--config", "FILE"], "FILE: secret-url: expected a URL"),
        ("", &[], vec![value], "unexpected argument '…' found"),
    ];
    for (toml, env, args, said) in cases {
        let args = [&database[..], &args].concat();
        assert_eq!(parse(toml, env, &args).map(drop), Err(said.to_owned()), "{args:?}");
    }
    assert!(parse("secret-url = \"good\"", &[], &["--database", "x", "--config", "FILE"]).is_ok());
}
