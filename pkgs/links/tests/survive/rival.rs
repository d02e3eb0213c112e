//! Two servers on one port.

use std::process::Command;

use crate::server::{BINARY, Place, alone};

#[test]
fn a_second_server_on_a_port_gives_way_with_one_line() {
    let _alone = alone();
    let (place, other) = (Place::new(), Place::new());
    let server = place.serve(&[]);
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    let (public, admin) = (server.public.to_string(), server.admin.to_string());
    for (listen, admin) in [(&*public, "127.0.0.1:0"), ("127.0.0.1:0", &*admin)] {
        let second = Command::new(BINARY)
            .args(["serve", "--listen", listen, "--admin", admin, "--database"])
            .arg(&other.database)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&second.stderr);
        assert_eq!(second.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("error: ") && errors.lines().count() == 1, "{errors:?}");
        assert!(errors.contains("in use") && errors.contains("choose another port"), "{errors:?}");
    }
    // Neither kept nor new connections go to another server.
    for _ in 0..20 {
        assert_eq!(server.connect().get("abc").unwrap().status, 307);
    }
    server.stop();
}

#[test]
fn who_gives_the_public_address_for_the_api_is_told() {
    let _alone = alone();
    let place = Place::new();
    let server = place.serve(&[]);
    let api = format!("http://{}", server.public);
    for command in [&["list"][..], &["add", "https://t.example"]] {
        let output =
            Command::new(BINARY).args(command).args(["--token", "lr_x", "--api", &api]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("--api is the address of the admin listener"), "{said}");
    }
    server.stop();
}
