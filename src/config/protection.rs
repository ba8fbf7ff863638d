//! ZooKeeper's settings that protect and are not built. A `zoo.cfg` that asks for one is refused: a server that started
//! without it would serve clients that its operator meant to keep out.

use super::ConfigError;

/// A setting that protects, or several whose keys begin alike.
pub(super) struct Protection {
    key: Name,
    /// Values that ask for nothing which is missing here, upper and lower case being one. An empty value never does.
    accepted: &'static [&'static str],
    /// What is missing, and what helps.
    refusal: &'static str,
}

enum Name {
    Whole(&'static str),
    Prefix(&'static str),
}

/// Every one that ZooKeeper 3.9 has. The first that fits a key counts.
const PROTECTIONS: &[Protection] = &[
    switch("enforce.auth.enabled", CLIENTS_UNPROVED),
    switch("sessionRequireClientSASLAuth", CLIENTS_UNPROVED),
    // No release reads it, and many guides have it: its author asks for the same.
    Protection { key: Name::Whole("requireClientAuthScheme"), accepted: &["none"], refusal: CLIENTS_UNPROVED },
    Protection {
        key: Name::Prefix("authProvider."),
        // These two are here, and ZooKeeper has them without the line as well.
        accepted: &[
            "org.apache.zookeeper.server.auth.DigestAuthenticationProvider",
            "org.apache.zookeeper.server.auth.IPAuthenticationProvider",
        ],
        refusal: "this authentication provider is not built yet, only those of digest and ip are; \
                  remove the line to serve without it",
    },
    Protection {
        key: Name::Whole("DigestAuthenticationProvider.enabled"),
        accepted: &["true"],
        refusal: "the scheme digest cannot be switched off yet; remove the line to serve with it",
    },
    Protection {
        key: Name::Whole("DigestAuthenticationProvider.digestAlg"),
        accepted: &["SHA1", "SHA-1"],
        refusal: "no other algorithm than SHA1 is built yet; remove the line to serve with SHA1",
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
    "clients cannot be made to authenticate yet; remove the line to serve those that do not, too";
const IN_CLEAR: &str = "TLS for clients is not built yet; remove the line to serve them in clear, on clientPort";
const BY_SITE_KEY: &str = "servers here prove themselves by the site key (zoolet.siteKeyFile), and neither by SASL nor by \
                           certificates of a zoo.cfg; remove the line";

const fn switch(key: &'static str, refusal: &'static str) -> Protection {
    Protection { key: Name::Whole(key), accepted: &["false"], refusal }
}

impl Protection {
    /// The protection that a line of a `zoo.cfg` asks for, if it asks for one. `key` is without its `zookeeper.`.
    pub(super) fn asked_for(key: &str, value: &str) -> Option<&'static Self> {
        let found = PROTECTIONS.iter().find(|protection| protection.is_named(key))?;
        let is_off = value.is_empty() || found.accepted.iter().any(|accepted| accepted.eq_ignore_ascii_case(value));
        (!is_off).then_some(found)
    }

    /// Why the server does not start. The value is left out: some of these are passwords.
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

/// Whether `key` is one of these, whatever its value.
pub(super) fn is_known(key: &str) -> bool {
    PROTECTIONS.iter().any(|protection| protection.is_named(key))
}

/// The whole keys, for a key that is nearly one of them.
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
    fn a_setting_that_protects_is_refused_until_it_is_built() {
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
    fn a_value_that_switches_a_protection_off_is_accepted() {
        for (key, _, off) in LIST {
            let loaded = parse(&format!("{key}={off}"));
            assert_eq!(loaded.map(|loaded| loaded.warnings), Ok(vec![]), "{key}={off}");
        }
        assert!(parse("enforce.auth.enabled=FALSE").is_ok());
        // What only says how, or gives more rights, or is a protection that every server here has.
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
    fn a_key_that_is_nearly_a_protections_is_refused() {
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
    fn every_protection_is_in_the_list() {
        for key in keys() {
            assert!(LIST.iter().any(|(listed, ..)| *listed == key), "{key}");
        }
    }
}
