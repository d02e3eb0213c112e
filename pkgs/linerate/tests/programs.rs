//! Tests completions and manual pages of all four programs, with a real bash and a real man.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use support::{binaries, skipped};

const PROGRAMS: [&str; 4] = ["linerate", "linerate-links", "linerate-files", "linerate-api"];

fn run(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().expect("a program");
    assert!(output.status.success(), "{program:?} {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The commands that `--help` lists, including nested ones: `key add`.
fn commands(program: &Path, above: &[&str]) -> Vec<Vec<String>> {
    let help = run(program, &[above, &["--help"]].concat());
    let listed =
        help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    // A command's name is indented by two columns, and wrapped text by more.
    let names =
        listed.lines().filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')));
    let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
    let mut found = Vec::new();
    for name in names {
        let path = [above, &[name]].concat();
        found.push(path.iter().map(|word| (*word).to_owned()).collect());
        found.extend(commands(program, &path));
    }
    found
}

/// The options that a command's `--help` lists.
fn options(program: &Path, command: &[&str]) -> BTreeSet<String> {
    let help = run(program, &[command, &["--help"]].concat());
    // An option's explanation is indented further, and may start with another option's name.
    let lines = help.lines().filter(|line| !line.starts_with("        "));
    let lines = lines.map(str::trim_start).filter(|line| line.starts_with('-'));
    let words = lines.flat_map(|line| line.split([' ', ',', '=', '[']));
    words.filter(|word| word.starts_with("--") && word.len() > 2).map(str::to_owned).collect()
}

/// The completions that bash offers for the last word, for several lines at once. Each line consists of words separated
/// by spaces.
fn offered(script: &str, program: &str, lines: &[String]) -> Vec<BTreeSet<String>> {
    // As readline calls it: the function that is registered for the program gets the program, the current word and the
    // previous word.
    let complete = r#"
        eval "$1"
        function=$(complete -p "$2" | sed -E 's/.* -F ([^ ]+) .*/\1/') || exit 1
        while IFS= read -r line; do
            read -ra COMP_WORDS <<<"$line"
            [[ $line != *' ' ]] || COMP_WORDS+=('')
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_LINE=$line COMP_POINT=${#line}
            "$function" "$2" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            echo "${COMPREPLY[@]}"
        done <<<"$3""#;
    let output = Command::new("bash")
        .args(["--norc", "-c", complete, "bash", script, program, &lines.join("\n")])
        .output()
        .expect("bash");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn bash_completes_every_command_and_every_option_of_every_program() {
    let Some(directory) = binaries() else { return };
    for program in PROGRAMS {
        let path = directory.join(program);
        let script = run(&path, &["completions", "bash"]);
        let commands = commands(&path, &[]);
        assert!(commands.len() > 3, "{program}: {commands:?}");
        let mut lines = Vec::new();
        for words in &commands {
            let (name, above) = words.split_last().expect("a name");
            let above: String = above.iter().map(|word| format!("{word} ")).collect();
            lines.push(format!("{program} {above}{name}"));
            lines.push(format!("{program} {above}{name} --"));
        }
        let answers = offered(&script, program, &lines);
        assert_eq!(answers.len(), lines.len(), "{program}");
        for (words, answers) in commands.iter().zip(answers.chunks(2)) {
            let name = words.last().expect("a name");
            assert!(answers[0].contains(name), "{program} {words:?}: {:?}", answers[0]);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let options = options(&path, &words);
            assert!(
                options.contains("--help") && options.is_subset(&answers[1]),
                "{program} {words:?}: {answers:?}"
            );
        }
    }
}

#[test]
fn every_command_has_a_manual_page_without_a_flaw() {
    let Some(directory) = binaries() else { return };
    let man = Command::new("man").arg("--version").output().is_ok();
    if !man {
        skipped("manual pages", "man is missing, so nothing formats them");
    }
    for program in PROGRAMS {
        let path = directory.join(program);
        let pages = tempfile::tempdir().expect("a directory");
        run(&path, &["man", pages.path().to_str().expect("UTF-8")]);
        let version = run(&path, &["--version"]);
        let mut names = vec![program.to_owned()];
        names.extend(commands(&path, &[]).iter().map(|words| format!("{program}-{}", words.join("-"))));
        for name in names {
            let path = pages.path().join(format!("{name}.1"));
            let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
            for section in ["NAME", "SYNOPSIS", "OPTIONS", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
                assert!(page.contains(&format!("\n.SH {section}\n")), "{name} has no {section}");
            }
            assert!(
                page.contains(&format!("\"{}\" \"Linerate Manual\"\n", version.trim())),
                "{name}: {page}"
            );
            assert!(!page.contains(".SH EXTRA"), "{name}: {page}");
            if name == program {
                assert!(page.contains("\n.SH EXAMPLES\n"), "{name} has no EXAMPLES");
            }
            if man {
                let mut shown = Command::new("man");
                shown.args(["--warnings=all", "--encoding=UTF-8", "-l"]).arg(&path).env("MANWIDTH", "80");
                let output = shown.output().expect("man");
                assert!(output.status.success() && output.stderr.is_empty(), "{name}: {output:?}");
                let text = String::from_utf8_lossy(&output.stdout);
                // The page doesn't repeat the description from NAME.
                let about = text.lines().skip_while(|line| *line != "NAME").nth(1).expect("NAME");
                let about = about.split(" - ").nth(1).unwrap_or_default().trim();
                let described = text.split("\nDESCRIPTION\n").nth(1).unwrap_or_default().trim_start();
                assert!(about.len() < 4 || !described.starts_with(about), "{name} says twice: {about}");
            }
        }
    }
}
