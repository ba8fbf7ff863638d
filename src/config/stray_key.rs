//! Refuses private keys in the wrong place, without showing their secrets.

#[cfg(feature = "server")]
use super::ConfigError;

/// A kind of private key.
struct Kind {
    /// Start of its text. The digits of a version and a colon follow.
    label: &'static str,
    /// Name for people.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only files and options are refused"))]
    name: &'static str,
    /// What to do.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only files and options are refused"))]
    remedy: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        label: "zoolet-site-key-",
        name: "a site key",
        remedy: "Put the key into a separate file that only the server's user may read, and name that file. If \
                 others could read the key here, create a new one for all servers (zoolet keygen)",
    },
    Kind {
        label: "zoolet-server-key-",
        name: "a server's private key (the content of its server.key)",
        remedy: "Keep it in the server's data directory; `zoolet keygen --data DIR` prints its public key. \
                 If others could read the key here, delete server.key there: the next start creates a new one, \
                 whose public key goes into the files of all servers",
    },
];

/// Refuses a private key in `text`, which stands at `place`.
///
/// # Errors
/// Names the kind of key, what belongs at `place`, and what to do; never shows the key.
#[cfg(feature = "server")]
pub fn refuse_stray_key(place: &str, text: &str) -> Result<(), ConfigError> {
    let Some((kind, _)) = first(text) else { return Ok(()) };
    let belongs = belongs_at(place);
    Err(ConfigError::new(format!("{place}: found {} where {belongs}. {}", kind.name, kind.remedy)))
}

/// Refuses a private key in a file's key or value.
///
/// The colon of a private key may have split it into a key and a value.
///
/// # Errors
/// As [`refuse_stray_key`].
#[cfg(feature = "server")]
pub(super) fn refuse_in_line(key: &str, value: &str) -> Result<(), ConfigError> {
    // A key that contains a private key must not appear in the message as its place.
    refuse_stray_key("this line", &format!("{key}="))?;
    refuse_stray_key(key, value)
}

#[cfg(feature = "server")]
fn belongs_at(place: &str) -> &'static str {
    match place {
        "server.key" => "a server's public key belongs, which begins with zk1",
        "site_key_file" | "zoolet.siteKeyFile" | "zookeeper.zoolet.siteKeyFile" => "the name of its file belongs",
        file if file.ends_with("_file") => "the name of a file belongs",
        _ => "no key belongs",
    }
}

/// Returns `line` with the secret of each private key in it hidden.
pub fn without_secrets(line: &str) -> String {
    let (mut shown, mut rest) = (String::new(), line);
    while let Some((_, secret)) = first(rest) {
        let (before, behind) = rest.split_at(secret);
        let secret = behind.trim_start().trim_start_matches(['"', '\'']);
        let after = secret.trim_start_matches(|c: char| !c.is_whitespace() && !"\"'`".contains(c));
        // A line may only mention how a key begins.
        let has_secret = after.len() < secret.len();
        shown = shown + before + if has_secret { "(hidden)" } else { "" };
        rest = if has_secret { after } else { behind };
    }
    shown + rest
}

/// Returns the first private key in `text`: its kind, and the offset of its secret.
///
/// In a key, a version and then a colon or an equals sign follow the label. So a file named
/// `zoolet-site-key-plant:7` is not a key.
fn first(text: &str) -> Option<(&'static Kind, usize)> {
    let lower = text.to_ascii_lowercase();
    let found =
        KINDS.iter().flat_map(|kind| lower.match_indices(kind.label).map(move |(at, label)| (at + label.len(), kind)));
    let keys = found.filter_map(|(version, kind)| {
        let behind = lower[version..].trim_start_matches(|c: char| c.is_ascii_digit());
        let separator = behind.trim_start().chars().next().filter(|c| ":=".contains(*c))?;
        let has_version = behind.len() < lower.len() - version;
        let secret = lower.len() - behind.trim_start().len() + separator.len_utf8();
        has_version.then_some((kind, secret))
    });
    keys.min_by_key(|(_, secret)| *secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_key_is_hidden_in_every_line() {
        for (line, shown) in [
            ("no key", "no key"),
            ("a = \"zoolet-site-key-1:AB/+=_-\": no", "a = \"zoolet-site-key-1:(hidden)\": no"),
            (
                "zoolet-server-key-22:AB scp zoolet-server-key-22:AB",
                "zoolet-server-key-22:(hidden) scp zoolet-server-key-22:(hidden)",
            ),
            ("Zoolet-Server-Key-1 : AB zoolet-site-key-1=", "Zoolet-Server-Key-1 :(hidden) zoolet-site-key-1="),
            ("zoolet-site-key-1 = \"AB\" x", "zoolet-site-key-1 =(hidden)\" x"),
            ("one begins with `zoolet-site-key-1:`", "one begins with `zoolet-site-key-1:`"),
            ("/etc/zoolet/zoolet-site-key-plant:7", "/etc/zoolet/zoolet-site-key-plant:7"),
            ("/etc/zoolet-site-key-2026.key", "/etc/zoolet-site-key-2026.key"),
        ] {
            assert_eq!(without_secrets(line), shown);
        }
    }
}
