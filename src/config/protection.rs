//! ZooKeeper's security settings that are not implemented.
//!
//! A `zoo.cfg` that enables one is refused: a server that ignored it would serve clients that its
//! operator meant to keep out.

use super::ConfigError;
use std::sync::LazyLock;
use zoolet_profiles::{changes, changes_of_beginning};

/// A security setting, or several whose keys have a common prefix.
pub(super) struct Protection {
    key: Name,
    /// Accepted values, compared without case: they need nothing that is missing here. An empty
    /// value is always accepted.
    accepted: &'static [&'static str],
    /// Error text: what is missing, and what to do.
    refusal: &'static str,
}

enum Name {
    Whole(&'static str),
    Prefix(&'static str),
}

/// All security settings of ZooKeeper 3.9. The first that matches a key counts.
const PROTECTIONS: &[Protection] = &[
    switch("enforce.auth.enabled", CLIENTS_UNPROVED),
    switch("sessionRequireClientSASLAuth", CLIENTS_UNPROVED),
    // No release reads this key, but many guides name it: its author wants the same protection.
    Protection { key: Name::Whole("requireClientAuthScheme"), accepted: &["none"], refusal: CLIENTS_UNPROVED },
    Protection {
        key: Name::Prefix("authProvider."),
        // Both are implemented, and ZooKeeper enables them without this line too.
        accepted: &[
            "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
            "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
        ],
        refusal: "this authentication provider is not built yet, only digest and ip are; remove the line to \
                  serve without it",
    },
    Protection {
        key: Name::Whole("DigestAuthenticationProvider.enabled"),
        accepted: &["true"],
        refusal: "the scheme digest cannot be switched off yet; remove the line to serve with it",
    },
    Protection {
        key: Name::Whole("DigestAuthenticationProvider.digestAlg"),
        accepted: &["SHA1", "SHA-1"],
        refusal: "only SHA1 is built yet; remove the line to serve with SHA1",
    },
    Protection { key: Name::Whole("secureClientPort"), accepted: &["0"], refusal: IN_CLEAR },
    switch("client.portUnification", IN_CLEAR),
    Protection { key: Name::Prefix("ssl.quorum."), accepted: &["false", "none"], refusal: BY_SITE_KEY },
    Protection { key: Name::Prefix("ssl."), accepted: &["false", "none"], refusal: IN_CLEAR },
    switch("quorum.auth.enableSasl", BY_SITE_KEY),
    switch("quorum.auth.serverRequireSasl", BY_SITE_KEY),
    switch("quorum.auth.learnerRequireSasl", BY_SITE_KEY),
    switch("audit.enable", "the audit log is not built yet; remove the line to serve without a record of changes"),
];

const CLIENTS_UNPROVED: &str =
    "mandatory authentication is not built yet; remove the line to serve unauthenticated clients too";
const IN_CLEAR: &str = "TLS for clients is not built yet; remove the line to serve them unencrypted, on clientPort";
const BY_SITE_KEY: &str = "zoolet authenticates servers with the site key (zoolet.siteKeyFile), not with SASL \
                           or certificates of a zoo.cfg; remove the line";

const fn switch(key: &'static str, refusal: &'static str) -> Protection {
    Protection { key: Name::Whole(key), accepted: &["false"], refusal }
}

impl Protection {
    /// Returns the protection that a line enables, if any. `key` has no `zookeeper.` prefix.
    pub(super) fn asked_for(key: &str, value: &str) -> Option<&'static Self> {
        let found = PROTECTIONS.iter().find(|protection| protection.is_named(key))?;
        let is_off = value.is_empty() || found.accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(value));
        (!is_off).then_some(found)
    }

    /// Returns the error that prevents the start, without the value, which may be a password.
    pub(super) fn refusal(&self, written: &str) -> ConfigError {
        ConfigError::new(format!("{written}: {}", self.refusal))
    }

