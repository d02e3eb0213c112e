//! Tokens, sign-ins and an issuer that misbehaves.

mod fake;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use crate::Issuer;
use crate::jwt::{Bearer, JwtArgs, Scope, Tokens};
use crate::sign_in::{Error, Registration, Return, SignIn};
use crate::token::{Refused, TOKEN_BYTES, now, verify};
use fake::{Fake, Key};

fn audience() -> Vec<String> {
    vec!["linerate".to_owned()]
}

#[tokio::test]
async fn tokens_of_every_algorithm_that_is_taken_are_verified() {
    for algorithm in [Algorithm::ES256, Algorithm::EdDSA, Algorithm::RS256] {
        let key = Key::new("a", algorithm);
        let fake = Fake::start(&[&key]).await;
        let claims = verify(&fake.issuer(), &audience(), &key.sign(&fake.claims())).await;
        assert_eq!(claims.expect("it is good").name("preferred_username"), "ada", "{algorithm:?}");
        let other = Key::new("a", algorithm);
        let forged = verify(&fake.issuer(), &audience(), &other.sign(&fake.claims())).await;
        assert_eq!(forged.err(), Some(Refused::Signature), "{algorithm:?}");
    }
}

#[tokio::test]
async fn a_token_is_for_us_of_now_and_of_this_issuer_or_it_is_refused() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let issuer = fake.issuer();
    let incomplete = |what: &str| Some(Refused::Incomplete(what.to_owned()));
    for (name, value, refused) in [
        ("aud", json!("linerate"), None),
        ("aud", json!(["other", "linerate"]), None),
        ("aud", json!("other"), Some(Refused::Audience)),
        ("aud", json!([]), Some(Refused::Audience)),
        ("aud", json!("linerate "), Some(Refused::Audience)),
        ("aud", Value::Null, incomplete("there is no aud")),
        ("iss", json!("https://evil.example"), Some(Refused::Issuer)),
        ("iss", json!(format!("{}/", fake.url)), Some(Refused::Issuer)),
        ("iss", Value::Null, incomplete("missing field `iss`")),
        ("exp", json!(now() - 30), None),
        ("exp", json!(now() - 90), Some(Refused::Expired)),
        ("exp", Value::Null, incomplete("missing field `exp`")),
        ("nbf", json!(now() + 30), None),
        ("nbf", json!(now() + 90), Some(Refused::Early)),
        ("iat", json!(now() + 30), None),
        ("iat", json!(now() + 90), Some(Refused::Early)),
        ("sub", Value::Null, incomplete("missing field `sub`")),
    ] {
        let token = key.sign(&fake.claims_but(name, value.clone()));
        assert_eq!(verify(&issuer, &audience(), &token).await.err(), refused, "{name}: {value}");
    }
    for (name, value) in [
        ("exp", json!("soon")),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("nbf", json!("soon")),
        ("nbf", json!(1e300)),
        ("iat", json!("soon")),
        ("aud", json!({ "linerate": true })),
        ("aud", json!(7)),
        ("aud", json!([["linerate"]])),
        ("iss", json!([fake.url, "https://evil.example"])),
        ("iss", json!(7)),
        ("sub", json!(7)),
        ("sub", json!("")),
    ] {
        let token = key.sign(&fake.claims_but(name, value.clone()));
        assert!(verify(&issuer, &audience(), &token).await.is_err(), "{name}: {value}");
    }
}

