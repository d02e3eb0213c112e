//! Credentials from a file in the format of `~/.aws/credentials`. The file is read again from time to time, and its
//! content is never logged.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;

/// How often the file is read again.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// The longest file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// Credentials in a file.
pub struct FileCredentials {
    path: PathBuf,
    read: Mutex<(Arc<AwsCredential>, Instant)>,
}

impl fmt::Debug for FileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCredentials").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FileCredentials {
    /// Reads them from the section `default`.
    ///
    /// # Errors
    /// When the file can't be read, is too long, or lacks a key.
    pub fn load(path: &Path) -> io::Result<Self> {
        let read = Mutex::new((Arc::new(read(path)?), Instant::now()));
        Ok(Self { path: path.to_owned(), read })
    }

    /// The current credentials. If the file can no longer be read, the previous ones stay.
    fn current(&self) -> Arc<AwsCredential> {
        let mut kept = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.1.elapsed() >= LOOK_EVERY {
            kept.1 = Instant::now();
            match read(&self.path) {
                Ok(credential) => kept.0 = Arc::new(credential),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the origin's credentials stay as they were");
                }
            }
        }
        Arc::clone(&kept.0)
    }
}

impl CredentialProvider for FileCredentials {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> std::pin::Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        let credential = self.current();
        Box::pin(std::future::ready(Ok(credential)))
    }
}

fn read(path: &Path) -> io::Result<AwsCredential> {
    let mut text = String::new();
    let length = File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    parse(&text).map_err(|missing| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{missing} is missing in its section [default]"))
    })
}

/// Reads the section `default`, or the lines before any section. The error names the missing key.
fn parse(text: &str) -> Result<AwsCredential, &'static str> {
    let (mut key_id, mut secret_key, mut token) = (None, None, None);
    let mut counts = true;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[') {
            counts = section.trim_end_matches(']').trim() == "default";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| counts) {
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim().to_ascii_lowercase().as_str() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    Ok(AwsCredential {
        key_id: key_id.ok_or("aws_access_key_id")?,
        secret_key: secret_key.ok_or("aws_secret_access_key")?,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_section_counts() {
        let both = "aws_access_key_id = AK\naws_secret_access_key=s/e=c\n";
        for (text, expected) in [
            (both.to_owned(), Ok(("AK", "s/e=c", None))),
            (format!("[other]\naws_access_key_id=x\n[default]\n{both}"), Ok(("AK", "s/e=c", None))),
            (
                format!("# a comment\n[ default ]\n{both}AWS_SESSION_TOKEN = t\n"),
                Ok(("AK", "s/e=c", Some("t"))),
            ),
            (format!("[other]\n{both}"), Err("aws_access_key_id")),
            ("aws_access_key_id=AK\naws_secret_access_key=\n".to_owned(), Err("aws_secret_access_key")),
            (String::new(), Err("aws_access_key_id")),
        ] {
            let parsed = parse(&text);
            let parsed = parsed.as_ref().map_err(|missing| *missing).map(|credential| {
                (credential.key_id.as_str(), credential.secret_key.as_str(), credential.token.as_deref())
            });
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn a_secret_is_never_shown() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "aws_access_key_id=AK\naws_secret_access_key=hush").expect("room");
        let credentials = FileCredentials::load(file.path()).expect("credentials");
        let shown = format!("{credentials:?} {:?}", credentials.current());
        assert!(!shown.contains("hush"), "{shown}");
        std::fs::write(file.path(), "aws_access_key_id=AK\nsecret=hush").expect("room");
        let error = FileCredentials::load(file.path()).expect_err("a key is missing").to_string();
        assert!(error.contains("aws_secret_access_key") && !error.contains("hush"), "{error}");
    }
}
