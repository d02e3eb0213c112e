//! The format of recorded machines.

use std::cell::RefCell;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;

use super::{Fresh, Recorded, Refusal, State};
use crate::cpus::Cpus;
use crate::system::{Channels, Clock, Coalescing, Free, Rings, TcpListener, Verity};

/// The errnos that a recorded machine can refuse with, by name.
const ERRNOS: [(&str, Errno); 8] = [
    ("EACCES", Errno::ACCESS),
    ("EAGAIN", Errno::AGAIN),
    ("EBUSY", Errno::BUSY),
    ("EINVAL", Errno::INVAL),
    ("EIO", Errno::IO),
    ("ENOMEM", Errno::NOMEM),
    ("ENOSPC", Errno::NOSPC),
    ("EPERM", Errno::PERM),
];

/// Why a text isn't a machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl FromStr for Recorded {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut lines = text.lines().enumerate();
        let mut state = State::default();
        if let Some(later) = read(&mut lines, &mut state)? {
            let mut state_later = State::default();
            if read(&mut lines, &mut state_later)?.is_some() {
                return Err(ParseError { line: later + 1, what: "later is later once" });
            }
            state.later = Some(Box::new(state_later));
        }
        state.fresh = Rc::new(Fresh { files: state.files.clone(), rings: state.rings.clone() });
        Ok(Self { state: RefCell::new(state) })
    }
}

/// Reads lines up to `later`, and returns the position of that line.
fn read<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    state: &mut State,
) -> Result<Option<usize>, ParseError> {
    let mut open: Vec<String> = Vec::new();
    for (index, line) in lines {
        let wrong = |what| ParseError { line: index + 1, what };
        if let Some(content) = line.strip_prefix('|') {
            if open.is_empty() {
                return Err(wrong("a line of a file that has not begun"));
            }
            for path in &open {
                let file = state.files.entry(path.clone()).or_default();
                file.push_str(content);
                file.push('\n');
            }
            continue;
        }
        open.clear();
        match line.trim() {
            "" => {}
            "later" => return Ok(Some(index)),
            comment if comment.starts_with('#') => {}
            path if path.starts_with('/') => open = file(path, state).map_err(wrong)?,
            told => answer(told, state).map_err(wrong)?,
        }
    }
    Ok(None)
}

/// Reads a line for a file or a link. Returns the paths of a file whose content follows.
fn file(line: &str, state: &mut State) -> Result<Vec<String>, &'static str> {
    if let Some((path, target)) = line.split_once(" -> ") {
        for path in expanded(path)? {
            state.links.insert(path, target.to_owned());
        }
        return Ok(Vec::new());
    }
    if let Some((path, value)) = line.split_once(" =") {
        for path in expanded(path)? {
            state.files.insert(path, format!("{}\n", value.trim_start()));
        }
        return Ok(Vec::new());
    }
    let open = expanded(line.strip_suffix(':').ok_or("neither a file nor a link")?)?;
    for path in &open {
        state.files.insert(path.clone(), String::new());
    }
    Ok(open)
}