#[tokio::test]
async fn who_signs_by_nothing_or_by_what_is_public_is_refused() {
    let key = Key::new("a", Algorithm::ES256);
    let rsa = Key::new("r", Algorithm::RS256);
    let fake = Fake::start(&[&key, &rsa]).await;
    let issuer = fake.issuer();
    let good = key.sign(&fake.claims());
    let [_, claims, signature] = good.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let with = |header: Value, signature: &str| {
        format!("{}.{claims}.{signature}", URL_SAFE_NO_PAD.encode(header.to_string()))
    };
    // An RSA key's public part, used as a shared secret.
    let shared = EncodingKey::from_secret(rsa.published["n"].as_str().expect("a text").as_bytes());
    let header = Header { kid: Some("r".to_owned()), ..Header::new(Algorithm::HS256) };
    let confused = jsonwebtoken::encode(&header, &fake.claims(), &shared).expect("a token");
    let changed = claims.replacen(|c: char| c.is_ascii_lowercase(), "Q", 1);
    let mut late = Header { kid: Some("a".to_owned()), ..Header::new(Algorithm::ES256) };
    let mut typed = |typ: &str| {
        late.typ = Some(typ.to_owned());
        key.sign_with(&late, &fake.claims())
    };
    for (what, token, refused) in [
        ("none", with(json!({ "alg": "none" }), ""), Refused::Algorithm),
        ("None", with(json!({ "alg": "None", "kid": "a" }), ""), Refused::Algorithm),
        ("none, signed", with(json!({ "alg": "none", "kid": "a" }), signature), Refused::Algorithm),
        ("HS256 by a public key", confused, Refused::Algorithm),
        (
            "RS256 by a key of ES256",
            with(json!({ "alg": "RS256", "kid": "a" }), signature),
            Refused::UnknownKey,
        ),
        ("ES384", with(json!({ "alg": "ES384", "kid": "a" }), signature), Refused::Algorithm),
        ("no signature", with(json!({ "alg": "ES256", "kid": "a" }), ""), Refused::Signature),
        ("other claims", good.replace(claims, &changed), Refused::Signature),
        ("crit", with(json!({ "alg": "ES256", "kid": "a", "crit": ["b64"] }), signature), Refused::Kind),
        ("a token to sign out by", typed("logout+jwt"), Refused::Kind),
        ("two parts", "eyJh.b".to_owned(), Refused::Malformed),
        ("no JSON", "eyJh.b.c".to_owned(), Refused::Malformed),
        ("a key", "lrk_0123".to_owned(), Refused::Malformed),
        ("too long", format!("{good}{}", "A".repeat(TOKEN_BYTES)), Refused::Malformed),
    ] {
        assert_eq!(verify(&issuer, &audience(), &token).await.err(), Some(refused), "{what}");
    }
    assert!(verify(&issuer, &audience(), &typed("at+JWT")).await.is_ok());
    assert!(verify(&issuer, &audience(), &good).await.is_ok());
}

#[tokio::test]
async fn keys_of_secrets_and_for_other_uses_are_none_to_verify_by() {
    let mut encrypting = Key::new("e", Algorithm::ES256);
    encrypting.published["use"] = json!("enc");
    let mut other = Key::new("o", Algorithm::RS256);
    other.published["alg"] = json!("RS512");
    let mut shared = Key::new("s", Algorithm::ES256);
    shared.published = json!({ "kty": "oct", "kid": "s", "k": "c2VjcmV0" });
    let mut unheard = Key::new("u", Algorithm::ES256);
    unheard.published = json!({ "kty": "AKP", "kid": "u", "alg": "ML-DSA-44", "pub": "AA" });
    let good = Key::new("g", Algorithm::EdDSA);
    let fake = Fake::start(&[&encrypting, &other, &shared, &unheard, &good]).await;
    let issuer = Arc::new(Issuer::new(fake.url(), None).expect("an issuer").impatient(Duration::ZERO));
    for key in [&encrypting, &other, &shared, &unheard] {
        let refused = verify(&issuer, &audience(), &key.sign(&fake.claims())).await.err();
        assert_eq!(refused, Some(Refused::UnknownKey), "{}", key.id);
    }
    assert!(verify(&issuer, &audience(), &good.sign(&fake.claims())).await.is_ok());
}

#[tokio::test]
async fn a_new_key_is_found_at_once_and_a_withdrawn_one_is_one_no_more() {
    let (old, new) = (Key::new("old", Algorithm::ES256), Key::new("new", Algorithm::EdDSA));
    let fake = Fake::start(&[&old]).await;
    let issuer = Arc::new(Issuer::new(fake.url(), None).expect("an issuer").impatient(Duration::ZERO));
    assert!(verify(&issuer, &audience(), &old.sign(&fake.claims())).await.is_ok());
    fake.publish(&[&new]);
    assert!(verify(&issuer, &audience(), &new.sign(&fake.claims())).await.is_ok());
    let refused = verify(&issuer, &audience(), &old.sign(&fake.claims())).await.err();
    assert_eq!(refused, Some(Refused::UnknownKey));
    // A token without a key id matches the only key that the issuer has.
    let header = Header::new(Algorithm::EdDSA);
    assert!(verify(&issuer, &audience(), &new.sign_with(&header, &fake.claims())).await.is_ok());
}

