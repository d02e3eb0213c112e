//! The files that `nginx -T` prints, each in place of every `include` that names it.
//!
//! It prints each file once, after a line with its path. The first is the one that includes the others.

use std::collections::BTreeMap;

use super::escaped;
use super::syntax::{self, Directive, Error};
use crate::site::pattern::Pattern;

/// How deeply files may include one another; two or three levels are usual.
const MAX_DEPTH: usize = 16;

/// The most directives in all, since a file may be included many times.
const MAX_DIRECTIVES: usize = 1 << 16;

/// What is before the path of each file; a colon is after it.
const MARK: &str = "# configuration file ";

/// A printed file.
struct File<'t> {
    path: &'t str,
    /// The line where its text starts.
    line: usize,
    text: &'t str,
}

/// All files but the first.
struct Included<'t> {
    /// By path, in which order a pattern includes them.
    files: BTreeMap<&'t str, Vec<Directive>>,
    /// The first one's directory, with its slash: paths are relative to it.
    place: &'t str,
}

/// Parses a configuration, with the files that it includes if `nginx -T` printed it.
///
/// # Errors
/// [`Error`], for the first mistake, or if its includes make too much of it.
pub fn parse(text: &str) -> Result<Vec<Directive>, Error> {
    let printed = files(text);
    let Some((main, others)) = printed.split_first() else { return syntax::parse(text, 1) };
    let place = main.path.rfind('/').map_or("", |end| &main.path[..=end]);
    let mut included = Included { files: BTreeMap::new(), place };
    for file in others {
        included.files.insert(file.path, syntax::parse(file.text, file.line)?);
    }
    let (mut all, mut room) = (Vec::new(), MAX_DIRECTIVES);
    included.put(&syntax::parse(main.text, main.line)?, 0, &mut room, &mut all)?;
    Ok(all)
}

/// The files that `nginx -T` printed; none if it did not print this text.
fn files(text: &str) -> Vec<File<'_>> {
    let (mut files, mut start, mut end) = (Vec::<File<'_>>::new(), 0, 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        end += line.len();
        let path = line.trim_end().strip_prefix(MARK).and_then(|rest| rest.strip_suffix(':'));
        if let Some(path) = path.filter(|path| path.contains('/')) {
            start = end;
            files.push(File { path, line: number + 1, text: "" });
        } else if let Some(file) = files.last_mut() {
            file.text = &text[start..end];
        } else if !line.trim().is_empty() && !line.starts_with("nginx: ") {
            // It says only that the test is successful before the first file, and that on standard error.
            break;
        }
    }
    files
}

impl Included<'_> {
    /// Adds directives to `all`, those of the included files instead of each `include`. `room` is for so many.
    fn put(
        &self,
        directives: &[Directive],
        depth: usize,
        room: &mut usize,
        all: &mut Vec<Directive>,
    ) -> Result<(), Error> {
        for directive in directives {
            let Directive { line, name, arguments, block } = directive;
            let fails = |why| Error { line: *line, why };
            *room =
                room.checked_sub(1).ok_or(fails("with its includes, it has more than 65536 directives"))?;
            let files = match &arguments[..] {
                [pattern] if name == "include" => self.named(pattern),
                _ => None,
            };
            if let Some(files) = files {
                if depth == MAX_DEPTH {
                    return Err(fails("files include one another too deep"));
                }
                files.into_iter().try_for_each(|file| self.put(file, depth + 1, room, all))?;
                continue;
            }
            let mut copy =
                Directive { line: *line, name: name.clone(), arguments: arguments.clone(), block: None };
            if let Some(block) = block {
                self.put(block, depth, room, copy.block.insert(Vec::new()))?;
            }
            all.push(copy);
        }
        Ok(())
    }

    /// The files that `include` names; none if it names one that was not printed.
    fn named(&self, pattern: &str) -> Option<Vec<&Vec<Directive>>> {
        let place = if pattern.starts_with('/') { "" } else { self.place };
        let path = format!("{place}{pattern}");
        if !path.contains(['*', '?', '[']) {
            return self.files.get(&*path).map(|file| vec![file]);
        }
        let pattern = Pattern::regex(&expression(&path)).ok()?;
        let files = self.files.iter().filter(|(path, _)| pattern.matches(path.as_bytes()));
        Some(files.map(|(_, file)| file).collect())
    }
}

