//! A settings file: it is read, or one line says what is wrong, whatever it contains.
#![no_main]

use std::path::PathBuf;

use clap::Parser;
use libfuzzer_sys::fuzz_target;
use service::settings::{Error, try_parse_from};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Debug, clap::Subcommand)]
enum Commands {
    Serve {
        #[arg(long)]
        config: Option<PathBuf>,
        #[arg(long)]
        listen: Vec<String>,
        #[arg(long, default_value_t = 1)]
        cache_bytes: u64,
        #[arg(long)]
        quiet: bool,
    },
}

fuzz_target!(|text: &[u8]| {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, text).expect("a file");
    let arguments = ["links".into(), "serve".into(), "--config".into(), file.into_os_string()];
    match try_parse_from::<Cli>("links", "serve", arguments, |_| None) {
        Ok(cli) => drop(format!("{:?}", cli.command)),
        // clap's error, with its usage.
        Err(Error::Usage(_)) => {}
        Err(error) => assert!(!error.to_string().contains(['\n', '\r', '\u{1b}']), "{error}"),
    }
});
