//! A box whose EFI partition is a directory and whose systemd-sysupdate is a script.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// Version 2 of `box` is running; the lowest version it accepts is 1.5.
pub struct Box {
    directory: TempDir,
}

impl Box {
    /// A box with these boot files, and a server that offers this version.
    pub fn new(files: &[&str], available: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        fs::create_dir_all(path.join("EFI/Linux")).unwrap();
        for file in files {
            fs::write(path.join("EFI/Linux").join(file), file).unwrap();
        }
        let sysupdate = path.join("systemd-sysupdate");
        let answer = format!(
            "echo \"$*\" >>{0}/asked\ncase $* in *check-new*) {available} ;; *) touch {0}/EFI/Linux/box_$2+2-0.efi ;; esac",
            path.display()
        );
        script(&sysupdate, &answer);
        let settings = serde_json::json!({
            "id": "box", "version": "2", "boot": path, "tries": 2, "floor": "1.5",
            "labels": [], "partitions": path,
            "source": "https://updates.example/", "sysupdate": sysupdate,
        });
        fs::write(path.join("update.json"), settings.to_string()).unwrap();
        Self { directory }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Changes one of its settings.
    pub fn set(&self, name: &str, value: serde_json::Value) {
        let path = self.path().join("update.json");
        let mut settings: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        settings[name] = value;
        fs::write(path, settings.to_string()).unwrap();
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_linerate"))
            .args(["--json", "update"])
            .args(arguments)
            .env("LINERATE_UPDATE_SETTINGS", self.path().join("update.json"))
            .output()
            .unwrap()
    }

    pub fn files(&self) -> BTreeSet<String> {
        fs::read_dir(self.path().join("EFI/Linux"))
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// The arguments that systemd-sysupdate got.
    pub fn asked(&self) -> String {
        fs::read_to_string(self.path().join("asked")).unwrap_or_default()
    }
}

/// Writes a program for a shell.
pub fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

pub const NOTHING: &str = r#"echo '{"available":null}'"#;
pub const THREE: &str = r#"echo '{"available":"3"}'"#;

pub fn set(files: &[&str]) -> BTreeSet<String> {
    files.iter().map(|&file| file.to_owned()).collect()
}