#[tokio::test]
async fn a_key_that_was_withdrawn_in_a_quiet_time_is_one_no_more_unless_the_issuer_is_down() {
    let (old, new) = (Key::new("old", Algorithm::ES256), Key::new("new", Algorithm::ES256));
    let fake = Fake::start(&[&old]).await;
    let issuer = Issuer::new(fake.url(), None).expect("an issuer").impatient(Duration::ZERO);
    // All that is known is overdue at once.
    let issuer = Arc::new(issuer.forgetful(Duration::ZERO));
    let token = old.sign(&fake.claims());
    assert!(verify(&issuer, &audience(), &token).await.is_ok());
    let jwks = fake.says.answers.lock().expect("no panic")["/jwks"].1.clone();
    fake.say("/jwks", 503, String::new());
    assert!(verify(&issuer, &audience(), &token).await.is_ok(), "by the keys there are");
    fake.say("/jwks", 200, jwks);
    assert!(verify(&issuer, &audience(), &token).await.is_ok());
    fake.publish(&[&new]);
    assert_eq!(verify(&issuer, &audience(), &token).await.err(), Some(Refused::UnknownKey));
}

#[tokio::test]
async fn an_issuer_that_hangs_is_known_to_once_a_client_has_left() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let issuer = Issuer::new(fake.url(), None).expect("an issuer").impatient(Duration::ZERO);
    let issuer = Arc::new(issuer.forgetful(Duration::ZERO));
    let token = key.sign(&fake.claims());
    assert!(verify(&issuer, &audience(), &token).await.is_ok());
    fake.say("/jwks", 0, String::new());
    let audience = audience();
    // One issuer was known before, and the other one was not.
    for (issuer, waited_for) in [(&issuer, 1), (&fake.issuer(), 2)] {
        let asking = verify(issuer, &audience, &token);
        assert!(tokio::time::timeout(Duration::from_millis(100), asking).await.is_err(), "it has an answer");
        let hung = || *fake.says.hung.lock().expect("no panic");
        while hung().0 + hung().1 < waited_for {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(hung(), (0, waited_for), "nobody waited for the issuer");
    }
}

