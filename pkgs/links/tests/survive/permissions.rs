//! A database that everybody can read, as older releases created it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::server::{Place, alone};

#[test]
fn a_database_that_is_open_to_everybody_is_private_once_it_is_served() {
    let _alone = alone();
    let place = Place::new();
    let modes = || {
        ["", "-wal", "-shm"].map(|end| {
            let path = format!("{}{end}", place.database.display());
            fs::metadata(&path).map_or(0, |metadata| metadata.mode() & 0o777)
        })
    };
    // A crash leaves the log and its index beside the database.
    place.serve(&[]).kill();
    for end in ["", "-wal", "-shm"] {
        let path = format!("{}{end}", place.database.display());
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    let server = place.serve(&[]);
    assert_eq!(modes(), [0o600; 3]);
    server.wait_for_log("everybody on this machine could use the database");
    assert_eq!(server.api().create("abc", "https://t.example/").unwrap(), 201);
    server.stop();
    // Permissions that were granted to a group stay.
    fs::set_permissions(&place.database, Permissions::from_mode(0o660)).unwrap();
    let server = place.serve(&[]);
    assert_eq!(server.connect().get("abc").unwrap().status, 307);
    assert_eq!(modes(), [0o660; 3]);
    server.stop();
}
