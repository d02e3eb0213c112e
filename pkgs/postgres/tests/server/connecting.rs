//! TLS, passwords, hosts and roles.

use std::net::TcpListener;

use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn each_mode_of_tls_takes_what_libpq_says_it_takes() {
    let server = Server::start(&[]);
    let (ca, other) = (server.at("server.pem"), server.at("client.pem"));
    let (certificate, key) = (server.at("client.pem"), server.at("client.key"));
    let url =
        |user: &str, host: &str, parameters: &str| format!("postgres://{user}@{host}/postgres?{parameters}");
    let here = server.address.as_str();
    for (user, parameters, expected) in [
        ("ada:secret", format!("sslmode=verify-full&sslrootcert={ca}"), Ok(true)),
        ("ada:secret", format!("sslmode=verify-full&sslrootcert={ca}&channel_binding=require"), Ok(true)),
        ("ada:secret", format!("sslmode=verify-ca&sslrootcert={ca}"), Ok(true)),
        ("ada:secret", format!("sslrootcert={ca}"), Ok(true)),
        ("ada:secret", "sslmode=require".into(), Ok(true)),
        ("ada:secret", "sslmode=require&channel_binding=require".into(), Ok(true)),
        ("plain", "sslmode=disable".into(), Ok(false)),
        ("plain", String::new(), Ok(false)),
        ("bob", format!("sslrootcert={ca}&sslcert={certificate}&sslkey={key}"), Ok(true)),
        ("bob", format!("sslrootcert={ca}"), Err("certificate")),
        ("ada:secret", "sslmode=disable".into(), Err("no encryption")),
        ("ada:wrong", format!("sslrootcert={ca}"), Err("password authentication failed")),
        ("ada:secret", format!("sslmode=verify-full&sslrootcert={other}"), Err("UnknownIssuer")),
        ("ada:secret", "sslrootcert=/nowhere.pem".into(), Err("/nowhere.pem")),
        ("ada:secret", "sslmode=verify-full".into(), Err("invalid peer certificate")),
    ] {
        let what = format!("{user} {parameters}");
        let connected = connect(&url(user, here, &parameters)).await;
        match (connected, expected) {
            (Ok(session), Ok(by_tls)) => {
                let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                let rows = session.query(sql, &[]).await.expect("it answers");
                assert_eq!(rows[0].get::<_, bool>(0), by_tls, "{what}");
                assert!(!session.is_pooled(), "{what}");
            }
            (Err(error), Err(part)) => {
                let text = error.to_string();
                assert!(text.contains(part) && !text.contains("secret"), "{what}: {text}");
            }
            (Ok(_), Err(_)) => panic!("{what}: connected"),
            (Err(error), Ok(_)) => panic!("{what}: {error}"),
        }
    }
    // The host's name isn't in the certificate, although the address is the same.
    let named = |mode: &str| {
        format!(
            "hostaddr={here} host=db.example user=ada password=secret dbname=postgres sslmode={mode} sslrootcert={ca}"
        )
    };
    assert!(connect(&named("verify-ca")).await.is_ok());
    let refused = connect(&named("verify-full")).await.err().expect("another's certificate").to_string();
    assert!(refused.contains("not valid for name"), "{refused}");
}

#[tokio::test]
async fn hosts_are_tried_one_by_one_for_the_role_and_each_has_a_deadline() {
    let (writable, readable) = (Server::start(&[]), Server::start(&["default_transaction_read_only=on"]));
    // It accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    let dead = "127.0.0.1:1";
    let hosts = format!("{dead},{silent},{},{}", readable.address, writable.address);
    let hosts = &hosts;
    let tries = [
        ("read-write", Some(&writable)),
        ("read-only", Some(&readable)),
        ("any", Some(&readable)),
        ("primary", Some(&readable)),
        ("prefer-standby", Some(&readable)),
        ("standby", None),
    ]
    .map(|(role, expected)| async move {
        let url = format!("postgres://plain@{hosts}/postgres?target_session_attrs={role}&connect_timeout=5");
        match (connect(&url).await, expected) {
            (Ok(session), Some(server)) => {
                assert_eq!(session.server(), format!("{}:5432", server.address), "{role}")
            }
            (Err(error), None) => {
                let text = error.to_string();
                for part in ["127.0.0.1:1: Connection refused", "no answer within 5s", "it is the primary"] {
                    assert!(text.contains(part), "{text}");
                }
            }
            (Ok(session), None) => panic!("{role}: {}", session.server()),
            (Err(error), Some(_)) => panic!("{role}: {error}"),
        }
    });
    // The silent host takes all of its time, so they wait together.
    join_all(tries).await;
}