#[tokio::test]
async fn however_many_made_up_keys_come_the_issuer_is_asked_once_in_a_while() {
    let (key, made_up) = (Key::new("a", Algorithm::ES256), Key::new("b", Algorithm::ES256));
    let fake = Fake::start(&[&key]).await;
    let issuer = fake.issuer();
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (issuer, token) = (Arc::clone(&issuer), made_up.sign(&fake.claims()));
        all.spawn(async move { verify(&issuer, &audience(), &token).await.err() });
    }
    assert!(all.join_all().await.into_iter().all(|refused| refused == Some(Refused::UnknownKey)));
    assert!(fake.looks() <= 2, "{} looks", fake.looks());
    assert!(verify(&issuer, &audience(), &key.sign(&fake.claims())).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_is_down_or_strange_is_said_to_be_and_keys_that_are_known_go_on() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let token = key.sign(&fake.claims());
    let configuration = "/.well-known/openid-configuration";
    let jwks = fake.says.answers.lock().expect("no panic")["/jwks"].1.clone();
    for (what, others, published) in [
        ("calls itself", json!({ "issuer": "https://evil.example" }), (200, jwks.clone())),
        ("none of HTTPS", json!({ "jwks_uri": "file:///etc/passwd" }), (200, jwks.clone())),
        ("none of HTTPS", json!({ "jwks_uri": "http://192.0.2.1/jwks" }), (200, jwks.clone())),
        ("answers 500", json!({}), (500, jwks.clone())),
        ("answers 302", json!({}), (302, jwks.clone())),
        ("no key", json!({}), (200, r#"{"keys":[]}"#.to_owned())),
        ("length limit", json!({}), (200, format!("{}{jwks}", " ".repeat(300_000)))),
    ] {
        fake.describe(others);
        fake.say("/jwks", published.0, published.1);
        match verify(&fake.issuer(), &audience(), &token).await {
            Err(Refused::Unavailable(error)) => assert!(error.why.contains(what), "{what}: {}", error.why),
            other => panic!("{what}: {other:?}"),
        }
    }
    fake.describe(json!({}));
    fake.say("/jwks", 200, jwks);
    let issuer = Arc::new(Issuer::new(fake.url(), None).expect("an issuer").impatient(Duration::ZERO));
    assert!(verify(&issuer, &audience(), &token).await.is_ok());
    fake.say(configuration, 503, String::new());
    assert!(verify(&issuer, &audience(), &token).await.is_ok(), "by the keys there are");
    let unknown = verify(&issuer, &audience(), &Key::new("b", Algorithm::ES256).sign(&fake.claims())).await;
    assert!(matches!(unknown, Err(Refused::Unavailable(_))), "{unknown:?}");
}

#[tokio::test]
async fn an_issuer_by_tls_has_a_certificate_of_an_authority_that_is_named() {
    let key = Key::new("a", Algorithm::ES256);
    let certified = testkit::certificate(&["127.0.0.1"]);
    let directory = tempfile::tempdir().expect("a directory");
    let [ours, other, none] = ["ours", "other", "none"].map(|name| directory.path().join(name));
    std::fs::write(&ours, certified.cert.pem()).expect("written");
    let another = testkit::certificate(&["127.0.0.1"]);
    std::fs::write(&other, another.cert.pem()).expect("written");
    std::fs::write(&none, "no certificate").expect("written");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(certified.key.serialize_der());
    let config = config.expect("versions").with_no_client_auth();
    let config = config.with_single_cert(vec![certified.cert.der().clone()], secret.into()).expect("a key");
    let fake = Fake::start_by_tls(&[&key], Arc::new(config).into()).await;
    let token = key.sign(&fake.claims());
    for (authorities, taken) in [(Some(&ours), true), (Some(&other), false), (None, false)] {
        let issuer =
            Issuer::new(fake.url(), authorities.map(std::path::PathBuf::as_path)).expect("authorities");
        let verified = verify(&Arc::new(issuer), &audience(), &token).await;
        assert_eq!(verified.is_ok(), taken, "{authorities:?}: {verified:?}");
    }
    assert!(Issuer::new(fake.url(), Some(&none)).is_err());
    assert!(Issuer::new(fake.url(), Some(&directory.path().join("missing"))).is_err());
}

fn args(fake: &Fake) -> JwtArgs {
    let text = |text: &str| vec![text.to_owned()];
    JwtArgs {
        jwt_issuer: Some(fake.url()),
        jwt_audience: audience(),
        jwt_scope_claim: "groups".to_owned(),
        jwt_write: text("ops"),
        jwt_read: text("staff"),
        jwt_name_claim: "preferred_username".to_owned(),
        jwt_cacert: None,
    }
}

#[tokio::test]
async fn what_a_token_says_of_groups_is_what_it_is_for() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let tokens = args(&fake).open().expect("sound").expect("asked for");
    for (groups, scope) in [
        (json!(["ops"]), Some(Scope::Write)),
        (json!(["staff", "ops"]), Some(Scope::Write)),
        (json!(["staff", 7, null]), Some(Scope::Read)),
        (json!("openid staff"), Some(Scope::Read)),
        (json!("open staffing"), None),
        (json!(["Ops"]), None),
        (json!({ "ops": true }), None),
        (Value::Null, None),
    ] {
        let token = key.sign(&fake.claims_but("groups", groups.clone()));
        for _ in 0..2 {
            let bearer = tokens.bearer(&token).await.expect("it is good");
            let Bearer { id, name, scope: granted } = &*bearer;
            assert_eq!((*id < 0, name.as_str(), *granted), (true, "ada", scope), "{groups}");
        }
    }
    for (claim, value) in [("azp", "ops"), ("sub", "ops"), ("nonce", "ops"), ("iss", fake.url.as_str())] {
        let args = JwtArgs {
            jwt_scope_claim: claim.to_owned(),
            jwt_name_claim: claim.to_owned(),
            jwt_write: vec![value.to_owned()],
            ..args(&fake)
        };
        let tokens = args.open().expect("sound").expect("asked for");
        let token = key.sign(&fake.claims_but(claim, json!(value)));
        let bearer = tokens.bearer(&token).await.expect("it is good");
        assert_eq!((bearer.name.as_str(), bearer.scope), (value, Some(Scope::Write)), "{claim}");
    }
    let of = async |sub: &str| {
        tokens.bearer(&key.sign(&fake.claims_but("sub", json!(sub)))).await.expect("good").id
    };
    assert!(of("1").await == of("1").await && of("1").await != of("2").await);
    let nameless = key.sign(&fake.claims_but("preferred_username", json!(" ")));
    assert_eq!(tokens.bearer(&nameless).await.expect("good").name, "1");
    assert!(tokens.bearer(&key.sign(&fake.claims_but("aud", json!("other")))).await.is_err());
    assert!(JwtArgs { jwt_write: vec![], jwt_read: vec![], ..args(&fake) }.open().is_err());
    assert!(JwtArgs::default().open().expect("sound").is_none());
}

#[tokio::test]
async fn a_good_token_is_verified_once_and_not_taken_for_longer_than_it_is_good() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let tokens = Tokens::new(fake.issuer(), args(&fake));
    let token = key.sign(&fake.claims());
    let over = key.sign(&fake.claims_but("exp", json!(now() - 60)));
    for _ in 0..3 {
        assert!(tokens.bearer(&token).await.is_ok());
        // This token expires about now.
        let _ = tokens.bearer(&over).await;
    }
    assert!(tokens.bearer(&key.sign(&fake.claims_but("exp", json!(now() - 61)))).await.is_err());
    assert_eq!(fake.looks(), 1);
}