/// The expression that matches the same paths as a pattern of glob(3).
fn expression(pattern: &str) -> String {
    let (mut made, mut rest) = (String::from("^"), pattern);
    while let Some(first) = rest.chars().next() {
        let begins_name = made.ends_with('/');
        rest = &rest[first.len_utf8()..];
        match first {
            // Names that start with a dot are hidden from them.
            '*' if begins_name => made.push_str("([^/.][^/]*)?"),
            '?' if begins_name => made.push_str("[^/.]"),
            '*' => made.push_str("[^/]*"),
            '?' => made.push_str("[^/]"),
            '[' => {
                let inner = rest.strip_prefix(['!', '^']).unwrap_or(rest);
                // A ] in front is one of the set.
                let end = inner.char_indices().skip(1).find(|(_, char)| *char == ']');
                let Some((end, _)) = end else {
                    made.push_str("\\[");
                    continue;
                };
                made.push_str(if inner.len() < rest.len() { "[^/" } else { "[" });
                for char in inner[..end].chars() {
                    if "\\[]^&~".contains(char) {
                        made.push('\\');
                    }
                    made.push(char);
                }
                made.push(']');
                rest = &inner[end + 1..];
            }
            _ => made.push_str(&escaped(first.encode_utf8(&mut [0; 4]))),
        }
    }
    made + "$"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names with their lines: `http@3{a@4}`.
    fn shown(all: &[Directive]) -> String {
        let one = |one: &Directive| {
            let block = one.block.as_ref().map(|block| format!("{{{}}}", shown(block))).unwrap_or_default();
            format!("{}@{}{block}", one.name, one.line)
        };
        all.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_include_is_what_its_file_says() {
        let text = "nginx: configuration file /n/nginx.conf test is successful\n\
            # configuration file /n/nginx.conf:\nhttp {\n  include sites/*.conf;\n  include none/*;\n\
            \x20 include none.conf;\n}\ninclude /n/s;\n\n\
            # configuration file /n/sites/b.conf:\nserver { include s; }\n\n\
            # configuration file /n/s:\n# configuration file of people:\nq 1;\n\n\
            # configuration file /n/sites/a.conf:\na;\n# configuration file /n/sites/.c.conf:\nc;\n";
        let all = parse(text).expect("a configuration");
        assert_eq!(shown(&all), "http@3{a@18 server@11{q@15} include@6} q@15");
        // A text with a comment of this form is not printed by nginx.
        let all = parse("a;\n# configuration file /n/b:\ninclude /n/b;\n").expect("a configuration");
        assert_eq!(shown(&all), "a@1 include@3");
        let text = "# configuration file /n/a:\na;\n# configuration file /n/b:\nb\n";
        assert_eq!(parse(text).expect_err("a mistake").to_string(), "line 4: a directive without its ;");
    }

    #[test]
    fn includes_are_bounded() {
        let itself = "# configuration file /n/a:\ninclude b;\n# configuration file /n/b:\ninclude b;\n";
        let said = parse(itself).expect_err("it has no end").to_string();
        assert_eq!(said, "line 4: files include one another too deep");
        let many: String = (0..12)
            .map(|at| {
                format!("# configuration file /n/{at}:\n{}", format!("include {};\n", at + 1).repeat(4))
            })
            .collect();
        let said = parse(&(many + "# configuration file /n/12:\n")).expect_err("it is too much").to_string();
        assert!(said.ends_with("it has more than 65536 directives"), "{said}");
    }

    #[test]
    fn patterns_stay_within_a_directory() {
        for (pattern, path, is_matched) in [
            ("/n/*.conf", "/n/a.conf", true),
            ("/n/*.conf", "/n/a.confx", false),
            ("/n/*.conf", "/n/aXconf", false),
            ("/n/*.conf", "/n/a/b.conf", false),
            ("/n/*", "/n/.a", false),
            ("/n/.*", "/n/.a", true),
            ("/n/*/?.conf", "/n/x/b.conf", true),
            ("/n/*/?.conf", "/n/x/.conf", false),
            ("/n/a?b", "/n/a/b", false),
            ("/n/[a-c]x", "/n/bx", true),
            ("/n/[!a-c]x", "/n/bx", false),
            ("/n/a[^b]c", "/n/a/c", false),
            ("/n/[]^]x", "/n/^x", true),
            ("/n/[ax", "/n/[ax", true),
            ("/n/é?*", "/n/éa", true),
        ] {
            let expression = Pattern::regex(&expression(pattern)).expect(pattern);
            assert_eq!(expression.matches(path.as_bytes()), is_matched, "{pattern} {path}");
        }
    }
}
