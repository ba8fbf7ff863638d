//! `zoolet keygen`: the secret that servers of a site know each other by, and the public keys that they may be pinned by.

use super::{Exit, complain, say};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use zoolet_transport::peer::trust::{Identity, SiteKey};

/// What to make, or to show.
pub(super) enum Keygen {
    /// A site key, on stdout.
    Print,
    /// A site key, in a file that is not there yet.
    Write(PathBuf),
    /// The public key of a data directory's server, whose pair is made if it has none.
    OfServer(PathBuf),
}

pub(super) fn keygen(what: &Keygen) -> Result<(), Exit> {
    match what {
        Keygen::Print => say(&SiteKey::generate().map_err(Exit::failed)?.to_file_text()),
        Keygen::Write(file) => {
            let key = SiteKey::generate().map_err(Exit::failed)?;
            create(file, &key.to_file_text()).map_err(|error| refused(file, &error))?;
            say(&format!(
                "{}: site key {}; copy it to every server of the site, mode 0600\n",
                file.display(),
                key.fingerprint()
            ))
        }
        Keygen::OfServer(data) => {
            if !data.is_dir() {
                return Err(Exit::usage(format!(
                    "--server = {}: allowed is a data directory that exists",
                    data.display()
                )));
            }
            of_server(data)
        }
    }
}

/// Only the key goes to stdout, for scripts; what to do with it is for people.
fn of_server(data: &Path) -> Result<(), Exit> {
    // A key that lies where no server looks for it would be pinned, and nobody could show it.
    zoolet::check_data_directory(data).map_err(|line| Exit::usage(format!("--server = {line}")))?;
    let is_new = !data.join("server.key").exists();
    let key = Identity::open(data).map_err(Exit::failed)?.public_key();
    say(&format!("{key}\n"))?;
    let which = if is_new { "this server's new key" } else { "this server's key, which it had already" };
    complain(&format!("{which}: write key = \"{key}\" under its id in the zoolet.toml of every server"));
    Ok(())
}

/// Whoever makes a key over another one locks its servers out, so a file that is there stays.
fn create(file: &Path, text: &str) -> io::Result<()> {
    let mut created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    // The name lies in the directory: without its sync, a power cut could leave servers with a key that this file lost.
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let written = created
        .write_all(text.as_bytes())
        .and_then(|()| created.sync_all())
        .and_then(|()| File::open(directory)?.sync_all());
    if written.is_err() {
        // Half a key is none, and would be in the way of the next.
        let _ = fs::remove_file(file);
    }
    written
}

fn refused(file: &Path, error: &io::Error) -> Exit {
    let file = file.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => Exit::usage(format!(
            "{file} is there already, and is not overwritten: servers that have it know each other by it"
        )),
        io::ErrorKind::NotFound => Exit::usage(format!("{file}: its directory does not exist")),
        _ => Exit::failed(format!("{file}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_its_owners_alone_and_never_overwritten() {
        let file = std::env::temp_dir().join(format!("zoolet-keygen-{}", std::process::id()));
        let _ = fs::remove_file(&file);
        assert!(keygen(&Keygen::Write(file.clone())).is_ok());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::read(&file).unwrap();
        assert!(SiteKey::read(&file).is_ok());
        let Err(again) = keygen(&Keygen::Write(file.clone())) else { panic!("overwritten") };
        assert!(again.code == 2 && again.line.contains("is there already"), "{}", again.line);
        assert_eq!(fs::read(&file).unwrap(), before);
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_data_directory_keeps_its_key() {
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
    fn a_directory_of_something_else_gets_no_key() {
        let directory = std::env::temp_dir().join(format!("zoolet-keygen-else-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("photo.jpg"), "").unwrap();
        let Err(refused) = keygen(&Keygen::OfServer(directory.clone())) else { panic!("made among photos") };
        assert!(
            refused.code == 2
                && refused.line.starts_with(&format!("--server = {}: is not empty", directory.display()))
                && refused.line.contains("not zoolet's (it holds \"photo.jpg\")"),
            "{}",
            refused.line
        );
        assert!(!directory.join("server.key").exists());
        fs::remove_dir_all(&directory).unwrap();
    }
}