/// A person who is at the issuer, with what the issuer knows about the sign-in.
struct Traveller {
    sign_in: SignIn,
    cookie: String,
    query: Vec<(String, String)>,
}

impl Traveller {
    async fn depart(fake: &Fake, secret: Option<&str>) -> Self {
        let client = Registration {
            id: "linerate".to_owned(),
            secret: secret.map(str::to_owned),
            scopes: "openid groups".to_owned(),
        };
        let sign_in = SignIn::new(fake.issuer(), client).expect("random");
        let departure = sign_in.depart("http://localhost:1/back", "/links?q=a").await.expect("an issuer");
        let url = url::Url::parse(&departure.location).expect("a URL");
        assert_eq!((url.scheme(), url.path()), ("http", "/authorize"));
        Self { sign_in, cookie: departure.cookie, query: url.query_pairs().into_owned().collect() }
    }

    fn sent(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    fn back(&self) -> Return<'_> {
        Return { cookie: &self.cookie, state: self.sent("state"), code: "c0de", ..Return::default() }
    }
}

#[tokio::test]
async fn who_comes_back_from_the_issuer_with_a_code_is_signed_in() {
    let key = Key::new("a", Algorithm::ES256);
    for (methods, secret, basic) in [
        (Value::Null, None, false),
        (Value::Null, Some("s ecret"), true),
        (json!(["client_secret_post"]), Some("s ecret"), false),
    ] {
        let fake = Fake::start(&[&key]).await;
        fake.describe(json!({ "token_endpoint_auth_methods_supported": methods }));
        let traveller = Traveller::depart(&fake, secret).await;
        assert_eq!(traveller.sent("tenant"), "a", "what the issuer's own address says stays");
        assert_eq!(traveller.sent("code_challenge_method"), "S256");
        let token = key.sign(&fake.claims_but("nonce", json!(traveller.sent("nonce"))));
        fake.say("/token", 200, json!({ "id_token": token, "access_token": "a" }).to_string());
        let arrival = traveller.sign_in.arrive(traveller.back()).await.expect("signed in");
        assert_eq!((arrival.next.as_str(), arrival.claims.sub.as_str()), ("/links?q=a", "1"));
        let request = fake.says.asked.lock().expect("no panic").last().expect("a request").clone();
        let (head, form) = request.split_once("\r\n\r\n").expect("a form");
        let form: Vec<(String, String)> = url::form_urlencoded::parse(form.as_bytes()).into_owned().collect();
        let field = |name: &str| form.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let verifier = field("code_verifier").expect("a verifier");
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, verifier.as_bytes());
        assert_eq!(URL_SAFE_NO_PAD.encode(digest), traveller.sent("code_challenge"));
        assert_eq!((field("code"), field("redirect_uri")), (Some("c0de"), Some("http://localhost:1/back")));
        let pair = base64::engine::general_purpose::STANDARD.encode("linerate:s+ecret");
        assert_eq!(head.contains(&format!("Basic {pair}")), basic, "{head}");
        assert_eq!(field("client_secret").is_some(), secret.is_some() && !basic, "{methods}");
    }
}