/// Reads an answer of netlink or a system call: a word, usually a subject, and values.
fn answer(line: &str, state: &mut State) -> Result<(), &'static str> {
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap_or_default();
    if kind == "clock" {
        let mut clock = Clock { synchronised: false, max_error: Duration::ZERO };
        for (name, value) in pairs(words)? {
            match name {
                "synchronised" => clock.synchronised = truth(value)?,
                "max_error_us" => clock.max_error = Duration::from_micros(number(value)?),
                _ => return Err("a word that is not known"),
            }
        }
        state.clock = Some(clock);
        return Ok(());
    }
    let subject = words.next().ok_or("of what")?.to_owned();
    match kind {
        "refuse" => {
            let name = words.next().ok_or("refuse PATH ERRNO is needed")?;
            let errno = ERRNOS.iter().find(|(known, _)| *known == name);
            let (_, errno) = errno.ok_or("an errno that is not known")?;
            for path in expanded(&subject)? {
                state.refusals.insert(path, Refusal { errno: *errno, times: usize::MAX });
            }
        }
        "channels" => {
            let mut channels = Channels::default();
            for (name, value) in pairs(words)? {
                *match name {
                    "rx" => &mut channels.rx,
                    "tx" => &mut channels.tx,
                    "combined" => &mut channels.combined,
                    "max_rx" => &mut channels.max_rx,
                    "max_tx" => &mut channels.max_tx,
                    "max_combined" => &mut channels.max_combined,
                    _ => return Err("channels that are not known"),
                } = number(value)?;
            }
            state.channels.insert(subject, channels);
        }
        "rings" => {
            let mut rings = Rings::default();
            for (name, value) in pairs(words)? {
                match name {
                    "rx" => rings.rx = Some(number(value)?),
                    "tx" => rings.tx = Some(number(value)?),
                    _ => return Err("rings that are not known"),
                }
            }
            state.rings.insert(subject, rings);
        }
        "coalescing" => {
            let mut coalescing = Coalescing::default();
            for (name, value) in pairs(words)? {
                match name {
                    "adaptive_rx" => coalescing.adaptive_rx = Some(truth(value)?),
                    "adaptive_tx" => coalescing.adaptive_tx = Some(truth(value)?),
                    "rx_usecs" => coalescing.rx_usecs = Some(number(value)?),
                    "tx_usecs" => coalescing.tx_usecs = Some(number(value)?),
                    "rx_frames" => coalescing.rx_frames = Some(number(value)?),
                    "tx_frames" => coalescing.tx_frames = Some(number(value)?),
                    _ => return Err("coalescing that is not known"),
                }
            }
            state.coalescing.insert(subject, coalescing);
        }
        "offloads" => {
            let offloads = state.offloads.entry(subject).or_default();
            for (name, value) in pairs(words)? {
                offloads.insert(name.to_owned(), truth(value)?);
            }
        }
        "statistics" => {
            let counters = state.statistics.entry(subject).or_default();
            for (name, value) in pairs(words)? {
                counters.insert(name.to_owned(), number(value)?);
            }
        }
        "indirection" => {
            let table: Result<Vec<u32>, _> = words.map(number).collect();
            state.indirection.insert(subject, table?);
        }
        "rss_rings" => {
            state.rss_rings.insert(subject, number(words.next().unwrap_or_default())?);
        }
        "qdiscs" => {
            state.qdiscs.insert(subject, words.map(str::to_owned).collect());
        }
        "listener" => {
            let address = subject.parse().map_err(|_| "listener IP:PORT is needed")?;
            let mut listener = TcpListener { address, backlog: 0, waiting: 0 };
            for (name, value) in pairs(words)? {
                match name {
                    "backlog" => listener.backlog = number(value)?,
                    "waiting" => listener.waiting = number(value)?,
                    _ => return Err("a word that is not known"),
                }
            }
            state.listeners.push(listener);
        }
        "free" => {
            let mut free = Free { bytes: 100, inodes: 100 };
            for (name, value) in pairs(words)? {
                match name {
                    "bytes" => free.bytes = number(value)?,
                    "inodes" => free.inodes = number(value)?,
                    _ => return Err("a word that is not known"),
                }
            }
            state.free.insert(subject, free);
        }
        "verity" => {
            let mut verity = Verity { root: String::new(), corrupt: false };
            for (name, value) in pairs(words)? {
                match name {
                    "root" => verity.root = value.to_owned(),
                    "corrupt" => verity.corrupt = truth(value)?,
                    _ => return Err("a word that is not known"),
                }
            }
            state.verity.insert(subject, verity);
        }
        "now" => state.now = number(&subject)?,
        "get" => {
            state.answers.insert(subject, number(words.next().unwrap_or_default())?);
        }
        _ => return Err("neither a file, a link, an answer, a refusal nor a comment"),
    }
    Ok(())
}

/// Repeated `NAME=VALUE`.
fn pairs<'a>(words: impl Iterator<Item = &'a str>) -> Result<Vec<(&'a str, &'a str)>, &'static str> {
    words.map(|word| word.split_once('=').ok_or("NAME=VALUE is needed")).collect()
}

fn number<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "a number is needed")
}

fn truth(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "true or false is needed")
}

/// Every path that a path with `[a-b]` stands for.
fn expanded(path: &str) -> Result<Vec<String>, &'static str> {
    let Some((before, rest)) = path.split_once('[') else { return Ok(vec![path.to_owned()]) };
    let (range, after) = rest.split_once(']').ok_or("a [ without ]")?;
    let numbers: Cpus = range.parse().map_err(|_| "[a-b] is needed")?;
    Ok(numbers.iter().map(|number| format!("{before}{number}{after}")).collect())
}