    fn is_named(&self, key: &str) -> bool {
        match self.key {
            Name::Whole(name) => name == key,
            Name::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// Ends of keys that [`PROTECTIONS`] knows only by prefix, for recognizing misspelt keys.
const OF_PREFIXES: &[&str] = &[
    "allowReverseDnsLookup",
    "authProvider",
    "ciphersuites",
    "clientAuth",
    "clientHostnameVerification",
    "context.supplier.class",
    "crl",
    "enabledProtocols",
    "hostnameVerification",
    "keyStore.location",
    "keyStore.password",
    "keyStore.passwordPath",
    "keyStore.type",
    "ocsp",
    "protocol",
    "trustStore.location",
    "trustStore.password",
    "trustStore.passwordPath",
    "trustStore.type",
];

/// Stems of protection keys: a key that begins almost like a stem means a protection.
///
/// Each entry has the stem's letters, how many of them may be wrong, and a key to suggest.
const FAMILIES: &[(&str, usize, &str)] = &[
    ("authprovider", 2, "authProvider.1"),
    ("enforceauth", 2, "enforce.auth.enabled"),
    ("sessionrequire", 2, "sessionRequireClientSASLAuth"),
    ("quorumauth", 2, "quorum.auth.enableSasl"),
    ("ssl", 0, "ssl.*"),
];

/// Distance counted for a key that begins like a family's stem. A whole key at the same distance
/// wins.
const CHANGES_OF_FAMILY: usize = 2;

/// Every known key, as a pair of its letters (see `letters`) and itself.
static LETTERS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let of_prefixes =
        ["ssl.", "ssl.quorum."].iter().flat_map(|prefix| OF_PREFIXES.iter().map(move |key| format!("{prefix}{key}")));
    keys().map(str::to_owned).chain(of_prefixes).map(|key| (letters(&key), key)).collect()
});

/// Returns the protection key or server line that an unknown `key` probably means.
///
/// Returns `None` for a protection if one of the `harmless` keys is nearer, or if the value enables
/// nothing.
pub(super) fn meant<'k>(key: &str, value: &str, harmless: impl Iterator<Item = &'k str>) -> Option<String> {
    let written = letters(key);
    if let Some(line) = meant_server(&written) {
        return Some(line);
    }
    let of_families = FAMILIES.iter().filter_map(|(stem, most, meant)| {
        let weight = if written == *stem { 0 } else { CHANGES_OF_FAMILY };
        changes_of_beginning(&written, stem, *most).map(|_| (weight, *meant))
    });
    let whole =
        LETTERS.iter().filter_map(|(known, key)| Some((changes(&written, known, forgiven(known))?, key.as_str())));
    let (distance, meant) = whole.chain(of_families).min_by_key(|(distance, _)| *distance)?;
    let is_harmless = |key: &str| changes(&written, &letters(key), distance).is_some_and(|changes| changes < distance);
    (Protection::asked_for(meant, value).is_some() && !harmless.into_iter().any(is_harmless)).then(|| meant.to_owned())
}

/// Returns whether `key` equals a protection's key except for dots and case.
pub(super) fn is_respelt(key: &str) -> bool {
    let written = letters(key);
    LETTERS.iter().any(|(known, _)| *known == written)
}

/// Returns the server line that is meant, if any.
///
/// A misspelt server line must not be ignored: a file without that server has another majority than
/// the others.
fn meant_server(written: &str) -> Option<String> {
    let stem = written.trim_end_matches(|c: char| c.is_ascii_digit());
    let id = &written[stem.len()..];
    (!id.is_empty() && changes(stem, "server", 1).is_some()).then(|| format!("server.{id}"))
}

/// Returns how many letters of a key may be wrong. A long key may lack a whole word.
fn forgiven(letters: &str) -> usize {
    (letters.len() / 4).min(6)
}

/// Maximum number of letters compared, more than any known key has. Bounds the cost of a
/// comparison.
const LETTERS_MAX: usize = 100;

/// Returns the letters and digits of a key in lower case, without the `zookeeper.` prefix.
fn letters(key: &str) -> String {
    let letters = key.chars().filter(|c| c.is_alphanumeric()).take(LETTERS_MAX);
    let all: String = letters.map(|c| c.to_ascii_lowercase()).collect();
    all.strip_prefix("zookeeper").map(str::to_owned).unwrap_or(all)
}

/// Returns whether `key` is one of these, whatever its value.
pub(super) fn is_known(key: &str) -> bool {
    PROTECTIONS.iter().any(|protection| protection.is_named(key))
}

/// Returns the whole keys and the prefixes.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROTECTIONS.iter().map(|protection| match protection.key {
        Name::Whole(name) | Name::Prefix(name) => name,
    })
}