#[tokio::test]
async fn who_signs_out_is_led_to_where_the_issuer_says_and_nowhere_less_safe() {
    let key = Key::new("a", Algorithm::ES256);
    for (place, expected) in [
        (Value::Null, Ok(None)),
        (json!("http://127.0.0.1:1/end?a=b"), Ok(Some("http://127.0.0.1:1/end?a=b&client_id=linerate"))),
        (json!("https://id.example/end"), Ok(Some("https://id.example/end?client_id=linerate"))),
        (json!("http://id.example/end"), Err(())),
        (json!("javascript:alert(1)"), Err(())),
        (json!("/end"), Err(())),
    ] {
        let fake = Fake::start(&[&key]).await;
        fake.describe(json!({ "end_session_endpoint": place }));
        let client = Registration { id: "linerate".to_owned(), secret: None, scopes: "openid".to_owned() };
        let led = SignIn::new(fake.issuer(), client).expect("random").leave().await;
        assert_eq!(led.as_ref().map(Option::as_deref).map_err(|_| ()), expected, "{place}");
    }
}

#[tokio::test]
async fn who_has_not_set_out_from_here_is_not_let_in() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let (one, other) = (Traveller::depart(&fake, None).await, Traveller::depart(&fake, None).await);
    let again = one.sign_in.depart("http://localhost:1/back", "/").await.expect("an issuer");
    let long = "a".repeat(5000);
    let token = key.sign(&fake.claims_but("nonce", json!(one.sent("nonce"))));
    fake.say("/token", 200, json!({ "id_token": token }).to_string());
    for (what, back) in [
        ("another's state", Return { state: other.sent("state"), ..one.back() }),
        ("another's cookie", Return { cookie: &other.cookie, ..one.back() }),
        ("a cookie of before", Return { cookie: &again.cookie, ..one.back() }),
        ("no cookie", Return { cookie: "", ..one.back() }),
        ("no state", Return { state: "", ..one.back() }),
        ("a nonce for a state", Return { state: one.sent("nonce"), ..one.back() }),
        ("a code that is long", Return { code: &long, ..one.back() }),
        ("of another process", other.back()),
    ] {
        assert_eq!(one.sign_in.arrive(back).await.err(), Some(Error::Unknown), "{what}");
    }
    let asked =
        fake.says.asked.lock().expect("no panic").iter().filter(|asked| asked.contains("/token")).count();
    assert_eq!(asked, 0, "no code of theirs is redeemed");
    assert!(one.sign_in.arrive(one.back()).await.is_ok());
}

#[tokio::test]
async fn an_answer_of_the_issuer_that_is_not_ours_signs_nobody_in() {
    let key = Key::new("a", Algorithm::ES256);
    let fake = Fake::start(&[&key]).await;
    let traveller = Traveller::depart(&fake, None).await;
    let nonce = json!(traveller.sent("nonce"));
    let with = |name: &str, value: Value| {
        let mut claims = fake.claims_but("nonce", nonce.clone());
        claims[name] = value;
        json!({ "id_token": key.sign(&claims) }).to_string()
    };
    for (status, body, error) in [
        (200, with("nonce", json!("another")), Error::Token(Refused::Nonce)),
        (200, with("nonce", Value::Null), Error::Token(Refused::Nonce)),
        (200, with("aud", json!("other")), Error::Token(Refused::Audience)),
        (200, with("azp", json!("other")), Error::Token(Refused::Audience)),
        (200, with("exp", json!(now() - 100)), Error::Token(Refused::Expired)),
        (400, r#"{"error":"invalid_grant"}"#.to_owned(), Error::Denied("invalid_grant".to_owned())),
        (302, String::new(), Error::Denied("302 Found".to_owned())),
    ] {
        fake.say("/token", status, body);
        assert_eq!(traveller.sign_in.arrive(traveller.back()).await.err(), Some(error.clone()), "{error}");
    }
    fake.say("/token", 200, "{}".to_owned());
    let nothing = traveller.sign_in.arrive(traveller.back()).await;
    assert!(matches!(nothing, Err(Error::Unavailable(_))), "{nothing:?}");
    let denied = Return { error: Some("access_denied"), ..traveller.back() };
    let denied = traveller.sign_in.arrive(denied).await.err();
    assert_eq!(denied, Some(Error::Denied("access_denied".to_owned())));
    let mixed_up = Return { iss: Some("https://evil.example"), ..traveller.back() };
    assert_eq!(traveller.sign_in.arrive(mixed_up).await.err(), Some(Error::Token(Refused::Issuer)));
}
