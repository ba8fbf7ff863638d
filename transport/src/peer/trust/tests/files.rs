//! Key files: created once, read back, refused with the remedy.

use crate::peer::trust::{Identity, SecretFileError, SiteKey};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("zoolet-trust-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        set_mode(&path, mode);
        path
    }

    /// Returns a refusal's line without the directory's name.
    fn line(&self, error: SecretFileError) -> String {
        let line = error.to_string();
        assert!(!line.contains('\n'), "{line}");
        line.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn first_start_creates_a_server_key_that_later_starts_reuse() {
    let directory = Directory::new("first");
    let key = Identity::open(&directory.0).unwrap().public_key();
    assert_eq!(Identity::open(&directory.0).unwrap().public_key(), key);
    assert_eq!(mode(&directory.0.join("server.key")), 0o600);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
    let other = Directory::new("other");
    assert_ne!(Identity::open(&other.0).unwrap().public_key(), key);
}

/// The power fails before the file has its final name. No peer knows the key yet, so the next start
/// creates another.
#[test]
fn unfinished_key_file_of_an_interrupted_start_is_discarded() {
    let directory = Directory::new("interrupted");
    directory.write("server.key.new", "zoolet-server-key-1:half", 0o666);
    Identity::open(&directory.0).unwrap();
    assert_eq!(mode(&directory.0.join("server.key")), 0o600);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1);
}

/// Golden: a release that derives another key becomes a stranger to its ensemble.
#[test]
fn golden_key_files_give_the_same_keys_in_every_release() {
    let directory = Directory::new("golden");
    directory.write("server.key", include_str!("golden/server.key"), 0o600);
    assert_eq!(
        Identity::open(&directory.0).unwrap().public_key().to_string(),
        include_str!("golden/server.pub").trim()
    );
    let path = directory.write("site.key", include_str!("golden/site.key"), 0o600);
    let key = SiteKey::read(&path).unwrap();
    assert_eq!(key.to_file_text(), include_str!("golden/site.key"));
    assert_eq!(key.fingerprint(), include_str!("golden/site.fingerprint").trim());
}

#[test]
fn server_key_accessible_to_other_users_is_refused() {
    let directory = Directory::new("readable");
    Identity::open(&directory.0).unwrap();
    let path = directory.0.join("server.key");
    for (bits, shown) in [(0o640, "0640"), (0o604, "0604"), (0o620, "0620"), (0o601, "0601")] {
        set_mode(&path, bits);
        assert_eq!(
            directory.line(Identity::open(&directory.0).unwrap_err()),
            format!(
                "server.key: other users may read or change this server key (mode {shown}): make a new one, or, if no other \
                 user can have read or changed it, run `chmod 600 {}`",
                path.display()
            )
            .replace(&format!("{}/", directory.0.display()), "")
        );
    }
    set_mode(&path, 0o400);
    Identity::open(&directory.0).unwrap();
}

#[test]
fn damaged_server_key_is_refused_and_its_file_unchanged() {
    let directory = Directory::new("damaged");
    Identity::open(&directory.0).unwrap();
    let path = directory.0.join("server.key");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() - 1 {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        let line = directory.line(Identity::open(&directory.0).unwrap_err());
        assert!(
            line.starts_with("server.key: this ") && line.contains(": restore it from a backup, or delete it: "),
            "{line}"
        );
        assert_eq!(fs::read(&path).unwrap(), damaged);
    }
    for length in 0..whole.len() - 1 {
        fs::write(&path, &whole[..length]).unwrap();
        Identity::open(&directory.0).unwrap_err();
    }
}

#[test]
fn site_key_file_is_read_back_also_when_edited_or_linked() {
    let directory = Directory::new("site");
    let key = SiteKey::generate().unwrap();
    let path = directory.write("site.key", key.to_file_text(), 0o600);
    assert_eq!(SiteKey::read(&path).unwrap(), key);
    // Edited by hand: without a line feed, or with CRLF. Mounted as a symlink, as container
    // platforms do.
    let text = key.to_file_text();
    directory.write("site.key", text.trim(), 0o400);
    assert_eq!(SiteKey::read(&path).unwrap(), key);
    let link = directory.0.join("link.key");
    symlink(&path, &link).unwrap();
    assert_eq!(SiteKey::read(&link).unwrap(), key);
    set_mode(&path, 0o600);
    directory.write("site.key", format!("{}\r\n", text.trim()), 0o600);
    assert_eq!(SiteKey::read(&path).unwrap(), key);
}

