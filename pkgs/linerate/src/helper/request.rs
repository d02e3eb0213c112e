//! What the helper may be asked for.

use serde::{Deserialize, Serialize};

use crate::samples::is_name;

/// How long it may be looked at what processes do, in seconds.
const MOST_SECONDS: u64 = 60;

/// What to do, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// Who asked the console for it, as its log has it. Nothing is decided by that.
    pub by: String,
}

/// What may be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Verb {
    /// Places the queues of an interface as the profile says, or as was last asked for.
    Apply {
        /// Which.
        interface: String,
    },
    /// Puts back what was there before the first change.
    Undo {
        /// Of which interface.
        interface: String,
    },
    /// Looks at what processes do.
    Profile {
        /// Of which service; of the whole machine where it is absent.
        #[serde(default)]
        service: Option<String>,
        /// For how long.
        seconds: u64,
        /// What waits, instead of what runs.
        #[serde(default)]
        waiting: bool,
    },
}

/// Why a request is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It is none of those that there are.
    #[error("this is no request: {0}")]
    Form(String),
    /// No interface is called that.
    #[error("no interface is called that: it has 1 to 15 visible characters without a slash")]
    Interface,
    /// No service is called that.
    #[error("no service is called that: it has letters, digits and -_.@: alone")]
    Service,
    /// Too long, or not at all.
    #[error("a profile takes 1 to {MOST_SECONDS} seconds")]
    Seconds,
    /// Who asked is not said in a line.
    #[error("who asks is said in a line of 200 characters at most")]
    By,
}

impl Request {
    /// Reads one, strictly: what is not known is refused.
    ///
    /// # Errors
    /// When it is none, or names what cannot be.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        let request: Self =
            serde_json::from_slice(text).map_err(|error| RequestError::Form(error.to_string()))?;
        request.check()?;
        Ok(request)
    }

    /// Whether all of it can be.
    ///
    /// # Errors
    /// When it cannot.
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
    /// As logs have it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "nic.apply",
            Self::Undo { .. } => "nic.undo",
            Self::Profile { .. } => "profile",
        }
    }

    /// To what, as logs have it.
    pub fn target(&self) -> &str {
        match self {
            Self::Apply { interface } | Self::Undo { interface } => interface,
            Self::Profile { service, .. } => service.as_deref().unwrap_or("the machine"),
        }
    }
}

/// What the kernel takes as an interface's name (`dev_valid_name`), of visible characters.
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
