//! The syntax of nginx's configuration: directives, their arguments, and blocks.

/// How deeply blocks may be nested; http, server, location and if are four levels.
const MAX_DEPTH: usize = 16;

/// One directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The line where it starts.
    pub line: usize,
    /// Its name.
    pub name: String,
    /// Its arguments, without quotes.
    pub arguments: Vec<String>,
    /// The content of its braces, if it has any.
    pub block: Option<Vec<Directive>>,
}

/// A syntax error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Error {
    /// The line.
    pub line: usize,
    /// The reason.
    pub why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Parses a configuration, whose first line has the number `line`.
///
/// # Errors
/// [`Error`], for the first mistake.
pub fn parse(text: &str, line: usize) -> Result<Vec<Directive>, Error> {
    let tokens = tokens(text, line)?;
    let mut rest = &tokens[..];
    let all = block(&mut rest, 0)?;
    match rest.first() {
        None => Ok(all),
        Some((line, _)) => Err(Error { line: *line, why: "a } too many" }),
    }
}

fn block(rest: &mut &[(usize, Token)], depth: usize) -> Result<Vec<Directive>, Error> {
    let mut directives = Vec::new();
    while let Some((line, Token::Word(name))) = rest.first() {
        let line = *line;
        if depth > MAX_DEPTH {
            return Err(Error { line, why: "blocks are nested too deep" });
        }
        let mut directive = Directive { line, name: name.clone(), arguments: Vec::new(), block: None };
        loop {
            *rest = &rest[1..];
            match rest.first() {
                Some((_, Token::Word(word))) => directive.arguments.push(word.clone()),
                Some((_, Token::End)) => break,
                Some((_, Token::Open)) => {
                    *rest = &rest[1..];
                    directive.block = Some(block(rest, depth + 1)?);
                    if !matches!(rest.first(), Some((_, Token::Close))) {
                        return Err(Error { line, why: "a block without its }" });
                    }
                    break;
                }
                Some((_, Token::Close)) | None => {
                    return Err(Error { line, why: "a directive without its ;" });
                }
            }
        }
        *rest = &rest[1..];
        directives.push(directive);
    }
    match rest.first() {
        Some((line, Token::Open | Token::End)) => Err(Error { line: *line, why: "a directive has no name" }),
        _ => Ok(directives),
    }
}

fn tokens(text: &str, mut line: usize) -> Result<Vec<(usize, Token)>, Error> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\n' => line += 1,
            ' ' | '\t' | '\r' => {}
            '#' => while chars.next_if(|char| *char != '\n').is_some() {},
            ';' => tokens.push((line, Token::End)),
            '{' => tokens.push((line, Token::Open)),
            '}' => tokens.push((line, Token::Close)),
            quote @ ('"' | '\'') => {
                let (begun, mut word) = (line, String::new());
                loop {
                    match chars.next() {
                        None => return Err(Error { line: begun, why: "a quote does not end" }),
                        Some(char) if char == quote => break,
                        Some('\\') if chars.peek() == Some(&quote) || chars.peek() == Some(&'\\') => {
                            word.extend(chars.next());
                        }
                        Some(char) => {
                            line += usize::from(char == '\n');
                            word.push(char);
                        }
                    }
                }
                tokens.push((begun, Token::Word(word)));
            }
            first => {
                let mut word = String::from(first);
                // `${name}` is part of a word.
                while let Some(&next) = chars.peek() {
                    let is_variable = next == '{' && word.ends_with('$');
                    if !is_variable && matches!(next, ' ' | '\t' | '\r' | '\n' | ';' | '{') {
                        break;
                    }
                    word.extend(chars.next());
                    if is_variable {
                        while let Some(char) = chars.next_if(|char| !matches!(char, '\n' | ';')) {
                            word.push(char);
                            if char == '}' {
                                break;
                            }
                        }
                    }
                }
                tokens.push((line, Token::Word(word)));
            }
        }
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_with_their_blocks_and_lines() {
        let text = "a b 'c d' \"e\\\"f\"; # g;\nh ~ \\.js$ {\n  i ${j}k;\n}\n";
        let directive = |line, name: &str, arguments: &[&str], block| Directive {
            line,
            name: name.to_owned(),
            arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
            block,
        };
        let inner = directive(3, "i", &["${j}k"], None);
        assert_eq!(
            parse(text, 1),
            Ok(vec![
                directive(1, "a", &["b", "c d", "e\"f"], None),
                directive(2, "h", &["~", "\\.js$"], Some(vec![inner])),
            ])
        );
    }

    #[test]
    fn what_is_no_configuration_is_told_by_its_line() {
        let deep = "a {".repeat(1000);
        for (text, said) in [
            ("a;\nb", "line 2: a directive without its ;"),
            ("a {\nb;", "line 1: a block without its }"),
            ("a;\n}", "line 2: a } too many"),
            (";", "line 1: a directive has no name"),
            ("a 'b", "line 1: a quote does not end"),
            (&deep, "line 1: blocks are nested too deep"),
        ] {
            assert_eq!(parse(text, 1).expect_err(said).to_string(), said);
        }
    }
}