#[test]
fn invalid_site_key_file_is_refused_with_its_remedy() {
    let directory = Directory::new("junk");
    let key = SiteKey::generate().unwrap().to_file_text();
    let remedy =
        "copy the file from another server of this site, or make a new one for all servers with `zoolet keygen`";
    let short = &key[..key.len() - 20];
    let long = format!("{}AAAA", key.trim());
    let mut typo = key.clone();
    typo.replace_range(30..31, if &key[30..31] == "A" { "B" } else { "A" });
    let server = include_str!("golden/server.key");
    for (content, line) in [
        ("", "this site key is empty".to_owned()),
        ("\n\n", "this site key is empty".to_owned()),
        ("secret", "this is not a site key, which begins with `zoolet-site-key-1:`".to_owned()),
        ("zoolet-site-key-2:AAAA", "this is not a site key, which begins with `zoolet-site-key-1:`".to_owned()),
        (server, "this is not a site key, which begins with `zoolet-site-key-1:`".to_owned()),
        ("zoolet-site-key-1:", "this site key is too short: 0 of 48 characters follow the colon".to_owned()),
        (short, "this site key is too short: 29 of 48 characters follow the colon".to_owned()),
        (&long, "this site key is damaged: its checksum does not match".to_owned()),
        (&typo, "this site key is damaged: its checksum does not match".to_owned()),
    ] {
        let path = directory.write("site.key", content, 0o600);
        assert_eq!(directory.line(SiteKey::read(&path).unwrap_err()), format!("site.key: {line}: {remedy}"));
    }
    let path = directory.write("site.key", [0xff; 5000], 0o600);
    assert!(directory.line(SiteKey::read(&path).unwrap_err()).starts_with("site.key: this is not a site key, "));
    let path = directory.write("site.key", &key, 0o644);
    let line = directory.line(SiteKey::read(&path).unwrap_err());
    assert!(
        line.starts_with("site.key: other users may read or change this site key (mode 0644): make a new one, or, "),
        "{line}"
    );
    assert!(line.ends_with("if no other user can have read or changed it, run `chmod 600 site.key`"), "{line}");
    let missing = directory.line(SiteKey::read(directory.0.join("none.key")).unwrap_err());
    assert_eq!(missing, format!("none.key: no such file: {remedy}"));
    let line = directory.line(SiteKey::read(&directory.0).unwrap_err());
    assert!(line.ends_with("not a regular file: name the file with the key or certificate"), "{line}");
}

/// A secret must not reach a log line or a panic message.
#[test]
fn debug_output_of_keys_shows_no_secret() {
    let key = SiteKey::generate().unwrap();
    let text = key.to_file_text();
    let (_, secret) = text.trim().split_once(':').unwrap();
    assert_eq!(format!("{key:?}"), format!("SiteKey({})", key.fingerprint()));
    assert!(!secret.contains(&key.fingerprint()));
    let identity = Identity::generate().unwrap();
    assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.public_key()));
}

#[test]
fn new_site_key_file_is_private_and_an_existing_file_stays() {
    let directory = Directory::new("new-key");
    let (key, other) = (SiteKey::from_bytes([7; 32]), SiteKey::from_bytes([8; 32]));
    let path = directory.0.join("site.key");
    key.write_new(&path).unwrap();
    assert_eq!((mode(&path), SiteKey::read(&path).unwrap()), (0o600, key.clone()));
    let refused = other.write_new(&path).unwrap_err();
    assert!(matches!(refused, SecretFileError::Exists { .. }), "{refused}");
    assert!(directory.line(refused).starts_with("site.key exists and is not overwritten"));
    assert_eq!(SiteKey::read(&path).unwrap(), key);
    let nowhere = other.write_new(directory.0.join("none/site.key")).unwrap_err();
    assert_eq!(directory.line(nowhere), "none/site.key: its directory does not exist");
}

#[test]
fn debug_of_a_site_key_shows_its_fingerprint_only() {
    let key = SiteKey::from_bytes([0x5a; 32]);
    assert_eq!(format!("{key:?}"), format!("SiteKey({})", key.fingerprint()));
}
