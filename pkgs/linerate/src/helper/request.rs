//! What the helper may be asked for.

use ::console::flame::MOST_SECONDS;
use serde::{Deserialize, Serialize};

use crate::samples::is_name;

/// What to do, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// The user of the console who asked for it, as named in the console's log. It is only logged; no decision depends
    /// on it.
    pub by: String,
}

/// The actions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Verb {
    /// Places an interface's queues as the profile says, or as last requested.
    Apply {
        /// The interface.
        interface: String,
    },
    /// Restores what was there before the first change.
    Undo {
        /// The interface.
        interface: String,
    },
    /// Records what processes do.
    Profile {
        /// The service, or the whole machine if absent.
        #[serde(default)]
        service: Option<String>,
        /// For how long, in seconds.
        seconds: u64,
        /// Whether to record waiting instead of running.
        #[serde(default)]
        waiting: bool,
    },
}

/// Why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It isn't one of the known requests.
    #[error("this is no request: {0}")]
    Form(String),
    /// It can't be the name of an interface.
    #[error("no interface is called that: it has 1 to 15 visible characters without a slash")]
    Interface,
    /// It can't be the name of a service.
    #[error("no service is called that: it has letters, digits and -_.@: alone")]
    Service,
    /// The time is too long, or zero.
    #[error("a profile takes 1 to {MOST_SECONDS} seconds")]
    Seconds,
    /// The name of the user isn't a short single line.
    #[error("who asks is said in a line of 200 characters at most")]
    By,
}

impl Request {
    /// Parses a request. Unknown fields and actions are refused.
    ///
    /// # Errors
    /// When it is malformed, or contains an impossible name or time.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        let request: Self =
            serde_json::from_slice(text).map_err(|error| RequestError::Form(error.to_string()))?;
        request.check()?;
        Ok(request)
    }

    /// Checks the request's names and time.
    ///
    /// # Errors
    /// When one of them is impossible.
    pub fn check(&self) -> Result<(), RequestError> {
        if self.by.chars().count() > 200 || self.by.chars().any(char::is_control) {
            return Err(RequestError::By);
        }
        match &self.verb {
            Verb::Apply { interface } | Verb::Undo { interface } if !is_interface(interface) => {
                Err(RequestError::Interface)
            }
            Verb::Profile { service: Some(service), .. } if !is_name(service) || service.starts_with('-') => {
                Err(RequestError::Service)
            }
            Verb::Profile { seconds, .. } if !(1..=MOST_SECONDS).contains(seconds) => {
                Err(RequestError::Seconds)
            }
            _ => Ok(()),
        }
    }
}

impl Verb {
    /// Its name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "nic.apply",
            Self::Undo { .. } => "nic.undo",
            Self::Profile { .. } => "profile",
        }
    }

    /// Its target in logs.
    pub fn target(&self) -> &str {
        match self {
            Self::Apply { interface } | Self::Undo { interface } => interface,
            Self::Profile { service, .. } => service.as_deref().unwrap_or("the machine"),
        }
    }
}

/// Whether the kernel accepts this name for an interface (`dev_valid_name`) and all characters are visible.
fn is_interface(name: &str) -> bool {
    (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':'))
        && ![".", ".."].contains(&name)
        && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_strictly() {
        use RequestError::{By, Interface, Seconds, Service};
        let long = "a".repeat(201);
        for (text, refused) in [
            (r#"{"verb":{"apply":{"interface":"eth0"}},"by":"x"}"#.to_owned(), None),
            (r#"{"verb":{"undo":{"interface":"enp1s0f0.7"}},"by":""}"#.into(), None),
            (r#"{"verb":{"profile":{"service":"links","seconds":10,"waiting":true}},"by":"x"}"#.into(), None),
            (r#"{"verb":{"profile":{"seconds":60}},"by":"x"}"#.into(), None),
            (r#"{"verb":{"apply":{"interface":"../a"}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"apply":{"interface":"--state"}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"undo":{"interface":""}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"undo":{"interface":"eth0 eth1"}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"undo":{"interface":"eth0\u0000"}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"undo":{"interface":"sixteen_letters_"}},"by":"x"}"#.into(), Some(Interface)),
            (r#"{"verb":{"profile":{"service":"--all","seconds":1}},"by":"x"}"#.into(), Some(Service)),
            (r#"{"verb":{"profile":{"service":"a;b","seconds":1}},"by":"x"}"#.into(), Some(Service)),
            (r#"{"verb":{"profile":{"service":"../a","seconds":1}},"by":"x"}"#.into(), Some(Service)),
            (r#"{"verb":{"profile":{"seconds":0}},"by":"x"}"#.into(), Some(Seconds)),
            (r#"{"verb":{"profile":{"seconds":61}},"by":"x"}"#.into(), Some(Seconds)),
            (format!(r#"{{"verb":{{"undo":{{"interface":"a"}}}},"by":"{long}"}}"#), Some(By)),
            (r#"{"verb":{"undo":{"interface":"a"}},"by":"a\nb"}"#.into(), Some(By)),
        ] {
            assert_eq!(Request::parse(text.as_bytes()).err(), refused, "{text}");
        }
        for text in [
            "",
            "{}",
            "apply eth0",
            r#"{"verb":{"apply":{"interface":"a"}}}"#,
            r#"{"verb":{"apply":{"interface":"a","policy":"pin=0"}},"by":"x"}"#,
            r#"{"verb":{"apply":{"interface":"a"}},"by":"x","user":"root"}"#,
            r#"{"verb":{"run":{"command":"id"}},"by":"x"}"#,
            r#"{"verb":{"profile":{"seconds":-1}},"by":"x"}"#,
            r#"{"verb":{"profile":{"seconds":1e99}},"by":"x"}"#,
            r#"{"verb":{"undo":{"interface":"a"}},"by":"x"} {"#,
        ] {
            assert!(matches!(Request::parse(text.as_bytes()), Err(RequestError::Form(_))), "{text}");
        }
    }
}
