//! `completions` and `man`: generate shell completions and manual pages from a command line's definition.
//!
//! Manual pages are generated from nothing else. `after_long_help`, the end of `--help`, is split into sections: a
//! paragraph `Exit codes: …` becomes EXIT STATUS of every page; lines below `Examples:` become EXAMPLES of the main
//! page and of the pages of the commands that they show; other paragraphs go to NOTES.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The programs with a manual page, for SEE ALSO.
const PROGRAMS: [&str; 4] = ["linerate", "linerate-api", "linerate-files", "linerate-links"];

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell to generate completions for.
    pub shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write the page of each command into this directory instead of printing the main one.
    pub directory: Option<PathBuf>,
}

impl CompletionsArgs {
    /// Prints the shell completions of a command line.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn print(&self, mut command: Command, mut output: impl Write) -> io::Result<()> {
        let name = command.get_name().to_owned();
        // Generated into memory first, since the generator panics if its output is closed.
        let mut script = Vec::new();
        if self.shell == Shell::Bash {
            // clap_complete writes a hyphen in the program's name in two ways, so the options of commands are not found
            // (clap issue 6421, 4.6.11). With an underscore instead, only the last line needs a correction: it names
            // the program that the completions are for.
            let plain = name.replace('-', "_");
            clap_complete::generate(self.shell, &mut command, plain.as_str(), &mut script);
            let text = String::from_utf8(script).map_err(io::Error::other)?;
            let mended = text.replace(&format!(" -o default {plain}\n"), &format!(" -o default {name}\n"));
            script = mended.into_bytes();
        } else {
            clap_complete::generate(self.shell, &mut command, name, &mut script);
        }
        output.write_all(&script)
    }
}

impl ManArgs {
    /// Prints the manual page of a command line, or writes the pages of all commands.
    ///
    /// # Errors
    /// Those of the directory if one is given, otherwise those of `output`.
    pub fn print(&self, command: Command, mut output: impl Write) -> io::Result<()> {
        let mut program = command.disable_help_subcommand(true);
        program.build();
        let afterword = Afterword::of(&program);
        match &self.directory {
            None => output.write_all(&page(&program, None, &program, &afterword)?),
            Some(directory) => {
                fs::create_dir_all(directory)?;
                write_all(directory, &program, None, &program, &afterword)
            }
        }
    }
}

/// Writes the pages of a command and of its subcommands.
fn write_all(
    directory: &std::path::Path,
    program: &Command,
    parent: Option<&Command>,
    command: &Command,
    afterword: &Afterword,
) -> io::Result<()> {
    fs::write(directory.join(format!("{}.1", name(command))), page(program, parent, command, afterword)?)?;
    for below in shown(command) {
        write_all(directory, program, Some(command), below, afterword)?;
    }
    Ok(())
}

/// The subcommands that are not hidden.
fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set())
}

/// A page's name, such as `linerate-links-key-add`.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The end of `--help`, by sections of a manual page.
#[derive(Debug, Default)]
struct Afterword {
    exit_status: Option<String>,
    /// Lines that are shown unchanged: commands, followed by indented explanations.
    examples: Vec<String>,
    notes: Vec<String>,
}

impl Afterword {
    fn of(command: &Command) -> Self {
        let mut afterword = Self::default();
        let text = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        for paragraph in text.split("\n\n").map(str::trim_end).filter(|paragraph| !paragraph.is_empty()) {
            if let Some(codes) = paragraph.strip_prefix("Exit codes:") {
                afterword.exit_status = Some(codes.trim().to_owned());
            } else if let Some(lines) = paragraph.strip_prefix("Examples:") {
                afterword.examples.extend(lines.lines().filter(|line| !line.is_empty()).map(str::to_owned));
            } else {
                afterword.notes.push(paragraph.to_owned());
            }
        }
        afterword
    }

    /// The examples that start with these words, or all examples if one of them runs several commands.
    fn examples_of(&self, words: &str) -> Vec<&str> {
        let mut found = Vec::new();
        let mut taken = false;
        let indent = |line: &str| line.len() - line.trim_start().len();
        let first = self.examples.first().map_or(0, |line| indent(line));
        for line in &self.examples {
            // A more indented line explains the command above it.
            if indent(line) == first {
                let rest = line.trim_start().strip_prefix(words);
                taken = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            }
            if taken {
                found.push(&line[first.min(line.len())..]);
            }
        }
        found
    }
}

