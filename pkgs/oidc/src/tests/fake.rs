//! An issuer for these tests. The tests set its metadata, its keys, and its answers to codes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair};
use aws_lc_rs::{rand, rsa};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, OctetKeyPairParameters};
use jsonwebtoken::jwk::{OctetKeyPairType, RSAKeyParameters, RSAKeyType};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::token::now;
use crate::{Issuer, IssuerUrl};

/// A signing key, and what is published about it.
pub struct Key {
    pub id: &'static str,
    pub algorithm: Algorithm,
    signing: EncodingKey,
    pub published: Value,
}

impl Key {
    pub fn new(id: &'static str, algorithm: Algorithm) -> Self {
        use base64::Engine;
        let text = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
        let random = rand::SystemRandom::new();
        let (signing, published) = match algorithm {
            Algorithm::ES256 => {
                let der =
                    EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
                let signing = EncodingKey::from_ec_der(der.as_ref());
                let published = Jwk::from_encoding_key(&signing, algorithm).expect("a key").algorithm;
                (signing, published)
            }
            Algorithm::EdDSA => {
                use aws_lc_rs::signature::KeyPair;
                let der = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
                let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).expect("a key");
                let published = OctetKeyPairParameters {
                    key_type: OctetKeyPairType::OctetKeyPair,
                    curve: EllipticCurve::Ed25519,
                    x: text(pair.public_key().as_ref()),
                };
                (EncodingKey::from_ed_der(der.as_ref()), AlgorithmParameters::OctetKeyPair(published))
            }
            _ => {
                use aws_lc_rs::signature::KeyPair;
                let pair = rsa::KeyPair::generate(KeySize::Rsa2048).expect("a key");
                let der = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).expect("a key");
                let pair = RsaKeyPair::from_pkcs8(der.as_ref()).expect("a key");
                let published = RSAKeyParameters {
                    key_type: RSAKeyType::RSA,
                    n: text(pair.public_key().modulus().big_endian_without_leading_zero()),
                    e: text(pair.public_key().exponent().big_endian_without_leading_zero()),
                };
                // PKCS #8 puts 26 bytes before the PKCS #1 structure.
                (EncodingKey::from_rsa_der(&der.as_ref()[26..]), AlgorithmParameters::RSA(published))
            }
        };
        let mut published = serde_json::to_value(published).expect("JSON");
        published["kid"] = json!(id);
        Self { id, algorithm, signing, published }
    }

    /// A token with these claims.
    pub fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(self.algorithm) };
        self.sign_with(&header, claims)
    }

    pub fn sign_with(&self, header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &self.signing).expect("a token")
    }
}

/// How long it takes for an answer of status 0, which is none.
const HANGS: Duration = Duration::from_millis(500);

/// The issuer's answers by path, and the requests that it received.
#[derive(Clone, Default)]
pub struct Says {
    pub answers: Arc<Mutex<HashMap<&'static str, (u16, String)>>>,
    pub asked: Arc<Mutex<Vec<String>>>,
    /// How often nobody waited until it had no answer, and how often somebody did.
    pub hung: Arc<Mutex<(usize, usize)>>,
}

impl Says {
    async fn answer<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) {
        let (mut request, mut room) = (Vec::new(), [0; 4096]);
        while !whole(&request) {
            match stream.read(&mut room).await {
                Ok(length @ 1..) => request.extend_from_slice(&room[..length]),
                _ => break,
            }
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        self.asked.lock().expect("no panic").push(request);
        let (status, body) = {
            let answers = self.answers.lock().expect("no panic");
            answers.get(path.as_str()).cloned().unwrap_or((404, "{}".to_owned()))
        };
        if status == 0 {
            let has_left = tokio::time::timeout(HANGS, stream.read(&mut room)).await.is_ok();
            let mut hung = self.hung.lock().expect("no panic");
            *if has_left { &mut hung.0 } else { &mut hung.1 } += 1;
            return;
        }
        let head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
        let answer = format!("{head}Location: /jwks\r\nConnection: close\r\n\r\n{body}");
        // A client that has read enough disconnects.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
    }
}

pub struct Fake {
    pub url: String,
    pub says: Says,
}

impl Fake {
    /// An issuer with these keys.
    pub async fn start(keys: &[&Key]) -> Self {
        Self::listen(keys, None).await
    }

    /// Like [`start`](Self::start), with TLS.
    pub async fn start_by_tls(keys: &[&Key], tls: TlsAcceptor) -> Self {
        Self::listen(keys, Some(tls)).await
    }

    async fn listen(keys: &[&Key], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a socket");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let says = Says::default();
        let all = says.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                match &tls {
                    // A client that doesn't trust its certificate disconnects.
                    Some(tls) => match tls.accept(stream).await {
                        Ok(stream) => all.answer(stream).await,
                        Err(_) => continue,
                    },
                    None => all.answer(stream).await,
                }
            }
        });
        let fake = Self { url, says };
        fake.describe(json!({}));
        fake.publish(keys);
        fake
    }

    /// Publishes the usual metadata, and these members.
    pub fn describe(&self, others: Value) {
        let url = &self.url;
        let mut metadata = json!({
            "issuer": url,
            "jwks_uri": format!("{url}/jwks"),
            "authorization_endpoint": format!("{url}/authorize?tenant=a"),
            "token_endpoint": format!("{url}/token"),
        });
        for (name, value) in others.as_object().expect("an object") {
            metadata[name] = value.clone();
        }
        self.say("/.well-known/openid-configuration", 200, metadata.to_string());
    }

    /// Publishes these keys from now on.
    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<&Value> = keys.iter().map(|key| &key.published).collect();
        self.say("/jwks", 200, json!({ "keys": keys }).to_string());
    }

    pub fn say(&self, path: &'static str, status: u16, body: String) {
        self.says.answers.lock().expect("no panic").insert(path, (status, body));
    }

    /// How often its keys were requested.
    pub fn looks(&self) -> usize {
        let asked = self.says.asked.lock().expect("no panic");
        asked.iter().filter(|request| request.starts_with("GET /jwks ")).count()
    }

    pub fn url(&self) -> IssuerUrl {
        self.url.parse().expect("a URL")
    }

    pub fn issuer(&self) -> Arc<Issuer> {
        Arc::new(Issuer::new(self.url(), None).expect("an issuer"))
    }

    /// The claims of a valid token.
    pub fn claims(&self) -> Value {
        json!({ "iss": self.url, "aud": "linerate", "sub": "1", "exp": now() + 300, "iat": now(), "groups": ["ops"],
                "preferred_username": "ada" })
    }

    /// Like [`claims`](Self::claims), with another value of this claim, or without it.
    pub fn claims_but(&self, name: &str, value: Value) -> Value {
        let mut claims = self.claims();
        match value {
            Value::Null => drop(claims.as_object_mut().expect("an object").remove(name)),
            value => claims[name] = value,
        }
        claims
    }
}

fn whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    body.len() >= length.map_or(0, |length| length.parse().expect("a number"))
}
