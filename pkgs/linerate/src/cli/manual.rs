//! `completions` and `man` for this command line.

use std::path::PathBuf;

use serde::Serialize;
use service::manual::{CompletionsArgs, ManArgs};
use service::output::Closed;
use service::settings;

use super::{Cli, Context, Error, console};

/// A script, for programs.
#[derive(Debug, Serialize)]
struct Script {
    shell: String,
    script: String,
    /// Where the shell looks for it.
    place: &'static str,
}

/// Manual pages, for programs.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Pages {
    /// The main page.
    One { page: String },
    /// The pages of all commands.
    All { directory: PathBuf },
}

/// The command line, with the variables of the console's settings.
fn described() -> clap::Command {
    settings::command::<Cli>(console::NAME, console::NAME)
}

/// Prints a shell's completions. Explanations follow as a comment.
pub fn completions(args: &CompletionsArgs, context: &mut Context) -> Result<(), Error> {
    let mut script = Vec::new();
    args.print(described(), &mut script).map_err(Closed)?;
    let shell = args.shell.to_string();
    let place = match shell.as_str() {
        "bash" => "~/.local/share/bash-completion/completions/linerate",
        "zsh" => "a directory of $fpath, as _linerate",
        "fish" => "~/.config/fish/completions/linerate.fish",
        _ => "the shell's profile",
    };
    let script = Script { shell, script: String::from_utf8_lossy(&script).into_owned(), place };
    let explain = context.explain;
    context.output.show(&script, |Script { shell, script, place }, output| {
        output.raw().write_all(script.as_bytes()).map_err(Closed)?;
        if explain {
            output.line(format_args!(
                "# {shell} looks for this in {place}. It completes commands and options."
            ))?;
        }
        Ok(())
    })
}

/// Prints the manual page, or writes all pages. Explanations follow as a comment.
pub fn man(args: ManArgs, context: &mut Context) -> Result<(), Error> {
    let mut page = Vec::new();
    let printed = args.print(described(), &mut page);
    let pages = match args.directory {
        None => {
            printed.map_err(Closed)?;
            Pages::One { page: String::from_utf8_lossy(&page).into_owned() }
        }
        Some(directory) => match printed {
            Ok(()) => Pages::All { directory },
            Err(source) => return Err(Error::File { path: directory, source }),
        },
    };
    let explain = context.explain;
    context.output.show(&pages, |pages, output| {
        match pages {
            Pages::One { page } => {
                output.raw().write_all(page.as_bytes()).map_err(Closed)?;
                if explain {
                    output.line(".\\\" linerate man | man -l - shows it.")?;
                }
            }
            Pages::All { directory } if explain => {
                let path = directory.join("linerate.1");
                output.line(format_args!(
                    "A page for each command: man -l {} shows the main one.",
                    path.display()
                ))?;
            }
            Pages::All { .. } => {}
        }
        Ok(())
    })
}