/// A manual page.
fn page(
    program: &Command,
    parent: Option<&Command>,
    command: &Command,
    afterword: &Afterword,
) -> io::Result<Vec<u8>> {
    let version = program.get_version().unwrap_or_default();
    let man = Man::new(command.clone())
        .source(format!("{} {version}", program.get_name()))
        .manual("Linerate Manual");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    section(&mut page, |section| man.render_name_section(section))?;
    section(&mut page, |section| man.render_synopsis_section(section))?;
    let mut own = Roff::new();
    if let Some(text) = description(command) {
        own.control("SH", ["DESCRIPTION"]);
        paragraphs(&mut own, &text);
    }
    flush(&mut page, &mut own);
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        section(&mut page, |section| man.render_options_section(section))?;
    }
    if shown(command).next().is_some() {
        section(&mut page, |section| man.render_subcommands_section(section))?;
    }
    if let Some(codes) = &afterword.exit_status {
        own.control("SH", ["EXIT STATUS"]);
        paragraphs(&mut own, codes);
    }
    let notes = match parent {
        None => afterword.notes.clone(),
        Some(_) => Afterword::of(command).notes,
    };
    if !notes.is_empty() {
        own.control("SH", ["NOTES"]);
        paragraphs(&mut own, &notes.join("\n\n"));
    }
    let words = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let examples = afterword.examples_of(words);
    if !examples.is_empty() {
        own.control("SH", ["EXAMPLES"]).control("nf", []);
        for line in examples {
            own.text([roman(line)]);
        }
        own.control("fi", []);
    }
    let mut others: Vec<&str> = parent.map(name).into_iter().chain(shown(command).map(name)).collect();
    others.extend(PROGRAMS.into_iter().filter(|other| *other != name(command)));
    let mut seen = Vec::new();
    others.retain(|other| {
        let new = !seen.contains(other);
        seen.push(*other);
        new
    });
    own.control("SH", ["SEE ALSO"]);
    let mut references = Vec::new();
    for (index, other) in others.iter().enumerate() {
        let end = if index + 1 == others.len() { "(1)" } else { "(1), " };
        references.extend([bold(*other), roman(end)]);
    }
    own.text(references);
    flush(&mut page, &mut own);
    Ok(page)
}

/// The long description without the short one, which NAME has.
fn description(command: &Command) -> Option<String> {
    let long = command.get_long_about()?.to_string();
    let short = command.get_about().map(ToString::to_string).unwrap_or_default();
    let first = long.split("\n\n").next().unwrap_or_default();
    // clap removes the final full stop of a doc comment's short description.
    let same = first.trim().trim_end_matches('.') == short.trim().trim_end_matches('.');
    let rest = if same { long[first.len()..].trim() } else { long.trim() };
    (!rest.is_empty()).then(|| rest.to_owned())
}

/// Adds text. Empty lines separate paragraphs.
fn paragraphs(roff: &mut Roff, text: &str) {
    for (index, paragraph) in text.split("\n\n").enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        for line in paragraph.lines() {
            roff.text([roman(line.trim())]);
        }
    }
}

/// Adds a section without roff's preamble, which the title has already written.
fn section(page: &mut Vec<u8>, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut section = Vec::new();
    render(&mut section)?;
    let start = section.windows(4).position(|text| text == b".SH ").unwrap_or(0);
    page.extend_from_slice(&section[start..]);
    Ok(())
}