/// Returns the whole keys, to suggest one for a misspelt key.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    PROTECTIONS.iter().filter_map(|protection| match protection.key {
        Name::Whole(name) => Some(name),
        Name::Prefix(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Loaded, Overrides, zoo_cfg};
    use super::*;
    use std::path::Path;

    fn parse(line: &str) -> Result<Loaded, String> {
        let text = format!("dataDir=/d\nclientPort=2181\n{line}\n");
        zoo_cfg::read(Path::new("zoo.cfg"), &text, &Overrides::default()).map_err(|error| error.to_string())
    }

    /// Each setting with a value that protects, and one that does not.
    const LIST: &[(&str, &str, &str)] = &[
        ("enforce.auth.enabled", "true", "false"),
        ("sessionRequireClientSASLAuth", "true", "false"),
        ("requireClientAuthScheme", "sasl", "none"),
        (
            "authProvider.1",
            "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
        ),
        (
            "authProvider.x509",
            "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
        ),
        ("DigestAuthenticationProvider.enabled", "false", "true"),
        ("DigestAuthenticationProvider.digestAlg", "SHA256", "SHA1"),
        ("secureClientPort", "2281", "0"),
        ("client.portUnification", "true", "false"),
        ("ssl.keyStore.location", "/etc/store.jks", ""),
        ("ssl.keyStore.password", "hunter2", ""),
        ("ssl.keyStore.passwordPath", "/etc/password", ""),
        ("ssl.trustStore.location", "/etc/trust.jks", ""),
        ("ssl.trustStore.password", "hunter2", ""),
        ("ssl.clientAuth", "need", "none"),
        ("ssl.hostnameVerification", "true", "false"),
        ("ssl.clientHostnameVerification", "true", "false"),
        ("ssl.authProvider", "x509", ""),
        ("ssl.crl", "true", "false"),
        ("ssl.ocsp", "true", "false"),
        ("ssl.protocol", "TLSv1.3", ""),
        ("ssl.ciphersuites", "TLS_AES_128_GCM_SHA256", ""),
        ("ssl.context.supplier.class", "com.example.Supplier", ""),
        ("ssl.quorum.keyStore.location", "/etc/store.jks", ""),
        ("ssl.quorum.trustStore.password", "hunter2", ""),
        ("ssl.quorum.clientAuth", "need", "none"),
        ("ssl.quorum.hostnameVerification", "true", "false"),
        ("quorum.auth.enableSasl", "true", "false"),
        ("quorum.auth.serverRequireSasl", "true", "false"),
        ("quorum.auth.learnerRequireSasl", "true", "false"),
        ("audit.enable", "true", "false"),
    ];

    #[test]
    fn unsupported_security_setting_is_refused() {
        for (key, on, _) in LIST {
            for written in [(*key).to_owned(), format!("zookeeper.{key}")] {
                let error = parse(&format!("{written}={on}")).map(|loaded| loaded.warnings).unwrap_err();
                assert!(error.starts_with(&format!("zoo.cfg:3: {written}: ")), "{error}");
                assert!(error.contains("remove the line") && error.lines().count() == 1, "{error}");
                assert!(!error.contains(on), "{error} shows {on}");
            }
        }
    }

    #[test]
    fn disabled_security_setting_is_accepted() {
        for (key, _, off) in LIST {
            let loaded = parse(&format!("{key}={off}"));
            assert_eq!(loaded.map(|loaded| loaded.warnings), Ok(vec![]), "{key}={off}");
        }
        assert!(parse("enforce.auth.enabled=FALSE").is_ok());
        // Lines that only configure a protection, grant more rights, or name a protection that
        // every server here has.
        for line in [
            "enforce.auth.schemes=sasl",
            "secureClientPortAddress=127.0.0.1",
            "allowSaslFailedClients=true",
            "quorum.auth.server.saslLoginContext=QuorumServer",
            "X509AuthenticationProvider.superUser=CN=admin",
            "superUser=admin",
            "sslQuorum=true",
            "fips-mode=true",
        ] {
            let warnings = parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).warnings;
            assert!(warnings.len() == 1 && !warnings[0].contains("no such key"), "{line} gave {warnings:?}");
        }
    }

    #[test]
    fn misspelt_key_of_a_security_setting_is_refused() {
        for (line, meant) in [
            ("enforce.auth.enable=true", "enforce.auth.enabled"),
            ("sessionRequireClientSaslAuth=true", "sessionRequireClientSASLAuth"),
            ("quorum.auth.enableSASL=true", "quorum.auth.enableSasl"),
        ] {
            let error = parse(line).map(|loaded| loaded.warnings).unwrap_err();
            assert!(error.ends_with(&format!("no such key; did you mean {meant}?")), "{error}");
        }
    }

    #[test]
    fn misspelt_key_of_a_security_setting_family_is_refused() {
        const SASL: &str = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
        for (key, value, meant) in [
            ("AuthProvider.1", SASL, "authProvider.1"),
            ("authprovider.1", SASL, "authProvider.1"),
            ("authProviders.1", SASL, "authProvider.1"),
            ("auth.provider.sasl", SASL, "authProvider.1"),
            ("autProvider.x509", SASL, "authProvider.1"),
            ("SSL.keyStore.location", "/k", "ssl.keyStore.location"),
            ("sslkeyStore.location", "/k", "ssl.keyStore.location"),
            ("sl.keyStore.password", "k", "ssl.keyStore.password"),
            ("tls.keyStore.password", "k", "ssl.keyStore.password"),
            ("Zookeeper.ssl.trustStore.location", "/k", "ssl.trustStore.location"),
            ("ssl_quorum_keyStore_location", "/k", "ssl.quorum.keyStore.location"),
            ("sslEverything", "true", "ssl.*"),
            ("ssl", "true", "ssl.*"),
            ("secure.client.port", "2281", "secureClientPort"),
            ("enforce.auth", "true", "enforce.auth.enabled"),
            ("enforceAuth", "true", "enforce.auth.enabled"),
            ("enforce.authentication.enabled", "true", "enforce.auth.enabled"),
            ("sessionRequireSASLAuth", "true", "sessionRequireClientSASLAuth"),
            ("sessionRequiresClientSASLAuth", "true", "sessionRequireClientSASLAuth"),
            ("sessionRequireAuth", "true", "sessionRequireClientSASLAuth"),
            ("quorum.auth.require", "true", "quorum.auth.enableSasl"),
            ("quorum.auth.server.requireSasl", "true", "quorum.auth.serverRequireSasl"),
            ("auditEnabled", "true", "audit.enable"),
            ("serverr.4", "a:1:2", "server.4"),
            ("Server.4", "a:1:2", "server.4"),
            ("servers.4", "a:1:2", "server.4"),
            ("sevrer.4", "a:1:2", "server.4"),
            ("server4", "a:1:2", "server.4"),
        ] {
            for written in [key.to_owned(), format!("zookeeper.{key}")] {
                let error = parse(&format!("{written}={value}")).map(|loaded| loaded.warnings).unwrap_err();
                assert_eq!(error, format!("zoo.cfg:3: {written}: no such key; did you mean {meant}?"));
            }
        }
        for line in ["AuthProvider.1=", "sessionRequireSASLAuth=false", "SSL.clientAuth=none", "enforce.auth=false"] {
            let warnings = parse(line).map(|loaded| loaded.warnings).unwrap();
            assert!(warnings.len() == 1 && warnings[0].contains("no such key, ignored"), "{line}: {warnings:?}");
        }
    }

    /// Keys of ZooKeeper and of other tools that protect nothing and are in no list here.
    const HARMLESS: &[&str] = &[
        "IPAuthenticationProvider.usexforwardedfor",
        "clientPorts",
        "client",
        "session.timeout",
        "sessionTimeout",
        "requestTimeout",
        "observer.syncEnabled",
        "observers",
        "serverId",
        "servers",
        "security",
        "quorumPort",
        "quorum.size",
        "enforce",
        "authorization",
        "secret",
        "secure",
        "digest",
        "digestAlgorithm",
        "sync",
        "skipAcls",
        "zookeeper.root.logger",
    ];

    #[test]
    fn known_harmless_keys_and_their_typos_are_no_security_settings() {
        let is_whole = |key: &&str| !key.ends_with(['.', '_']);
        let listed: Vec<&str> = zoo_cfg::listed_keys().filter(is_whole).collect();
        for key in listed.iter().chain(HARMLESS) {
            // Other people's spellings, and a typing mistake.
            let typo = format!("{key}x");
            for written in [(*key).to_owned(), key.to_lowercase(), key.to_uppercase(), key.replace('.', "_"), typo] {
                if listed.contains(&&*written) || written == "PORTUNIFICATION" {
                    continue;
                }
                let said =
                    parse(&format!("{written}=1")).map_or_else(|error| error, |loaded| loaded.warnings.join("\n"));
                assert!(!said.starts_with("zoo.cfg:3"), "{said}");
            }
        }
    }

    #[test]
    fn every_security_setting_is_in_the_tested_list() {
        for key in keys() {
            assert!(LIST.iter().any(|(listed, ..)| *listed == key), "{key}");
        }
    }
}
