//! `zoolet keygen`: makes a site key, or shows a server's public key.
//!
//! Servers of a site authenticate each other with the site key. A configuration may pin public
//! keys.

use super::{Exit, complain, say};
use std::path::{Path, PathBuf};
use zoolet::config::{SiteKey, SiteKeyError};
use zoolet_transport::peer::trust::Identity;

/// The key to make or show.
pub(super) enum Keygen {
    /// Print a new site key on stdout.
    Print,
    /// Write a new site key to a file that must not exist yet.
    Write(PathBuf),
    /// Print the public key of this data directory's server, creating its key pair if necessary.
    OfServer(PathBuf),
}

pub(super) fn keygen(what: &Keygen) -> Result<(), Exit> {
    match what {
        Keygen::Print => say(&SiteKey::generate().map_err(Exit::failed)?.to_file_text()),
        Keygen::Write(file) => {
            let key = SiteKey::generate().map_err(Exit::failed)?;
            key.write_new(file).map_err(|error| refused(&error))?;
            say(&format!(
                "{}: site key {}; copy it to every server of the site, mode 0600\n",
                file.display(),
                key.fingerprint()
            ))
        }
        Keygen::OfServer(data) => {
            if !data.is_dir() {
                return Err(Exit::usage(format!("--data = {}: allowed is an existing data directory", data.display())));
            }
            of_server(data)
        }
    }
}

/// Prints the key on stdout, for scripts, and the instructions on stderr, for people.
fn of_server(data: &Path) -> Result<(), Exit> {
    // A key outside a data directory might be pinned, but no server could present it.
    zoolet::check_data_directory(data).map_err(|line| Exit::usage(format!("--data = {line}")))?;
    let is_new = !data.join("server.key").exists();
    let key = Identity::open(data).map_err(Exit::failed)?.public_key();
    say(&format!("{key}\n"))?;
    let which = if is_new { "this server's new key" } else { "this server's existing key" };
    complain(&format!("{which}: write key = \"{key}\" under its id in the zoolet.toml of every server"));
    Ok(())
}

fn refused(error: &SiteKeyError) -> Exit {
    match error {
        SiteKeyError::Exists { .. } | SiteKeyError::NoDirectory { .. } => Exit::usage(error),
        _ => Exit::failed(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn generated_key_is_private_to_its_owner_and_never_overwritten() {
        let file = std::env::temp_dir().join(format!("zoolet-keygen-{}", std::process::id()));
        let _ = fs::remove_file(&file);
        assert!(keygen(&Keygen::Write(file.clone())).is_ok());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::read(&file).unwrap();
        assert!(SiteKey::read(&file).is_ok());
        let Err(again) = keygen(&Keygen::Write(file.clone())) else { panic!("overwritten") };
        assert!(again.code == 2 && again.line.contains("exists and is not overwritten"), "{}", again.line);
        assert_eq!(fs::read(&file).unwrap(), before);
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn repeated_keygen_keeps_the_server_key_of_a_data_directory() {
        let data = std::env::temp_dir().join(format!("zoolet-keygen-data-{}", std::process::id()));
        let Err(absent) = keygen(&Keygen::OfServer(data.clone())) else { panic!("made from nothing") };
        assert_eq!(absent.code, 2);
        fs::create_dir(&data).unwrap();
        assert!(keygen(&Keygen::OfServer(data.clone())).is_ok());
        let first = fs::read(data.join("server.key")).unwrap();
        assert!(keygen(&Keygen::OfServer(data.clone())).is_ok());
        assert_eq!(fs::read(data.join("server.key")).unwrap(), first);
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn keygen_refuses_a_directory_with_foreign_files() {
        let directory = std::env::temp_dir().join(format!("zoolet-keygen-else-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("photo.jpg"), "").unwrap();
        let Err(refused) = keygen(&Keygen::OfServer(directory.clone())) else { panic!("made among photos") };
        assert!(
            refused.code == 2
                && refused.line.starts_with(&format!("--data = {}: is not empty", directory.display()))
                && refused.line.contains("not zoolet's (it holds \"photo.jpg\")"),
            "{}",
            refused.line
        );
        assert!(!directory.join("server.key").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