/// Writes our own sections, and clears them.
fn flush(page: &mut Vec<u8>, own: &mut Roff) {
    let text = std::mem::take(own).to_roff();
    page.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::process::Command as Process;

    use clap::{CommandFactory, Parser};

    use super::*;

    /// Serves what is asked for.
    #[derive(Debug, Parser)]
    #[command(
        name = "linerate-a-b",
        version = "1.2.3",
        propagate_version = true,
        after_long_help = "Exit codes: 0 done, 1 not done.\n\nExamples:\n  linerate-a-b serve --listen :80\n      \
                           .everybody's\n  linerate-a-b key add me\n\nCommands work on the database."
    )]
    struct Cli {
        #[command(subcommand)]
        command: Commands,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Commands {
        /// Serve.
        ///
        /// Until it is told to end.
        Serve {
            /// Where.
            #[arg(long, env = "LINERATE_TEST_LISTEN")]
            listen: Option<String>,
            /// How.
            #[arg(long, value_parser = ["fast", "slow"])]
            pace: Option<String>,
        },
        /// Keys.
        #[command(subcommand)]
        Key(Key),
    }

    #[derive(Debug, clap::Subcommand)]
    enum Key {
        /// Adds one.
        Add { name: String },
        /// Takes one away.
        RmAll,
        /// As it was called.
        #[command(hide = true)]
        Revoke,
    }

    /// What a real bash offers to complete the last word of a line.
    fn offered(script: &str, words: &[&str]) -> Vec<String> {
        // Called as readline does: the function that is registered for the program gets the program, the current word,
        // and the word before it.
        let complete = r#"
            eval "$1"; shift
            function=$(complete -p "$1" | sed -E 's/.* -F ([^ ]+) .*/\1/') || exit 1
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
            "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}""#;
        let output = Process::new("bash")
            .args(["--norc", "-c", complete, "bash", script])
            .args(words)
            .output()
            .expect("bash");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{words:?}");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn script(shell: Shell) -> String {
        let mut script = Vec::new();
        CompletionsArgs { shell }.print(Cli::command(), &mut script).expect("a script");
        String::from_utf8(script).expect("UTF-8")
    }

    #[test]
    fn bash_completes_commands_options_and_values_of_a_program_with_hyphens() {
        let script = script(Shell::Bash);
        let cases: [(&[&str], &[&str]); 6] = [
            (&["linerate-a-b", "s"], &["serve"]),
            (&["linerate-a-b", "serve", "--l"], &["--listen"]),
            (&["linerate-a-b", "serve", "--pace", ""], &["fast", "slow"]),
            (&["linerate-a-b", "key", "a"], &["add"]),
            (&["linerate-a-b", "key", "rm"], &["rm-all"]),
            (&["linerate-a-b", "key", "rm-all", "--v"], &["--version"]),
        ];
        for (words, expected) in cases {
            assert_eq!(offered(&script, words), expected, "{words:?}");
        }
    }

    #[test]
    fn other_shells_complete_the_program_by_its_name() {
        for (shell, line) in
            [(Shell::Zsh, "#compdef linerate-a-b"), (Shell::Fish, "complete -c linerate-a-b ")]
        {
            let script = script(shell);
            assert!(script.lines().any(|found| found.starts_with(line)), "{shell}: {script}");
            assert!(script.contains("listen") && script.contains("rm-all"), "{shell}: {script}");
        }
    }

    #[test]
    fn every_command_has_a_page_with_all_its_sections() {
        let directory = tempfile::tempdir().expect("a directory");
        let args = ManArgs { directory: Some(directory.path().to_owned()) };
        args.print(Cli::command(), io::sink()).expect("written");
        let page = |name: &str| fs::read_to_string(directory.path().join(name)).expect("a page");
        let main = page("linerate-a-b.1");
        let serve = page("linerate-a-b-serve.1");
        let add = page("linerate-a-b-key-add.1");
        assert!(!directory.path().join("linerate-a-b-key-revoke.1").exists());
        let sections = |page: &str| -> Vec<String> {
            let titles = page.lines().filter_map(|line| line.strip_prefix(".SH "));
            titles.map(|title| title.trim_matches('"').to_owned()).collect()
        };
        assert_eq!(
            sections(&main),
            ["NAME", "SYNOPSIS", "OPTIONS", "SUBCOMMANDS", "EXIT STATUS", "NOTES", "EXAMPLES", "SEE ALSO"]
        );
        let all = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"];
        assert_eq!(sections(&serve), all);
        for page in [&main, &serve, &add] {
            let title = page.lines().find(|line| line.starts_with(".TH ")).expect("a title");
            assert!(title.contains(r#""linerate-a-b 1.2.3" "Linerate Manual""#), "{title}");
            assert_eq!(page.matches(".ie").count(), 1, "one preamble: {page}");
        }
        assert!(!main.contains(".SH DESCRIPTION"), "it would say again what NAME says: {main}");
        assert_eq!(serve.matches("Serve").count(), 1, "{serve}");
        assert!(serve.contains("Until it is told to end"), "{serve}");
        assert!(serve.contains(r"\fBLINERATE_TEST_LISTEN\fR environment variable"), "{serve}");
        assert!(serve.contains("    .everybody"), "{serve}");
        assert!(add.contains(r"linerate\-a\-b key add me") && !add.contains("serve"), "{add}");
        assert!(add.contains(r"\fBlinerate\-a\-b\-key\fR(1)"), "{add}");
    }
}
