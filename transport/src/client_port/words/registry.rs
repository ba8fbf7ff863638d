//! The registry of four-letter words: text, access, and the answer in a sentence.
//!
//! The enum, the whitelist and the table of `docs/reference/metrics.md` come from the one list below.

use std::net::IpAddr;

/// Defines `Word` from rows of name, text, access, and the answer as Markdown for the reference.
macro_rules! words {
    ($($name:ident $text:literal $access:ident $answer:literal;)+) => {
        /// The words this server answers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "the names are ZooKeeper's own, except zool")]
        pub enum Word {
            $($name),+
        }

        impl Word {
            /// Every word.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$name),+];

            /// Returns the word as sent by the client.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }

            /// Returns which clients may ask it.
            pub const fn access(self) -> Access {
                match self {
                    $(Self::$name => Access::$access),+
                }
            }

            /// Returns what the server answers, as Markdown for the reference page.
            pub const fn answer(self) -> &'static str {
                match self {
                    $(Self::$name => $answer),+
                }
            }
        }
    };
}

words! {
    Ruok "ruok" Listed "`imok`, also while the server does not serve";
    Srvr "srvr" Default "version, latency, counts, zxid and role";
    Stat "stat" Listed "`srvr`, and a line for each connection";
    Mntr "mntr" Listed "[the metrics](#metrics)";
    Isro "isro" Readers "`rw`; `ro` while the server serves clients that ask to read only; `null` while it serves no \
        client";
    Envi "envi" Listed "version, host and user; the keys about Java say that this is not a Java server. \
        `os.memory.free` and `os.memory.max` are the machine's available and whole memory, `os.memory.total` is the \
        resident memory of this process";
    Conf "conf" Listed "the settings, the file sizes of `dirs`, and the members of the ensemble";
    Cons "cons" Listed "a line for each connection with its session, its last request and its latency";
    Dump "dump" Listed "sessions and connections by the second (UTC) in which they expire if they stay silent, and \
        each session's ephemerals; a server that does not lead lists global sessions with their timeouts instead; \
        connections without a session are left out";
    Wchs "wchs" Listed "the numbers of watches, of watched paths and of watching connections; sent once all watches are \
        counted";
    Wchc "wchc" Listed "the watched paths of each session";
    Wchp "wchp" Listed "the watching sessions of each path";
    Dirs "dirs" Listed "file sizes, counted on a separate thread: `logdir_size` is the segments of the log, \
        `datadir_size` everything else but the reserve";
    Crst "crst" Listed "resets the statistics of `cons`";
    Srst "srst" Listed "resets the latencies and the counts of messages";
    Zool "zool" Here "only zoolet has it: [the status as JSON](status.md), also while the server does not serve";
}

/// ZooKeeper's other words (surface 9.1): answered as not in the whitelist.
pub(in crate::client_port) const FOREIGN: [&str; 3] = ["gtmk", "hash", "stmk"];

/// Which clients may ask a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Every client, unless a configured whitelist leaves the word out.
    Default,
    /// Every client, if the configured whitelist names the word.
    Listed,
    /// As [`Access::Listed`]; without a configured whitelist also if the server may serve readers.
    Readers,
    /// As [`Access::Listed`]; in addition, each client on this host.
    Here,
}

impl Word {
    /// Returns the word with this text.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.text() == text)
    }

    /// Returns whether the word is answered to `asker`.
    ///
    /// `own` is the local address that the client connected to.
    pub(in crate::client_port) fn is_allowed(self, list: Whitelist, asker: IpAddr, own: Option<IpAddr>) -> bool {
        list.allows(self)
            || match self.access() {
                Access::Default | Access::Listed | Access::Readers => false,
                Access::Here => is_here(asker, own),
            }
    }
}

/// Whether `client` is on this host: it comes from loopback or from `own`, the address it connected
/// to.
pub(in crate::client_port) fn is_here(client: IpAddr, own: Option<IpAddr>) -> bool {
    client.to_canonical().is_loopback() || own == Some(client)
}

/// The set of words that are answered (4lw.commands.whitelist).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Whitelist(u32);

// Each word has a bit. A word beyond the last bit would share one with another word.
const _: () = assert!(Word::ALL.len() <= u32::BITS as usize, "widen Whitelist: it has no bit left for this word");

