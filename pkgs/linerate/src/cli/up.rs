//! `up`: runs the services together, to try them out.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};

use super::{Context, Error};
use crate::up::child::LogLine;
use crate::up::port::ReassignedPort;
use crate::up::{self, Running};

/// Where data is kept.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where databases and served files are kept, for one `up` at a time. Default: $XDG_STATE_HOME/linerate or
    /// ~/.local/state/linerate.
    #[arg(long, value_name = "DIR", env = "LINERATE_UP_DATA")]
    pub data: Option<PathBuf>,
}

/// Runs links, files, api, the console and the files writer until one of them ends, or this process is told to stop.
pub fn run(args: Args, context: &mut Context) -> Result<(), Error> {
    let data = args.data.or_else(default_data).ok_or(Error::NoData)?;
    // no-color.org
    let colours = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let said = move |said: &LogLine| {
        let style = if colours { style(said.name) } else { Style::new() };
        // If standard error is closed, nobody reads the output.
        drop(writeln!(io::stderr(), "{style}{:<7}{style:#} {}", said.name, said.line));
    };
    let explain = context.explain;
    let output = &mut context.output;
    let ready = |running: &Running| {
        output
            .show(running, |running, output| {
                output.line("")?;
                for (name, value) in [
                    ("console", format!("http://{}/", running.console)),
                    ("links", format!("http://{}/hello", running.links)),
                    ("admin", format!("http://{}/", running.links_admin)),
                    ("files", format!("http://{}/", running.files)),
                    ("api", format!("http://{}/v1/users", running.api)),
                    ("data", running.data.display().to_string()),
                    ("programs", programs(&running.programs)),
                    ("token", running.token.clone()),
                ] {
                    output.line(format_args!("{name:<8}  {value}"))?;
                }
                for ReassignedPort { from, to } in &running.moved {
                    output.line(format_args!("port {from} is taken: {to} is used instead"))?;
                }
                output.line("")?;
                running.commands.iter().try_for_each(|command| output.line(command))?;
                if explain {
                    output.line(format_args!(
                        "linerate bench links=http://{}/hello files=http://{}/ api=http://{}/v1/users",
                        running.links, running.files, running.api
                    ))?;
                    output.line(
                        "\nEverything is on loopback and kept in the directory above; the console is for a browser, \
                                 and asks nobody on this machine to sign in. The token is new each time and replaces the last. Ctrl-C ends all of it, as the end of one does.",
                    )?;
                }
                output.line("")
            })
            .and_then(|()| output.flush())
            .map_err(|error: Error| io::Error::other(error.to_string()))
    };
    Ok(up::run(&data, ready, said)?)
}

/// The directory of the programs, with the command that adds it to `PATH` if it isn't there.
fn programs(directory: &Path) -> String {
    let shown = directory.display();
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|place| place == directory) {
        shown.to_string()
    } else {
        format!("{shown}  (PATH=$PATH:{shown} to run them by name)")
    }
}

/// A colour for each service.
fn style(name: &str) -> Style {
    let colour = match name {
        "links" => AnsiColor::Cyan,
        "files" => AnsiColor::Green,
        "console" => AnsiColor::Blue,
        "writer" => AnsiColor::Yellow,
        _ => AnsiColor::Magenta,
    };
    colour.on_default().bold()
}

/// None without a home: in a directory where everybody may create files, others may have prepared links.
fn default_data() -> Option<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("linerate"))
}
