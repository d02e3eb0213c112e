use super::*;

fn parsed(text: &str) -> Conninfo {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_connection_string_is_shown_without_its_password() {
    for (text, shown) in [
        ("postgres://ada:secret@db.example:5433/users?connect_timeout=5", "postgres://db.example:5433/users"),
        ("postgresql:///users?host=/run/postgresql", "postgres:///users"),
        ("postgres://linerate-api@%2Frun%2Fpostgresql/linerate-api", "postgres:///linerate-api"),
        ("postgres://ada:s%40cr%2Fet%3F%23@[::1]/users", "postgres://[::1]/users"),
        ("postgres://ada@db/users?password=secret", "postgres://db/users"),
        ("postgres://ada:secret@one,two:6432,[fd00::1]:5/users", "postgres://one,two:6432,[fd00::1]:5/users"),
        ("host=one,two port=5433 password='se\\'cret' dbname=a%b", "postgres://one:5433,two:5433/a%25b"),
        ("host = db  password = secret", "postgres://db/"),
        ("postgres://", "postgres:///"),
    ] {
        let conninfo = parsed(text);
        assert_eq!(format!("{conninfo:?}"), shown, "{text}");
        assert!(!format!("{conninfo} {conninfo:?}").contains("secret"), "{text}");
    }
}

#[test]
fn what_could_show_a_password_or_means_nothing_is_refused() {
    use InvalidConninfo::*;
    for (text, expected) in [
        ("postgres://ada:sec@ret@db/users", Url),
        ("postgres://ada:sec/ret@db/users", Url),
        ("postgres://ada:12/secret@db/users", Url),
        ("postgres://ada:sec?ret@db/users", Url),
        ("postgres://ada:sec#ret@db/users", Url),
        ("postgres://ada:12#secret@db/users", Url),
        ("postgres://ada:se:cret@db/users", Url),
        ("postgres://ada:100%@db/users", Url),
        ("postgres://ada:a b@db/users", Url),
        ("postgres://db/a%00b", Url),
        ("postgres:///ada:secret@db/users", Url),
        ("postgres://db/users?passwort=secret", Parameter),
        ("postgres://h:port/x", Value("port")),
        ("postgres://h:0/x", Value("port")),
        ("postgres://h:70000/x", Value("port")),
        ("postgres://h%40x/x", Value("host")),
        ("postgres://h/x?sslmode=prefer", Opportunistic),
        ("postgres://h/x?sslmode=on", Value("sslmode")),
        ("postgres://h/x?sslmode=disable&sslrootcert=system", Value("sslmode")),
        ("postgres://h/x?sslmode=require&sslrootcert=system", Value("sslmode")),
        ("host=h sslmode=verify-ca sslrootcert=system", Value("sslmode")),
        ("postgres://h/x?target_session_attrs=leader", Value("target_session_attrs")),
        ("postgres://h/x?sslcert=c.pem", KeyPair),
        ("postgres://h/x?hostaddr=1.2.3", Value("hostaddr")),
        ("postgres://h,i/x?hostaddr=1.2.3.4", Counts),
        ("postgres://h/x?connect_timeout=-1", Value("connect_timeout")),
        ("postgres://h/x?aws_iam_region=a/b", Value("aws_iam_region")),
        ("host=a,b port=1,2,3", Counts),
        ("host='a", Keywords),
        ("host", Keywords),
        ("", Keywords),
        ("mysql://x", Keywords),
    ] {
        let refused = text.parse::<Conninfo>();
        assert_eq!(refused, Err(expected), "{text}");
        assert!(!expected.to_string().contains("secret"), "{text}");
    }
    assert_eq!(format!("postgres://{}", "h,".repeat(99)).parse::<Conninfo>(), Err(Counts));
    assert_eq!("x".repeat(1 << 20).parse::<Conninfo>(), Err(Keywords));
}

#[test]
fn every_parameter_says_what_it_says_in_libpq() {
    let conninfo = parsed(
        "postgres://u:p%C3%A4@a:1,b:2/d?target_session_attrs=read-write&sslmode=verify-full&sslrootcert=/ca.pem\
         &sslcert=/c.pem&sslkey=/k.pem&channel_binding=require&connect_timeout=7&application_name=x\
         &options=-c%20work_mem%3D1MB&load_balance_hosts=random&passfile=/pass&sslnegotiation=direct",
    );
    let endpoint = |host: &str, port| Endpoint { host: Host::Tcp(host.into()), address: None, port };
    assert_eq!(conninfo.hosts, [endpoint("a", 1), endpoint("b", 2)]);
    assert_eq!((conninfo.user.as_deref(), conninfo.password.as_deref()), (Some("u"), Some("pä")));
    assert_eq!(conninfo.role(), Some(Role::ReadWrite));
    assert_eq!((conninfo.tls.mode, conninfo.tls.binding), (Some(TlsMode::VerifyFull), Binding::Require));
    assert_eq!(conninfo.options.as_deref(), Some("-c work_mem=1MB"));
    assert_eq!(conninfo.connect_timeout, Duration::from_secs(7));
    assert!(conninfo.balanced && conninfo.tls.direct);
    let files: Vec<_> = conninfo.files().map(|file| file.display().to_string()).collect();
    assert_eq!(files, ["/ca.pem", "/c.pem", "/k.pem", "/pass"]);
    assert_eq!(
        parsed("hostaddr=10.0.0.1").hosts,
        [Endpoint { address: Some([10, 0, 0, 1].into()), ..endpoint("10.0.0.1", PORT) }]
    );
    assert_eq!(parsed("host=@abstract").hosts[0].host, Host::Unix("@abstract".into()));
    for text in ["postgres://h/x?sslrootcert=system", "host=h sslmode=verify-full sslrootcert=system"] {
        let tls = parsed(text).tls;
        assert_eq!((tls.roots, tls.mode), (None, Some(TlsMode::VerifyFull)), "{text}");
    }
}
