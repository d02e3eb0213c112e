//! Passwords for RDS and Aurora. They are made from AWS's credentials for each connection, and are valid for 15 minutes
//! (docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html).
//!
//! Credentials come from the environment, from a container's endpoint, or from the instance's metadata service
//! (IMDSv2), in this order. AWS's own clients look for them in these places too.

use std::env;
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::password::{Login, PasswordError};

/// How long a password is valid, in seconds; AWS allows no more.
const EXPIRES: u32 = 900;

/// The timeout of an endpoint for credentials.
const DEADLINE: Duration = Duration::from_secs(2);

/// The longest answer of such an endpoint, in bytes.
const LONGEST: u64 = 64 << 10;

/// How long credentials are kept, unless they expire sooner.
const KEPT: Duration = Duration::from_secs(300);

/// EC2's metadata service.
const METADATA: &str = "169.254.169.254:80";

/// ECS's endpoint for credentials.
const CONTAINER: &str = "169.254.170.2:80";

/// What is encoded in a query (RFC 3986, unreserved).
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Makes passwords for databases in one region.
pub struct RdsToken {
    region: String,
    kept: Mutex<Option<(Instant, Credentials)>>,
}

/// AWS's credentials.
#[derive(Clone, Deserialize)]
pub struct Credentials {
    /// The access key's id.
    #[serde(rename = "AccessKeyId")]
    pub id: String,
    /// Its secret.
    #[serde(rename = "SecretAccessKey")]
    pub secret: String,
    /// Temporary credentials also have this.
    #[serde(rename = "Token")]
    pub session: Option<String>,
}

impl RdsToken {
    /// Makes passwords for databases of a region, such as `eu-central-1`.
    pub fn new(region: &str) -> Self {
        Self { region: region.to_owned(), kept: Mutex::default() }
    }

    /// The password for a login. Looks up credentials, if none are known.
    pub async fn password(&self, login: Login<'_>) -> Result<String, PasswordError> {
        Ok(token(&self.credentials().await?, &self.region, login, Timestamp::now()))
    }

    async fn credentials(&self) -> Result<Credentials, PasswordError> {
        let mut kept = self.kept.lock().await;
        if let Some((at, credentials)) = &*kept
            && at.elapsed() < KEPT
        {
            return Ok(credentials.clone());
        }
        let found = tokio::time::timeout(DEADLINE, find()).await.unwrap_or_else(|_| Err("no answer".into()));
        let found = found.map_err(|why| PasswordError::Token(format!("AWS's credentials: {why}")))?;
        Ok(kept.insert((Instant::now(), found)).1.clone())
    }
}

/// The password: a signed URL without its scheme
/// (docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).
pub fn token(credentials: &Credentials, region: &str, login: Login<'_>, now: Timestamp) -> String {
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &time[..8];
    let scope = format!("{day}/{region}/rds-db/aws4_request");
    let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
    let mut query = format!(
        "Action=connect&DBUser={}&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires={EXPIRES}",
        encoded(login.user),
        encoded(&format!("{}/{scope}", credentials.id)),
    );
    if let Some(session) = &credentials.session {
        query = format!("{query}&X-Amz-Security-Token={}", encoded(session));
    }
    query.push_str("&X-Amz-SignedHeaders=host");
    let host = format!("{}:{}", login.host, login.port);
    let request = format!("GET\n/\n{query}\nhost:{host}\n\nhost\n{}", HEXLOWER.encode(&Sha256::digest(b"")));
    let signed = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", HEXLOWER.encode(&Sha256::digest(request)));
    let key = format!("AWS4{}", credentials.secret).into_bytes();
    let key = [day, region, "rds-db", "aws4_request", &signed].iter().fold(key, |key, part| hmac(&key, part));
    format!("{host}/?{query}&X-Amz-Signature={}", HEXLOWER.encode(&key))
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

async fn find() -> Result<Credentials, String> {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if let (Some(id), Some(secret)) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
        return Ok(Credentials { id, secret, session: variable("AWS_SESSION_TOKEN") });
    }
    if let Some(path) = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return parsed(&ask(CONTAINER, "GET", &path, "").await?);
    }
    if let Some(url) = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        // EKS's agent is on the node, and speaks plain HTTP.
        let rest = url.strip_prefix("http://").ok_or("AWS_CONTAINER_CREDENTIALS_FULL_URI is not http://")?;
        let (host, path) = rest.split_once('/').ok_or("AWS_CONTAINER_CREDENTIALS_FULL_URI has no path")?;
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
        let file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token = match file {
            Some(file) => std::fs::read_to_string(file).map_err(|error| error.to_string())?,
            None => variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").unwrap_or_default(),
        };
        let field =
            if token.is_empty() { String::new() } else { format!("Authorization: {}\r\n", token.trim()) };
        return parsed(&ask(&host, "GET", &format!("/{path}"), &field).await?);
    }
    let lifetime = "X-aws-ec2-metadata-token-ttl-seconds: 60\r\n";
    let token = ask(METADATA, "PUT", "/latest/api/token", lifetime).await?;
    let field = format!("X-aws-ec2-metadata-token: {}\r\n", token.trim());
    let path = "/latest/meta-data/iam/security-credentials/";
    let role = ask(METADATA, "GET", path, &field).await?;
    let role = role.lines().next().unwrap_or_default();
    parsed(&ask(METADATA, "GET", &format!("{path}{role}"), &field).await?)
}

fn parsed(text: &str) -> Result<Credentials, String> {
    // The error doesn't show the text, since it contains a secret.
    serde_json::from_str(text).map_err(|_| "the answer has none".to_owned())
}

/// Sends one HTTP/1.0 request. The answer ends when the connection closes.
async fn ask(host: &str, method: &str, path: &str, fields: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{host}: {error}");
    if path.contains(['\r', '\n', ' ']) || fields.matches("\r\n").count() > 1 {
        return Err(format!("{host}: what would be asked is no HTTP"));
    }
    let mut stream = TcpStream::connect(host).await.map_err(failed)?;
    let name = host.split(':').next().unwrap_or(host);
    let request = format!("{method} {path} HTTP/1.0\r\nHost: {name}\r\nContent-Length: 0\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = String::new();
    stream.take(LONGEST).read_to_string(&mut answer).await.map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| format!("{host}: no answer"))?;
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        status => Err(format!("{host}: status {}", status.unwrap_or("none"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens that `RDS.generate_db_auth_token` of botocore 1.44 returns at this instant, in the order that is
    /// signed.
    #[test]
    fn a_token_is_what_aws_makes_itself() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().expect("an instant");
        let login = Login { host: "db.example", port: 5432, user: "ada", database: "users" };
        for (session, expected) in BOTOCORE {
            let credentials = Credentials {
                id: "AKIDEXAMPLE".into(),
                secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
                session: session.map(str::to_owned),
            };
            assert_eq!(token(&credentials, "eu-central-1", login, now), expected);
        }
    }

    const BOTOCORE: [(Option<&str>, &str); 2] = [
        (
            None,
            "db.example:5432/?Action=connect&DBUser=ada&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Feu-central-1%2Frds-db%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=393dba7e7ac5b83782fa752046bf8ad36bc5fad9975c496b635487ad180402cc",
        ),
        (
            Some("a/b+c="),
            "db.example:5432/?Action=connect&DBUser=ada&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Feu-central-1%2Frds-db%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=900&X-Amz-Security-Token=a%2Fb%2Bc%3D&X-Amz-SignedHeaders=host&X-Amz-Signature=385b5e2379760a3185b4540fe0a4fc81663aebd092d8c1311359593a3e4a15da",
        ),
    ];
}