impl Whitelist {
    /// No word.
    pub const NONE: Self = Self(0);
    /// Every word: `*`.
    pub const ALL: Self = Self(u32::MAX >> (u32::BITS as usize - Word::ALL.len()));

    /// Parses ZooKeeper's notation: words separated by commas, or `*`.
    ///
    /// Unknown words allow nothing, as in ZooKeeper.
    pub fn parse(list: &str) -> Self {
        if list.trim() == "*" {
            return Self::ALL;
        }
        list.split(',').filter_map(|name| Word::from_text(name.trim())).fold(Self::NONE, Self::with)
    }

    /// Returns this set with `word` added. A server with `readonlymode.enabled` also answers
    /// `isro`.
    #[must_use]
    pub const fn with(self, word: Word) -> Self {
        Self(self.0 | 1 << word as u32)
    }

    /// Whether `word` is answered.
    pub const fn allows(self, word: Word) -> bool {
        self.0 & 1 << word as u32 != 0
    }
}

impl Default for Whitelist {
    /// Returns ZooKeeper's default: `srvr` alone.
    fn default() -> Self {
        Word::ALL.into_iter().filter(|word| word.access() == Access::Default).fold(Self::NONE, Self::with)
    }
}

/// A received four-letter word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::client_port) enum Asked {
    /// A word that this server knows.
    Known(Word),
    /// A word that only ZooKeeper answers.
    Foreign(&'static str),
    /// The bytes that telnet sends when it is closed.
    TelnetClose,
}

impl Asked {
    /// Interprets the first four bytes of a connection; `None` when they are a length.
    pub(in crate::client_port) fn from_bytes(bytes: [u8; 4]) -> Option<Self> {
        if bytes == [0xff, 0xf4, 0xff, 0xfd] {
            return Some(Self::TelnetClose);
        }
        let text = std::str::from_utf8(&bytes).ok()?;
        let foreign = || FOREIGN.into_iter().find(|foreign| *foreign == text);
        Word::from_text(text).map(Self::Known).or_else(|| foreign().map(Self::Foreign))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_four_letters_of_its_own() {
        for word in Word::ALL {
            assert_eq!((word.text().len(), Word::from_text(word.text())), (4, Some(word)));
        }
    }

    #[test]
    fn whitelist_allows_exactly_the_listed_words() {
        let allowed = |list: Whitelist| Word::ALL.into_iter().filter(|word| list.allows(*word)).collect::<Vec<_>>();
        assert_eq!(allowed(Whitelist::parse(" stat, ruok,wchp ,nonsense")), [Word::Ruok, Word::Stat, Word::Wchp]);
        assert_eq!(allowed(Whitelist::parse("*")), Word::ALL);
        assert_eq!(Whitelist::parse(&Word::ALL.map(Word::text).join(",")), Whitelist::ALL);
        assert_eq!(allowed(Whitelist::default()), [Word::Srvr]);
        assert!(Whitelist::default().with(Word::Isro).allows(Word::Isro));
    }

    #[test]
    fn zool_is_answered_locally_and_remotely_only_if_listed() {
        let [here, mapped, there, own] =
            ["127.0.0.1", "::ffff:127.0.0.1", "10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let list = Whitelist::parse("srvr");
        let is_told = |asker| Word::Zool.is_allowed(list, asker, Some(own));
        // A server that listens on 10.0.0.2 alone is asked there, from that same host.
        assert!(is_told(here) && is_told(mapped) && is_told(own) && !is_told(there));
        assert!(!Word::Zool.is_allowed(list, there, None));
        assert!(Word::Zool.is_allowed(list.with(Word::Zool), there, Some(own)));
        assert!(!Word::Mntr.is_allowed(list, here, Some(here)));
    }

    #[test]
    fn four_letter_words_are_distinguished_from_frame_lengths() {
        assert_eq!(Asked::from_bytes(*b"ruok"), Some(Asked::Known(Word::Ruok)));
        assert_eq!(Asked::from_bytes(*b"hash"), Some(Asked::Foreign("hash")));
        assert_eq!(Asked::from_bytes([0xff, 0xf4, 0xff, 0xfd]), Some(Asked::TelnetClose));
        assert_eq!(Asked::from_bytes([0, 0, 0, 45]), None);
        assert_eq!(Asked::from_bytes(*b"RUOK"), None);
    }
}
